"""Run directories as training would leave them, made up: what tests of the report look at."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINAL_LAYERS = ("hidden.0.linear", "hidden.1.linear", "hidden.2.linear", "output")
FIRST_TIME = 1_750_000_000.0
SAMPLES_PER_JOB = 400_000.0


@dataclass
class MadeRun:
    """What a made-up run is like; `write` makes its directory."""

    num_iterations: int = 24
    num_jobs: tuple[int, int] = (2, 4)  # at the start and at the end
    num_epochs: float = 5.0
    method: str = "online"
    final_objective: float = -1.12
    seconds_per_job: float = 62.0
    seed: int = 1
    stop_after: int | None = None  # iterations, of which the last has not ended
    resume_at: int | None = None  # the driver dies in this iteration and goes on from before it
    with_diagnostics: bool = True
    with_combine: bool = True
    with_faults: bool = True
    with_cosines: bool = True  # older runs have none
    status: str = "complete"
    overrides: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write config.json and events.jsonl."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config()))
        lines = "".join(json.dumps(event) + "\n" for event in _Writer(self).events())
        (path / "events.jsonl").write_text(lines)
        return path

    def config(self) -> dict[str, Any]:
        """The run's configuration: nested, as the real one."""
        config: dict[str, Any] = {
            "network": {"hidden": [[1000, 200]] * 3, "nonlinearity": "pnorm"},
            "training": {
                "num_epochs": self.num_epochs,
                "num_jobs_initial": self.num_jobs[0],
                "num_jobs_final": self.num_jobs[1],
                "method": self.method,
            },
            "engine": {"name": "local"},
            "seed": self.seed,
        }
        config["training"].update(self.overrides)
        return config


