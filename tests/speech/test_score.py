from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.score import (
    Errors,
    ScoreError,
    Setting,
    compare,
    count_errors,
    read_hypotheses,
    score,
    search,
    write_hypotheses,
)

sentences = st.lists(st.sampled_from(["A", "B", "C"]), max_size=6)
tokens = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1)


def literal_distance(reference: tuple[str, ...], hypothesis: tuple[str, ...]) -> int:
    @cache
    def distance(said: int, heard: int) -> int:
        if said == 0 or heard == 0:
            return said + heard
        same = reference[said - 1] == hypothesis[heard - 1]
        return min(
            distance(said - 1, heard - 1) + (not same),
            distance(said - 1, heard) + 1,
            distance(said, heard - 1) + 1,
        )

    return distance(len(reference), len(hypothesis))


def noisy(rate: float, seed: int, num: int = 200) -> tuple[dict[str, list[str]], ...]:
    rng = np.random.default_rng(seed)
    said = {f"u{n:03}": list(rng.choice(list("ABCDEF"), 8)) for n in range(num)}
    heard = {
        key: [word if rng.random() > rate else "X" for word in words] for key, words in said.items()
    }
    return said, heard


@settings(max_examples=200, deadline=None)
@given(sentences, sentences)
def test_errors_are_as_few_as_can_be_and_explain_the_lengths(
    reference: list[str], hypothesis: list[str]
) -> None:
    errors = count_errors(reference, hypothesis)
    assert errors.total == literal_distance(tuple(reference), tuple(hypothesis))
    assert errors.num_words == len(reference)
    assert len(reference) - errors.deletions + errors.insertions == len(hypothesis)
    assert min(errors) >= 0


def test_words_are_compared_whole_and_not_by_letters() -> None:
    assert count_errors(["AB"], ["A", "B"]) == Errors(1, 1, 0, 1)


@pytest.mark.parametrize(("said", "heard"), [("A B", ["A"]), (["A"], "A B")])
def test_string_is_not_taken_for_a_list_of_words(said: str, heard: str) -> None:
    with pytest.raises(ScoreError, match="'A B' is one string; expected a list of words"):
        score({"a": said}, {"a": heard})


def test_the_rate_is_of_all_words_and_not_a_mean_over_utterances() -> None:
    scored = score({"a": ["W"] * 9, "b": ["W"]}, {"b": [], "a": ["W"] * 9})
    assert scored.total == Errors(0, 0, 1, 10)
    assert scored.rate == pytest.approx(0.1)
    assert list(scored.by_utterance) == ["a", "b"]


def test_insertions_can_make_the_rate_larger_than_one() -> None:
    assert score({"a": ["W"]}, {"a": ["W", "W", "W"]}).rate == 2.0


def test_errors_of_speakers_are_those_of_their_utterances() -> None:
    scored = score({"a": ["W"], "b": ["V"], "c": []}, {"a": ["W"], "b": ["W"], "c": ["W"]})
    speakers = {"two": ["b", "c", "not scored"], "one": ["a"], "nobody": ["other"]}
    assert scored.by_speaker(speakers) == {"one": Errors(0, 0, 0, 1), "two": Errors(1, 1, 0, 1)}
    table = scored.format_speakers(speakers).splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["one", "1", "0.00"],
        ["two", "1", "200.00"],
        ["all", "2", "100.00"],
    ]


def test_a_speaker_who_said_nothing_has_no_rate_in_the_table() -> None:
    scored = score({"a": ["W"], "b": []}, {"a": ["W"], "b": ["W"]})
    table = scored.format_speakers({"one": ["a"], "two": ["b"]}).splitlines()
    assert table[2].split() == ["two", "0", "-", "0", "1", "0"]


@pytest.mark.parametrize(
    ("speakers", "wrong"),
    [
        ({"one": ["a"]}, "b"),
        ({"one": ["a", "b"], "two": ["b"]}, "b"),
        ({"one": ["a"], "two": ["a"]}, "a, b"),  # as many as there are, and yet not each once
        ({"one": ["a", "b", "b"]}, "b"),
    ],
)
def test_an_utterance_of_no_speaker_or_of_two_is_refused(
    speakers: dict[str, list[str]], wrong: str
) -> None:
    scored = score({"a": ["W"], "b": ["V"]}, {"a": ["W"], "b": ["W"]})
    with pytest.raises(ScoreError, match=f"^{wrong}: nobody is the speaker"):
        scored.by_speaker(speakers)


def test_a_speaker_of_any_name_has_a_line_in_the_table() -> None:
    scored = score({"a": ["W"], "b": ["V"]}, {"a": ["W"], "b": ["W"]})
    table = scored.format_speakers({"all": ["a"], "two": ["b"]}).splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["all", "1", "0.00"],
        ["two", "1", "100.00"],
        ["all", "2", "50.00"],
    ]


def test_utterances_that_one_side_lacks_are_named() -> None:
    said = {f"u{n}": ["W"] for n in range(9)}
    with pytest.raises(ScoreError, match="nothing was recognised for u2, u3, u4, u5, u6 and 2 mor"):
        score(said, {"u0": ["W"], "u1": []})
    with pytest.raises(ScoreError, match="not known what was said in u8, of 9"):
        score({key: words for key, words in said.items() if key != "u8"}, said)
    with pytest.raises(ScoreError, match="no utterances"):
        score({}, {})


def test_there_is_no_rate_of_no_words() -> None:
    scored = score({"a": []}, {"a": ["W"]})
    with pytest.raises(ScoreError, match="nothing was said"):
        _ = scored.rate
    assert str(scored.total) == "no words [1 of 0; 0 sub, 1 ins, 0 del]"


