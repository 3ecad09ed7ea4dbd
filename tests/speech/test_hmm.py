from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.hmm import (
    ContextTree,
    HmmStates,
    MonophoneTree,
    Topology,
    TransitionCounts,
)
from tests.speech.contexts import PHONES, TOPOLOGY
from tests.speech.toy_graphs import ToyTree
from tests.speech.utterances import draw_alignment

MONOPHONES = MonophoneTree(PHONES, TOPOLOGY)
TRIPHONES = ToyTree(PHONES, TOPOLOGY)
seeds = st.integers(0, 2**32)


@given(seeds, st.integers(1, 20), st.booleans())
def test_phones_and_their_frames_are_read_from_an_alignment(
    seed: int, num_phones: int, triphones: bool
) -> None:
    tree = TRIPHONES if triphones else MONOPHONES
    states = HmmStates.of(PHONES, TOPOLOGY, tree)
    made = draw_alignment(seed, states, tree, num_phones)
    assert states.spans(made.states) == made.spans


def test_alignment_without_frames_has_no_phones() -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, MONOPHONES)
    assert states.spans([]) == []
    assert states.spans(np.zeros(0, dtype=np.int32)) == []


@given(seeds, st.integers(1, 20))
def test_frames_and_visits_of_states_are_counted(seed: int, num_phones: int) -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, TRIPHONES)
    made = [draw_alignment(seed + part, states, TRIPHONES, num_phones) for part in range(2)]
    counts = states.count(part.states for part in made)
    parts = [states.count([part.states]) for part in made]
    total = parts[0] + parts[1]
    for number in range(len(states)):
        stays = [frames for part in made for state, frames in part.durations if state == number]
        assert (counts.frames[number], counts.visits[number]) == (sum(stays), len(stays))
        assert (total.frames[number], total.visits[number]) == (sum(stays), len(stays))


def test_reestimated_self_loops_make_the_durations_most_likely() -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, MONOPHONES)
    made = draw_alignment(0, states, MONOPHONES, 400)
    staying = states.reestimated(states.count([made.states]), least_visits=1).self_loop

    def log_likelihood(self_loop: float, state: int) -> float:
        stays = [frames - 1 for number, frames in made.durations if number == state]
        return sum(stays) * math.log(self_loop) + len(stays) * math.log1p(-self_loop)

    for state in np.unique(made.states).tolist():
        best = log_likelihood(staying[state], state)
        assert best > log_likelihood(staying[state] + 0.01, state)
        assert best > log_likelihood(staying[state] - 0.01, state)


def test_states_that_were_hardly_seen_get_the_mean_of_all() -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, MONOPHONES)
    frames, visits = (np.zeros(len(states), dtype=np.int64) for _ in range(2))
    frames[:3], visits[:3] = (100, 50, 50), (10, 20, 4)
    staying = states.reestimated(TransitionCounts(frames, visits), least_visits=5).self_loop
    np.testing.assert_allclose(staying[:2], [0.9, 0.6])
    np.testing.assert_allclose(staying[2:], 1 - 34 / 200)


@pytest.mark.parametrize(("frames", "visits"), [(10**6, 10), (10, 10), (0, 0)])
def test_every_state_can_be_stayed_in_and_left_whatever_the_counts(
    frames: int, visits: int
) -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, MONOPHONES)
    shape = len(states)
    counts = TransitionCounts(np.full(shape, frames), np.full(shape, visits))
    staying = states.reestimated(counts).self_loop
    assert (staying >= 0.01).all()
    assert (staying <= 0.99).all()


def test_states_are_all_that_a_tree_gives() -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, TRIPHONES)
    assert [
        states.number[key]
        for key in zip(
            states.phone.tolist(), states.position.tolist(), states.pdf.tolist(), strict=True
        )
    ] == list(range(len(states)))
    everyone = np.arange(len(PHONES), dtype=np.int32)
    left, right = (side.ravel() for side in np.meshgrid(everyone, everyone))
    for phone in range(1, len(PHONES)):
        for position in range(TOPOLOGY.num_states(PHONES, phone)):
            pdfs = TRIPHONES.pdf(left, np.full_like(left, phone), right, position)
            assert all((phone, position, pdf) in states.number for pdf in pdfs.tolist())


def test_monophones_of_a_sound_share_pdfs_wherever_in_the_word() -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, MONOPHONES)
    sounds = PHONES.sound_of[states.phone].tolist()
    keys: dict[tuple[int, int], set[int]] = {}
    for sound, place, pdf in zip(
        sounds, states.position.tolist(), states.pdf.tolist(), strict=True
    ):
        keys.setdefault((sound, place), set()).add(pdf)
    assert all(len(pdfs) == 1 for pdfs in keys.values())
    assert len(keys) == states.num_pdfs == 2 * 3 + 3 * 2


@pytest.mark.parametrize("tree", [MONOPHONES, TRIPHONES])
def test_sound_states_are_those_of_monophones_whatever_the_context(tree: ContextTree) -> None:
    states = HmmStates.of(PHONES, TOPOLOGY, tree)
    sounds = PHONES.sound_of[states.phone].tolist()
    keys = list(zip(sounds, states.position.tolist(), strict=True))
    numbers = dict(zip(keys, states.sound_state.tolist(), strict=True))
    assert [numbers[key] for key in keys] == states.sound_state.tolist()
    assert sorted(numbers.values()) == list(range(2 * 3 + 3 * 2))


def test_phone_of_one_state_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 states, but speech_states is 1"):
        Topology(speech_states=1)