class _Writer:
    def __init__(self, run: MadeRun) -> None:
        self.run = run
        self.random = random.Random(run.seed)
        self.time = FIRST_TIME + 1000.0 * run.seed
        self.epoch = 0.0
        self.out: list[dict[str, Any]] = []

    def say(self, event: str, **fields: Any) -> None:
        self.out.append({"time": round(self.time, 3), "event": event, **fields})

    def start(self, resumed_from: int | None) -> None:
        self.say(
            "start",
            num_iterations=self.run.num_iterations,
            num_epochs=self.run.num_epochs,
            engine="local",
            resumed_from=resumed_from,
            version="0.1.0",
            host="node7",
            pid=99_999_999,
        )

    def events(self) -> list[dict[str, Any]]:
        run = self.run
        self.start(None)
        self.diagnose(0)
        last = run.stop_after or run.num_iterations
        for iteration in range(1, last + 1):
            if iteration == run.resume_at:
                self.crash(iteration)
            if iteration in (4, 7):
                self.say("remodel", iteration=iteration, change="grow", num_hidden=iteration // 3)
            self.iterate(iteration, begun_only=iteration == run.stop_after)
            if iteration != run.stop_after:
                self.diagnose(iteration)
        if run.stop_after is None:
            if run.with_combine and run.status == "complete":
                self.combine()
            message = "" if run.status == "complete" else "no job of iteration 24 was usable"
            self.say("end", status=run.status, message=message)
        return self.out

    def crash(self, iteration: int) -> None:
        """The iteration before is said twice, as it is begun again, and hours pass."""
        epoch = self.epoch
        self.iterate(iteration)
        self.epoch = epoch
        self.time += 7200.0
        self.start(iteration - 1)

    def iterate(self, iteration: int, begun_only: bool = False) -> None:
        begin = self.time
        first, last = self.run.num_jobs
        part = iteration / self.run.num_iterations
        num_jobs = round(first + (last - first) * part)
        faulty = self.run.with_faults and iteration % 9 == 5
        ends, left_out = [], []
        for job in range(num_jobs):
            is_bad = faulty and job == 1
            if is_bad:
                left_out.append(job)
            ends.append(self.job(iteration, job, begin, is_bad, part))
            if begun_only:
                return
        self.time = max(ends) + 0.8
        samples = SAMPLES_PER_JOB * (num_jobs - len(left_out))
        self.epoch += self.run.num_epochs / self.run.num_iterations
        if left_out:
            self.say(
                "warning",
                iteration=iteration,
                message="job 1 is left out: its objective -4.9 is <far> below the others' & wrong",
            )
        self.say(
            "iteration",
            iteration=iteration,
            num_iterations=self.run.num_iterations,
            num_jobs=num_jobs,
            epoch=self.epoch,
            num_epochs=self.run.num_epochs,
            learning_rate=0.08 * num_jobs * 0.1**part,
            effective_learning_rate=0.08 * 0.1**part,
            objective=self.objective(part) + 0.01,
            samples=samples,
            seconds=self.time - begin,
            average_seconds=0.8,
            chosen="average" if iteration > 1 else "best of 2",
            left_out=left_out,
            change={name: 0.3 * 0.1**part / (i + 1) for i, name in enumerate(self.layers(part))},
            samples_per_second=samples / (self.time - begin),
            **self.agreement(num_jobs - len(left_out), part),
        )

    def agreement(self, num_jobs: int, part: float) -> dict[str, Any]:
        """What there is to say of the steps of several jobs; of one there is nothing."""
        if num_jobs < 2 or not self.run.with_cosines:
            return {}
        cosine = 0.8 * math.exp(-2 * part)
        layers = {name: cosine / (i + 1) for i, name in enumerate(self.layers(part))}
        return {"cosine": cosine, "layer_cosines": {**layers, "never_moved": None}}

    def job(self, iteration: int, job: int, begin: float, is_bad: bool, part: float) -> float:
        """Say what one job did, and return when it ended."""
        started, attempt = begin + 0.3 + 0.2 * job, 1
        seconds = self.run.seconds_per_job * self.random.uniform(0.95, 1.08)
        if self.run.with_faults and iteration % 6 == 2 and job == 0:
            self.time, attempt = started + 0.4 * seconds, 2
            self.say("retry", iteration=iteration, job=job, attempt=1, reason="worker was killed")
            started = self.time + 1.0
        if self.run.with_faults and iteration % 8 == 3 and job == 1:
            seconds *= 1.9
        self.time = started + seconds
        self.say(
            "job",
            iteration=iteration,
            job=job,
            attempt=attempt,
            samples=SAMPLES_PER_JOB,
            objective=None if is_bad else self.objective(part) + self.random.gauss(0, 0.01),
            seconds=seconds,
            started=started,
            host=f"node{job % 2}",
            pid=1000 + job,
            accepted=not is_bad,
            reason="its objective is far below the others'" if is_bad else None,
            layers={name: self.statistics(i, part) for i, name in enumerate(self.layers(part))},
        )
        return self.time

    def layers(self, part: float) -> list[str]:
        """Layers are grown below the output."""
        num_hidden = min(3, 1 + int(part * self.run.num_iterations) // 3)
        return [*FINAL_LAYERS[:num_hidden], "output"]

    def statistics(self, layer: int, part: float) -> dict[str, Any]:
        num_minibatches = 781
        share = max(0.0, (0.9 - 0.2 * layer) * math.exp(-3 * part) + self.random.gauss(0, 0.01))
        entry: dict[str, Any] = {
            "num_minibatches": num_minibatches,
            "num_limited": round(min(1.0, share) * num_minibatches),
        }
        if self.run.method == "online":
            drift = 0.1 * part + 0.01 * self.run.seed
            entry["removed_in"] = [
                (0.95 - drift) / (1 + 0.25 * (1 + layer) * k) + 0.02 for k in range(20)
            ]
            entry["removed_out"] = [(0.8 - drift) / (1 + 0.04 * k) for k in range(80)]
        return entry

    def objective(self, part: float) -> float:
        final = self.run.final_objective
        return final + (-8.3 - final) * math.exp(-6.0 * math.sqrt(part) * 1.1) - 0.02 * (1 - part)

    def diagnose(self, iteration: int) -> None:
        if not self.run.with_diagnostics:
            return
        part = iteration / self.run.num_iterations
        train, valid = self.objective(part), self.objective(part) - 0.05 - 0.12 * part
        self.say(
            "diagnostics",
            iteration=iteration,
            train={"objective": train, "accuracy": math.exp(0.42 * train), "samples": 4000.0},
            valid={"objective": valid, "accuracy": math.exp(0.42 * valid), "samples": 4000.0},
        )

    def combine(self) -> None:
        last = self.run.num_iterations
        inputs = list(range(max(0, last - 4), last + 1))
        self.time += 35.0
        self.say(
            "combine",
            method="generalised",
            inputs=[[i] for i in inputs],
            objectives=[self.objective(i / self.run.num_iterations) for i in inputs],
            mean_objective=self.run.final_objective + 0.01,
            objective=self.run.final_objective + 0.02,
            weights={
                name: [-0.15 + 0.02 * i, 0.1, 0.2, 0.3, 0.55 - 0.02 * i][-len(inputs) :]
                for i, name in enumerate(FINAL_LAYERS)
            },
            seconds=35.0,
        )
