"""The demo keeps its promises: a fair comparison, a table of the right shape, honest sentences."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
import torch

from natgrad.recipes import demo
from natgrad.recipes.demo import Curve, Data


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def data() -> Data:
    return demo.load_data(seed=0)


@pytest.fixture(scope="module")
def curves(data: Data) -> list[Curve]:
    return [demo.train(method, data, epochs=2, lr=demo.LR, seed=0) for method in demo.TITLES]


def curve(method: str, *objective: float, accuracy: float = 0.9) -> Curve:
    return Curve(method, objective, (accuracy,) * len(objective), seconds=1.0)


def test_held_out_samples_are_not_trained_on(data: Data) -> None:
    assert len(data.y) + len(data.held_out_y) == 1797
    assert len(data.held_out_y) == demo.NUM_HELD_OUT
    trained_on = {tuple(row) for row in data.x.tolist()}
    assert trained_on.isdisjoint(tuple(row) for row in data.held_out_x.tolist())


def test_another_seed_gives_another_split(data: Data) -> None:
    assert not torch.equal(demo.load_data(seed=1).x, data.x)


def test_training_twice_gives_the_same_curve(data: Data, curves: list[Curve]) -> None:
    again = demo.train("online", data, epochs=2, lr=demo.LR, seed=0)
    assert again.objective == curves[-1].objective
    assert again.accuracy == curves[-1].accuracy


def test_natural_gradient_is_ahead_of_plain_sgd_after_two_epochs(curves: list[Curve]) -> None:
    plain, simple, online = curves
    assert plain.objective[-1] < 2.0 * min(simple.objective[-1], online.objective[-1])
    assert min(simple.accuracy[-1], online.accuracy[-1]) > 0.9


def test_table_has_a_row_per_epoch_and_six_columns() -> None:
    curves = [curve(method, -2.0, -1.0, -0.5) for method in demo.TITLES]
    _, titles, *epochs, seconds = demo.format_table(curves).splitlines()
    assert [row.split()[0] for row in epochs] == ["1", "2", "3"]
    assert all(len(row.split()) == 1 + 6 for row in epochs)
    assert epochs[-1].split()[1:] == ["-0.5000"] * 3 + ["90.0%"] * 3
    assert seconds.split() == ["seconds"] + ["1.00"] * 3
    assert all(titles.count(title) == 2 for title in demo.TITLES.values())
    assert len({len(row) for row in [titles, *epochs]}) == 1  # columns are aligned


def test_conclusion_tells_when_the_others_had_what_plain_sgd_ended_with() -> None:
    curves = [curve("none", -2.0, -1.0), curve("simple", -0.9, -0.1), curve("online", -1.5, -1.0)]
    sentence = demo.conclusion(curves)
    assert "Plain SGD ended with an objective of -1.0000 after 2 epochs" in sentence
    assert "simple NG-SGD had that after 1, and ended with -0.1000" in sentence
    assert "online NG-SGD had that after 2" in sentence


def test_conclusion_does_not_hide_a_defeat() -> None:
    curves = [curve("none", -2.0, -0.1), curve("simple", -2.0, -1.0), curve("online", -2.0, -1.0)]
    assert demo.conclusion(curves).count("never had that, and ended with -1.0000") == 2


def test_conclusion_of_a_diverged_run_is_still_a_sentence() -> None:
    curves = [curve("none", float("nan")), curve("simple", -0.1), curve("online", -0.1)]
    assert demo.conclusion(curves).startswith("Plain SGD ended with an objective of nan")


def test_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(["--epochs", "1", "--lr", "0.01", "--seed", "3"])
    output = capsys.readouterr().out
    assert "the same learning rate (per sample, 0.01 falling to 0.001)" in output
    assert re.search(r"^1 .*%$", output, re.MULTILINE)
    assert output.count("Plain SGD ended") == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--epochs", "0"), ("--lr", "-1.0"), ("--lr", "nan")]
)
def test_options_that_make_no_sense_are_named(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        demo.main([option, value])
    assert f"{option} is {value}, but must be" in capsys.readouterr().err


def test_missing_scikit_learn_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match=re.escape("pip install 'natgrad[demo]'")):
        demo.load_data(seed=0)
