"""Lattices: the likely ways through an utterance, with what the graph and what the sound cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.decoding.lattice_n_best import find_n_best
from natgrad.speech.decoding.lattice_oracle import count_oracle_errors
from natgrad.speech.decoding.lattice_paths import ROUNDOFF, best_way, bound_arcs
from natgrad.speech.decoding.lattice_posteriors import (
    StatePosteriors,
    arc_posteriors,
    merge_by_state,
)

__all__ = ["Lattice", "Oracle", "Path"]

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Path:
    """One way through an utterance.

    A word begins, as far as graphs can tell, with the frame at which no other word can follow any
    more: that is not later than its end, but may be later than its first sound.
    """

    words: tuple[int, ...]
    alignment: Ints  # (T,) the HMM state at each frame
    graph_cost: float
    acoustic_cost: float  # not scaled
    word_begin_frames: tuple[int, ...]

    def cost(
        self, lm_scale: float = 1.0, acoustic_scale: float = 0.1, word_penalty: float = 0.0
    ) -> float:
        """Return the cost of all together; see Lattice."""
        scaled = lm_scale * self.graph_cost + acoustic_scale * self.acoustic_cost
        return scaled + word_penalty * len(self.words)


class Oracle(NamedTuple):
    """The way through a lattice that has the fewest word errors."""

    errors: int
    words: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Lattice:
    """An acyclic graph whose paths are ways through an utterance.

    State 0 is its start. States are in an order in which every arc leads to a later state; arcs are
    sorted by source. `frame` is the number of frames taken when in a state: an arc with a label
    takes one, an arc with label 0 takes none. The cost of a path is

        lm_scale * graph_cost + acoustic_scale * acoustic_cost + word_penalty * number of words

    where the final cost of its last state is one of the graph's, and `lm_scale` is of all that came
    with the graph, transitions of HMM states included.
    """

    num_frames: int
    reached_final: bool  # whether the paths end where the decoding graph may end
    frame: Ints  # (S,)
    final: Floats  # (S,) the cost of ending there; infinite where one cannot
    source: Ints  # (A,)
    target: Ints  # (A,)
    label: Ints  # (A,)
    word: Ints  # (A,)
    graph_cost: Floats  # (A,)
    acoustic_cost: Floats  # (A,) not scaled

    @property
    def num_states(self) -> int:
        """The number of states."""
        return len(self.frame)

    @property
    def num_arcs(self) -> int:
        """The number of arcs."""
        return len(self.source)

    @cached_property
    def first_arc(self) -> NDArray[np.int64]:
        """(S + 1,) where the arcs of each state begin."""
        return np.searchsorted(self.source, np.arange(self.num_states + 1))

    def arc_costs(
        self, lm_scale: float = 1.0, acoustic_scale: float = 0.1, word_penalty: float = 0.0
    ) -> Doubles:
        """Return the cost of each arc."""
        if not np.isfinite([lm_scale, acoustic_scale, word_penalty]).all():
            raise ValueError(
                f"lm_scale is {lm_scale}, acoustic_scale {acoustic_scale}, word_penalty "
                f"{word_penalty}; all must be finite"
            )
        cost = lm_scale * self.graph_cost.astype(np.float64)
        cost += acoustic_scale * self.acoustic_cost.astype(np.float64)
        if word_penalty != 0.0:
            cost += word_penalty * (self.word > 0)
        return cost

    def final_costs(self, lm_scale: float = 1.0) -> Doubles:
        """Return the cost of ending in each state."""
        final = np.full(self.num_states, np.inf)
        ends = np.isfinite(self.final)
        final[ends] = lm_scale * self.final[ends].astype(np.float64)
        return final

    def best_path(
        self, lm_scale: float = 1.0, acoustic_scale: float = 0.1, word_penalty: float = 0.0
    ) -> Path:
        """Return the path that costs least."""
        costs = self.arc_costs(lm_scale, acoustic_scale, word_penalty)
        return self.path(best_way(self.source, self.target, costs, self.final_costs(lm_scale)))

    def path(self, arcs: Sequence[int] | NDArray[np.int64]) -> Path:
        """Return the path that takes these arcs, from the start to where one may end."""
        arcs = np.asarray(arcs, dtype=np.int64)
        last = int(self.target[arcs[-1]]) if len(arcs) else 0
        labels, words = self.label[arcs], self.word[arcs]
        begins = self.frame[self.source[arcs]][words > 0]
        return Path(
            words=tuple(words[words > 0].tolist()),
            alignment=labels[labels > 0] - np.int32(1),
            graph_cost=float(self.graph_cost[arcs].sum(dtype=np.float64) + self.final[last]),
            acoustic_cost=float(self.acoustic_cost[arcs].sum(dtype=np.float64)),
            word_begin_frames=tuple(begins.tolist()),
        )

    def prune(
        self,
        beam: float,
        lm_scale: float = 1.0,
        acoustic_scale: float = 0.1,
        word_penalty: float = 0.0,
    ) -> Lattice:
        """Return a lattice of the arcs that are on a path at most `beam` worse than the best."""
        if not beam >= 0.0:
            raise ValueError(f"the beam is {beam}; it must be at least 0")
        costs = self.arc_costs(lm_scale, acoustic_scale, word_penalty)
        final = self.final_costs(lm_scale)
        through, ending, best = bound_arcs(self.source, self.target, costs, final)
        # The arcs of the best path differ from the best by roundoff, and must not be lost.
        limit = best + beam + ROUNDOFF * (1.0 + abs(best))
        return self._part(through <= limit, ending <= limit)

    def _part(self, arcs: NDArray[np.bool_], endings: NDArray[np.bool_]) -> Lattice:
        """Return a lattice of some arcs and endings, and the states that these have."""
        used = endings.copy()
        used[self.source[arcs]] = True
        used[self.target[arcs]] = True
        number = (np.cumsum(used) - 1).astype(np.int32)
        return Lattice(
            num_frames=self.num_frames,
            reached_final=self.reached_final,
            frame=self.frame[used],
            final=np.where(endings, self.final, np.float32(np.inf))[used],
            source=number[self.source[arcs]],
            target=number[self.target[arcs]],
            label=self.label[arcs],
            word=self.word[arcs],
            graph_cost=self.graph_cost[arcs],
            acoustic_cost=self.acoustic_cost[arcs],
        )

    def n_best(
        self,
        num_paths: int,
        lm_scale: float = 1.0,
        acoustic_scale: float = 0.1,
        word_penalty: float = 0.0,
    ) -> list[Path]:
        """Return the best path of each of the best `num_paths` word sequences, best first.

        There are fewer where the lattice has fewer.
        """
        costs = self.arc_costs(lm_scale, acoustic_scale, word_penalty)
        ways = find_n_best(self, num_paths, costs, self.final_costs(lm_scale))
        return [self.path(way) for way in ways]

    def oracle(self, reference: Sequence[int]) -> Oracle:
        """Return the fewest word errors (substitutions, insertions, deletions) of any path."""
        words = np.asarray(reference, dtype=np.int32)
        return Oracle(*count_oracle_errors(self, words))

    def arc_posteriors(
        self, lm_scale: float = 1.0, acoustic_scale: float = 0.1, word_penalty: float = 0.0
    ) -> Doubles:
        """Return the probability of each arc: of all paths through it, among all paths."""
        costs = self.arc_costs(lm_scale, acoustic_scale, word_penalty)
        return arc_posteriors(self.source, self.target, costs, self.final_costs(lm_scale))

    def state_posteriors(
        self, lm_scale: float = 1.0, acoustic_scale: float = 0.1, word_penalty: float = 0.0
    ) -> StatePosteriors:
        """Return the probability of each HMM state at each frame where the lattice has it."""
        posteriors = self.arc_posteriors(lm_scale, acoustic_scale, word_penalty)
        emitting = self.label > 0
        frames = self.frame[self.source[emitting]]
        return merge_by_state(frames, self.label[emitting] - np.int32(1), posteriors[emitting])
