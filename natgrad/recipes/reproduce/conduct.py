"""Do what an experiment measures, each measurement once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from natgrad.atomic import write_atomically
from natgrad.machine import describe_machine
from natgrad.recipes.reproduce.experiment import Bench, Found, Measurement, Progress, no_progress
from natgrad.run.events import EventLog
from natgrad.run.lock import hold

__all__ = ["Record", "conduct"]

KEYS = {"identity", "settings", "found", "seconds", "cpu_seconds", "finished", "machine"}


@dataclass(frozen=True)
class Record:
    """A measurement that is done.

    identity: of all that it depends on
    settings, found: as `Measurement` has them
    seconds: how long it took; of an attempt that was killed, nothing counts
    cpu_seconds: of this process and of those that it started and that have ended
    finished: when, in UTC
    machine: where
    """

    identity: str
    settings: dict[str, Any]
    found: Found
    seconds: float
    cpu_seconds: float
    finished: str
    machine: str


def conduct(
    directory: str | Path,
    measurements: Sequence[Measurement],
    *,
    progress: Progress = no_progress,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    on_training: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Record]:
    """Do the measurements that are not done, in order, and return the records of all.

    >>> import tempfile
    >>> def count(bench: Bench) -> Found:
    ...     print("counting")
    ...     return {"sheep": 3}
    >>> where = tempfile.mkdtemp()
    >>> records = conduct(where, [Measurement("flock", {"seed": 1}, count)])
    counting
    >>> conduct(where, [Measurement("flock", {"seed": 1}, count)])["flock"].found
    {'sheep': 3}

    Args:
        directory: of the experiment; made if need be.
        measurements: all of them.
        progress: makes progress bars.
        on_event: called with "stage" (name, number, num_stages) when one begins and "stage_done"
            (name, seconds, facts) when it has ended, as by `natgrad.run.stages`.
        on_training: called with the events of training runs within a measurement.
    """
    directory = Path(directory).absolute()
    identities = _identities(measurements)
    with hold(directory, ("measurements", "work/*", "work/*/words")):
        (directory / "measurements").mkdir(exist_ok=True)
        log = EventLog(directory / "events.jsonl")
        records: dict[str, Record] = {}
        for number, measurement in enumerate(measurements, start=1):
            file = directory / "measurements" / f"{measurement.name}.json"
            record = _read(file)
            if record is None or record.identity != identities[measurement.name]:
                event = {"name": measurement.name, "number": number}
                _tell(log, on_event, "stage", **event, num_stages=len(measurements))
                found = {name: records[name].found for name in measurement.needs}
                identity = identities[measurement.name]
                work = _work(directory, measurement, identity)
                record = _do(measurement, Bench(work, found, progress, on_training), identity)
                write_atomically(file, [json.dumps(vars(record), indent=1).encode()])
                facts = _scalars(record.found)
                name, seconds = measurement.name, record.seconds
                _tell(log, on_event, "stage_done", name=name, seconds=seconds, facts=facts)
            records[measurement.name] = record
        return records


def _do(measurement: Measurement, bench: Bench, identity: str) -> Record:
    began, cpu_before = time.monotonic(), sum(os.times()[:4])
    # As JSON has it, so that what is reported does not depend on whether it was read back.
    found = json.loads(json.dumps(measurement.run(bench), allow_nan=False))
    return Record(
        identity,
        json.loads(json.dumps(measurement.settings)),
        found,
        round(time.monotonic() - began, 3),
        round(sum(os.times()[:4]) - cpu_before, 3),
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        describe_machine(),
    )


def _work(directory: Path, measurement: Measurement, identity: str) -> Path:
    """Return its directory, in which nothing is left but what the same measurement has begun."""
    work = directory / "work" / measurement.name
    mark = work / "identity"
    if not mark.exists() or mark.read_text() != identity:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_atomically(mark, [identity.encode()])
    return work


def _identities(measurements: Sequence[Measurement]) -> dict[str, str]:
    """Return a digest of all that each depends on: its settings, and those of what it needs."""
    identities: dict[str, str] = {}
    for measurement in measurements:
        if measurement.name in identities:
            raise ValueError(f"two measurements are named {measurement.name!r}")
        missing = [name for name in measurement.needs if name not in identities]
        if missing:
            raise ValueError(
                f"the measurement {measurement.name!r} needs {', '.join(missing)}: expected "
                "measurements that are before it in the list"
            )
        needs = {name: identities[name] for name in measurement.needs}
        text = json.dumps([measurement.settings, needs], sort_keys=True)
        identities[measurement.name] = hashlib.sha256(text.encode()).hexdigest()
    return identities


def _read(file: Path) -> Record | None:
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(_damaged(file, str(error))) from error
    if not isinstance(content, dict) or set(content) != KEYS:
        raise ValueError(_damaged(file, f"expected the keys {', '.join(sorted(KEYS))}"))
    return Record(**content)


def _damaged(file: Path, reason: str) -> str:
    return (
        f"{file} is not what a measurement writes when it is done ({reason}): remove it, and it "
        "will be measured again"
    )


def _tell(
    log: EventLog,
    on_event: Callable[[dict[str, Any]], None] | None,
    event: str,
    **fields: Any,
) -> None:
    record = log.append(event, **fields)
    if on_event is not None:
        on_event(record)


def _scalars(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line of progress has room for, without what did not happen."""
    return {
        key: value
        for key, value in found.items()
        if value is not None and not isinstance(value, list | dict)
    }
