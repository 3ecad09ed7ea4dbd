"""The benchmark of decoding, in the directory of a recipe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import decode
from benchmarks.recipe_run import RunError, task_of_run
from benchmarks.result_file import Results
from natgrad.recipes.dnn import NetworkScorer
from natgrad.run.directory import RunDirectory
from tests.recipes.small_demo import SIZE, SmallDemo

NOT_NEEDED = shutil.ignore_patterns("train", "wav", "examples", "mono")


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in root.rglob("*")
    }


def test_run_is_only_read_and_has_the_errors_that_the_recipe_reports(
    whole_demo: SmallDemo, tmp_path: Path
) -> None:
    before = files_of(whole_demo.root)
    arguments = ["--run", str(whole_demo.root), "--quick", "--seconds", "1000"]
    assert decode.main([*arguments, "--results", str(tmp_path)]) == 0
    assert files_of(whole_demo.root) == before
    (table,) = Results.read(tmp_path / "decode.json").tables
    assert table.references == ("beam 8",)
    usual = table.rows[-1]
    assert usual.name == "beam 8"
    reported = whole_demo.facts["decode-dnn"]["dnn"]
    assert usual.also["word errors %"] == pytest.approx(100.0 * reported["wer"])
    assert usual.also["arcs a frame"] > 0.0
    assert table.title.startswith(f"{whole_demo.root}, dnn on report, {SIZE.report} utterances")


def test_mixtures_can_be_measured_too(whole_demo: SmallDemo) -> None:
    task = task_of_run(whole_demo.root, "sat", num_seconds=1000.0)
    search = decode.Search(task, task.options)
    search()
    reported = whole_demo.facts["decode-sat"]["sat"]
    assert search.figures([1.0])["word errors %"] == pytest.approx(100.0 * reported["wer"])


def test_part_of_the_speech_is_taken_from_all_over_the_set(whole_demo: SmallDemo) -> None:
    whole = task_of_run(whole_demo.root, "sat", num_seconds=1000.0)
    half = task_of_run(whole_demo.root, "sat", num_seconds=whole.num_seconds / 2)
    keys = [utterance.key for utterance in whole.utterances]
    assert [utterance.key for utterance in half.utterances] == keys[::2]
    first, again = whole.utterances[0].features, half.utterances[0].features
    assert (first == again).all()  # speakers' means are of all that they said


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("graphs", "has no graph of this lexicon, language model and model"),
        ("stages/decode-dnn.json", "in which stage decode-dnn is done"),
        ("decode/dnn", "in which stage decode-dnn is done"),
        ("decode/dnn/report/result.json", "in which stage decode-dnn is done"),
        ("decode/sat/report", "in which stage decode-sat is done"),
        ("gmm/sat", "in which stage sat is done"),
        ("dnn-2/run/final.safetensors", "in which stage dnn-2 is done"),
        ("dnn-2/priors.safetensors", "in which stage dnn-2-priors is done"),
        ("stages/dnn-2-examples.json", "in which stage dnn-2-examples is done"),
        ("features/report", "in which stage features is done"),
        ("language/lm.arpa.gz", "in which stage language is done"),
    ],
)
def test_run_that_is_not_finished_is_refused_with_what_to_do(
    whole_demo: SmallDemo, tmp_path: Path, lost: str, message: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole_demo.root, run, ignore=NOT_NEEDED)
    target = run / lost
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(RunError, match=message) as caught:
        task_of_run(run, "dnn", num_seconds=1000.0)
    assert str(run) in str(caught.value)
    assert not target.exists()  # nothing was made in its place


def test_directory_that_is_no_run_is_refused_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--run", str(tmp_path / "nowhere"), "--results", str(tmp_path)]
    assert decode.main(arguments) == 2
    error = capsys.readouterr().err
    assert "nowhere/gmm/sat/model.safetensors is not there" in error
    assert not (tmp_path / "decode.json").exists()


@pytest.mark.parametrize(("num_realignments", "name"), [(0, "dnn"), (1, "dnn-2"), (2, "dnn-3")])
def test_last_network_after_realignments_counts(
    whole_demo: SmallDemo, tmp_path: Path, num_realignments: int, name: str
) -> None:
    """The demo has one re-alignment: without it, as it is, and as if there was another."""
    run = tmp_path / "run"
    shutil.copytree(whole_demo.root, run, ignore=NOT_NEEDED)
    markers = sorted((run / "stages").glob("dnn-2*.json"))
    assert {marker.stem for marker in markers} >= {"dnn-2", "dnn-2-examples", "dnn-2-priors"}
    if num_realignments == 0:
        for marker in markers:
            marker.unlink()
    if num_realignments == 2:
        shutil.copytree(run / "dnn-2", run / "dnn-3")
        for marker in markers:
            shutil.copy(marker, marker.with_name(marker.name.replace("dnn-2", "dnn-3")))
    scorer = task_of_run(run, "dnn", num_seconds=1.0).scorer
    assert isinstance(scorer, NetworkScorer)
    assert scorer.model == RunDirectory(run / name / "run").final
    assert scorer.priors == run / name / "priors.safetensors"
