from __future__ import annotations

import sys
from pathlib import Path

import pytest

from natgrad.report import read_run
from natgrad.report.tensorboard import scalars, write_tensorboard
from tests.report.made_runs import MadeRun

EVENT_READER = "tensorboard.backend.event_processing.event_accumulator"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_tensorboard_reads_back_what_the_events_say(tmp_path: Path) -> None:
    reader = pytest.importorskip(EVENT_READER, reason="TensorBoard is not installed")
    path = MadeRun(num_iterations=6).write(tmp_path / "run")
    (directory,) = write_tensorboard([path], tmp_path / "board")
    assert directory == tmp_path / "board" / "run"
    events = reader.EventAccumulator(str(directory))
    events.Reload()
    run = read_run(path)
    objective = events.Scalars("objective/valid")
    assert [s.step for s in objective] == list(run.diagnostics)
    expected = [event["valid"]["objective"] for event in run.diagnostics.values()]
    assert [s.value for s in objective] == pytest.approx(expected, rel=1e-6)
    assert objective[3].wall_time == pytest.approx(run.diagnostics[3]["time"])
    change = events.Scalars("relative_change/output")
    assert [s.value for s in change] == pytest.approx(
        [event["change"]["output"] for event in run.iterations.values()], rel=1e-6
    )
    assert set(events.Tags()["scalars"]) == {tag for tag, *_ in scalars(run)}
    with pytest.raises(FileExistsError, match="TensorBoard's files already"):
        write_tensorboard([path], tmp_path / "board")


def test_scalars_have_one_value_per_tag_and_iteration(tmp_path: Path) -> None:
    run = read_run(MadeRun(num_iterations=8, resume_at=4).write(tmp_path / "run"))
    keys = [(tag, iteration) for tag, _, iteration, _ in scalars(run)]
    assert len(keys) == len(set(keys))
    assert {"limited_by_max_change/output", "removed_in_least/output"} <= {tag for tag, _ in keys}


def test_missing_tensorboard_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    path = MadeRun(num_iterations=2).write(tmp_path / "run")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'natgrad\[tensorboard\]'"):
        write_tensorboard([path], tmp_path / "board")
    assert not (tmp_path / "board").exists()