def test_confidence_interval_is_that_of_a_mean_over_utterances() -> None:
    said, heard = noisy(rate=0.2, seed=0)
    scored = score(said, heard)
    interval = scored.confidence_interval()
    assert interval.low < scored.rate < interval.high
    rates = [errors.rate for errors in scored.by_utterance.values()]  # all are as long
    expected = 2 * 1.96 * float(np.std(rates)) / len(rates) ** 0.5
    assert interval.high - interval.low == pytest.approx(expected, rel=0.05)
    assert scored.confidence_interval() == interval
    assert scored.confidence_interval(seed=1) != interval


def test_confidence_interval_does_not_go_below_zero() -> None:
    said, heard = noisy(rate=0.0, seed=0)
    heard["u000"] = []
    assert score(said, heard).confidence_interval().low == 0.0


@pytest.mark.parametrize("said", [{"a": ["W"], "b": []}, {"a": [], "b": []}])
def test_there_is_no_interval_where_utterances_drawn_again_may_have_no_words(
    said: dict[str, list[str]],
) -> None:
    with pytest.raises(ScoreError, match=r"words were said in . of 2 utterances, .* score more"):
        score(said, {"a": ["W"], "b": ["W"]}).confidence_interval()


def test_comparison_knows_the_better_system() -> None:
    said, heard = noisy(rate=0.3, seed=1)
    _, better_heard = noisy(rate=0.2, seed=1)
    worse, better = score(said, heard), score(said, better_heard)
    comparison = compare(worse, better)
    assert comparison.probability_second_is_better > 0.99
    assert compare(better, worse).probability_second_is_better < 0.01
    assert comparison.relative_gain == pytest.approx(1 - better.rate / worse.rate)
    assert comparison.first == worse.total


def test_there_is_no_gain_over_a_system_without_errors() -> None:
    perfect, other = (score({"a": ["W"]}, {"a": words}) for words in (["W"], []))
    with pytest.raises(ScoreError, match="made no errors"):
        _ = compare(perfect, other).relative_gain
    assert compare(other, perfect).relative_gain == 1.0


def test_systems_scored_on_different_utterances_are_not_compared() -> None:
    with pytest.raises(ScoreError, match="1 and 2 utterances"):
        compare(score({"a": ["W"]}, {"a": []}), score({"a": ["W"], "b": []}, {"a": [], "b": []}))


def test_search_takes_the_setting_of_fewest_errors() -> None:
    said = {"a": ["W", "V", "U"]}
    found = search(
        said,
        {(8.0, 0.0): {"a": ["W"]}, (9.0, 0.0): {"a": ["W", "V"]}, (10.0, 0.0): {"a": []}},
    )
    assert found.best == Setting(9, 0.0)
    assert not found.is_at_edge
    assert [errors.total for errors in found.errors.values()] == [2, 1, 3]


def test_search_breaks_ties_by_penalty_and_then_by_weight_whatever_the_order() -> None:
    results = {(w, p): {"a": ["W"]} for w in (12.0, 9.0, 10.0) for p in (1.0, 0.0, -0.5)}
    found = search({"a": ["W"]}, results)
    assert found.best == Setting(9, 0.0)
    assert found.is_at_edge
    assert search({"a": ["W"]}, dict(reversed(results.items()))) == found


def test_search_needs_a_setting() -> None:
    with pytest.raises(ScoreError, match="got none"):
        search({"a": ["W"]}, {})


@settings(max_examples=20, deadline=None)
@given(hypotheses=st.dictionaries(tokens, st.lists(tokens, max_size=4), max_size=5))
def test_hypotheses_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, hypotheses: dict[str, list[str]]
) -> None:
    path = tmp_path_factory.mktemp("hypotheses") / "text"
    write_hypotheses(path, hypotheses)
    assert read_hypotheses(path) == {key: tuple(words) for key, words in hypotheses.items()}
    assert list(read_hypotheses(path)) == sorted(hypotheses)


@pytest.mark.parametrize(
    ("hypotheses", "bad"), [({"a": ["W V"]}, "W V"), ({"a b": []}, "a b"), ({"": []}, "")]
)
def test_words_that_the_format_cannot_hold_are_refused(
    tmp_path: Path, hypotheses: dict[str, list[str]], bad: str
) -> None:
    with pytest.raises(ScoreError, match=f"'{bad}' of utterance"):
        write_hypotheses(tmp_path / "text", hypotheses)
    assert not (tmp_path / "text").exists()


def test_lines_of_hypotheses_are_those_of_data_directories(tmp_path: Path) -> None:
    """Byte order marks, and what else Unicode calls the end of a line, are no part of them."""
    path = tmp_path / "text"
    path.write_text("\ufeffa YES\u2028NO\nb YES\x0cNO\n", encoding="utf-8")
    assert read_hypotheses(path) == {"a": ("YES", "NO"), "b": ("YES", "NO")}


def test_bad_files_of_hypotheses_are_refused_by_name_and_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a W\nb V\na U\n")
    with pytest.raises(ScoreError, match=f"{path}, line 3: utterance 'a' is there twice"):
        read_hypotheses(path)
    path.write_text("a W\n\nb V\n")
    with pytest.raises(ScoreError, match=f"{path}, line 2 is empty"):
        read_hypotheses(path)
    path.write_bytes(b"a \xff\xfe\n")
    with pytest.raises(ScoreError, match="expected a text file in UTF-8"):
        read_hypotheses(path)
    with pytest.raises(ScoreError, match=f"cannot read {tmp_path / 'missing'}"):
        read_hypotheses(tmp_path / "missing")
