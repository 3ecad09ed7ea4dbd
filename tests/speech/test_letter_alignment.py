from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.lexicon.letter_alignment import Graphone, Spoken, align_letters

Weights = dict[Graphone, float]
Cut = tuple[Graphone, ...]

spoken_words = st.tuples(
    st.text("abc", min_size=1, max_size=4),
    st.lists(st.sampled_from(["X", "Y", "Z"]), min_size=1, max_size=5).map(tuple),
)


def all_cuts(word: str, sounds: tuple[str, ...]) -> list[Cut]:
    """Every way to give each letter none to two of the sounds, in order."""
    cuts = []
    for numbers in product(range(3), repeat=len(word)):
        if sum(numbers) == len(sounds):
            ends = np.cumsum(numbers).tolist()
            parts = [
                Graphone(letter, sounds[end - number : end])
                for letter, number, end in zip(word, numbers, ends, strict=True)
            ]
            cuts.append(tuple(parts))
    return cuts


def weight(cut: Cut, weights: Weights) -> float:
    return float(np.prod([weights.get(graphone, 0.0) for graphone in cut]))


def learn_literally(words: list[Spoken], num_iterations: int) -> tuple[Weights, list[float]]:
    cuts = [all_cuts(*word) for word in words]
    weights = dict.fromkeys((graphone for ways in cuts for cut in ways for graphone in cut), 1.0)
    likelihoods = []
    for _ in range(num_iterations):
        counts = dict.fromkeys(weights, 0.0)
        total = 0.0
        for ways in cuts:
            whole = sum(weight(cut, weights) for cut in ways)
            if whole > 0.0:
                total += float(np.log(whole))
                for cut in ways:
                    for graphone in cut:
                        counts[graphone] += weight(cut, weights) / whole
        likelihoods.append(total)
        weights = {g: count / sum(counts.values()) for g, count in counts.items()}
    return weights, likelihoods


@settings(max_examples=40, deadline=None)
@given(st.lists(spoken_words, min_size=1, max_size=5))
def test_words_are_cut_in_the_likeliest_way_after_literal_em(words: list[Spoken]) -> None:
    weights, likelihoods = learn_literally(words, 4)
    alignment = align_letters(words, num_iterations=4)
    # The first iteration begins from equal weights, whose size means nothing.
    assert alignment.log_likelihoods[1:] == pytest.approx(likelihoods[1:], rel=1e-9, abs=1e-9)
    for (word, sounds), sequence in zip(words, alignment.sequences, strict=True):
        ways = all_cuts(word, sounds)
        if sequence is None:
            assert not ways
            continue
        cut = tuple(alignment.graphones[number] for number in sequence)
        assert cut in ways
        best = max(weight(way, weights) for way in ways)
        assert weight(cut, weights) == pytest.approx(best, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(spoken_words, min_size=1, max_size=8))
def test_the_likelihood_never_falls(words: list[Spoken]) -> None:
    likelihoods = align_letters(words, num_iterations=8).log_likelihoods
    assert all(np.diff(likelihoods) >= -1e-9)


def test_a_word_with_too_many_sounds_harms_no_other() -> None:
    words = [("AB", ("X", "Y")), ("W", ("D", "AH", "B")), ("BA", ("Y", "X"))]
    alignment = align_letters(words)
    assert [sequence is None for sequence in alignment.sequences] == [False, True, False]
    assert {graphone.letter for graphone in alignment.graphones} == {"A", "B"}


def test_words_without_letters_or_sounds_are_left_out_or_silent() -> None:
    alignment = align_letters([("", ("X",)), ("A", ()), ("A", ("X",))])
    assert alignment.sequences[0] is None
    assert alignment.sequences[1] is not None
    assert alignment.graphones[alignment.sequences[1][0]] == Graphone("A", ())


def test_long_words_do_not_underflow() -> None:
    word = ("ab" * 60, ("X", "Y") * 60)
    alignment = align_letters([word, ("ab", ("X", "Y")), ("ba", ("Y", "X"))])
    assert all(sequence is not None for sequence in alignment.sequences)
