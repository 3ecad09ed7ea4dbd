import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.lexicon.sequence_model import SequenceModel, estimate_sequences

NUM_ITEMS = 3
BEGIN, END = -1, NUM_ITEMS
Gram = tuple[int, ...]

texts = st.lists(
    st.lists(st.integers(0, NUM_ITEMS - 1), min_size=1, max_size=6), min_size=1, max_size=12
).map(lambda sequences: [*sequences, list(range(NUM_ITEMS))])


def estimate(sequences: list[list[int]], order: int) -> SequenceModel:
    return estimate_sequences([np.array(s, dtype=np.int32) for s in sequences], NUM_ITEMS, order)


class Literal:
    """Modified Kneser-Ney by its definition, one n-gram at a time."""

    def __init__(self, sequences: list[list[int]], order: int) -> None:
        padded = [[BEGIN, *sequence, END] for sequence in sequences]
        raw = [
            Counter(tuple(s[i : i + n]) for s in padded for i in range(len(s) - n + 1))
            for n in range(1, order + 1)
        ]
        self.order = order
        self.counts: list[dict[Gram, int]] = []
        for n in range(1, order + 1):
            counts = dict(raw[n - 1])
            if n < order:
                before = Counter(gram[1:] for gram in raw[n])
                counts = {g: c if g[0] == BEGIN else before[g] for g, c in counts.items()}
            counts.pop((BEGIN,), None)
            self.counts.append(counts)
        self.discounts = [self._discounts(list(counts.values())) for counts in self.counts]

    @staticmethod
    def _discounts(counts: list[int]) -> list[float]:
        n1, n2, n3, n4 = (counts.count(c) for c in (1, 2, 3, 4))
        if n1 * n2 * n3 * n4 > 0:
            y = n1 / (n1 + 2 * n2)
            one, two, three = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
            if 0 < one < 1 and 0 < two < 2 and 0 < three < 3:
                return [0.0, one, two, three]
        return [0.0, 0.5, 1.0, 1.5]

    def probability(self, item: int, history: Gram) -> float:
        if len(history) >= self.order:
            history = history[len(history) - self.order + 1 :]
        lower = self.probability(item, history[1:]) if history else 1.0 / (NUM_ITEMS + 1)
        counts, discounts = self.counts[len(history)], self.discounts[len(history)]
        followers = {g[-1]: c for g, c in counts.items() if g[:-1] == history}
        total = sum(followers.values())
        if total == 0:
            return lower
        taken = sum(discounts[min(count, 3)] for count in followers.values())
        count = followers.get(item, 0)
        return (count - discounts[min(count, 3)] + taken * lower) / total


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 4), st.lists(st.integers(0, NUM_ITEMS - 1), max_size=7))
def test_probabilities_are_those_of_the_literal_estimate(
    sequences: list[list[int]], order: int, probe: list[int]
) -> None:
    literal = Literal(sequences, order)
    history: Gram = (BEGIN,)
    expected = 0.0
    for item in (*probe, END):
        expected += math.log(literal.probability(item, history))
        history = (*history, item)
    assert estimate(sequences, order).log_probability(probe) == pytest.approx(expected, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4), st.lists(st.integers(0, NUM_ITEMS - 1), max_size=5))
def test_what_may_follow_any_history_sums_to_one(
    sequences: list[list[int]], order: int, history: list[int]
) -> None:
    model = estimate(sequences, order)
    state = model.start
    for item in history:
        _, state = model.follow(state, item)
    total = sum(math.exp(model.follow(state, item)[0]) for item in range(NUM_ITEMS + 1))
    assert total == pytest.approx(1.0, abs=1e-5)


def test_plenty_of_data_gives_discounts_of_its_own() -> None:
    random = np.random.default_rng(0)
    sequences = [random.geometric(0.5, 4).clip(1, NUM_ITEMS) - 1 for _ in range(200)]
    literal = Literal([s.tolist() for s in sequences], 4)
    assert literal.discounts[3] != [0.0, 0.5, 1.0, 1.5]
    model = estimate_sequences([s.astype(np.int32) for s in sequences], NUM_ITEMS, 4)
    for probe in ([0, 1, 2, 0], [2, 2], [0], [1, 1, 1, 1, 1]):
        padded = (BEGIN, *probe, END)
        ends = range(1, len(padded))
        expected = sum(math.log(literal.probability(padded[i], padded[:i])) for i in ends)
        assert model.log_probability(probe) == pytest.approx(expected, rel=1e-5)


def test_items_that_are_never_seen_are_refused() -> None:
    with pytest.raises(ValueError, match="have 2 different items; expected each of 0 to 2"):
        estimate([[0, 1]], 2)
    with pytest.raises(ValueError, match="order is 0"):
        estimate([[0, 1, 2]], 0)
