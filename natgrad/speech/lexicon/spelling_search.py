"""The search for the most likely sounds of the letters of a word."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.lexicon.sequence_model import SequenceModel

__all__ = ["search_sounds"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def _follow(model: SequenceModel, state: int, item: int) -> tuple[float, int]:
    """The log-probability of an item at a state, and the state after it."""
    total = 0.0
    while True:
        low, end = model.first_arc[state], model.first_arc[state + 1]
        high = end
        while low < high:
            middle = (low + high) // 2
            if model.item[middle] < item:
                low = middle + 1
            else:
                high = middle
        if low < end and model.item[low] == item:
            return total + model.log_prob[low], model.target[low]
        total += model.backoff[state]
        state = model.shorter[state]


@njit(cache=True)
def _merge(group: NDArray[np.uint64], score: Floats) -> tuple[Longs, Floats]:
    """Where the best of each group is, best group first; and the summed scores, in that order."""
    order = np.argsort(group, kind="mergesort")
    best = np.empty(len(order), np.int64)
    total = np.empty(len(order), np.float64)
    count = 0
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and group[order[end]] == group[order[begin]]:
            end += 1
        top = order[begin]
        for k in range(begin + 1, end):
            if score[order[k]] > score[top]:
                top = order[k]
        added = 0.0
        for k in range(begin, end):
            added += np.exp(score[order[k]] - score[top])
        best[count], total[count] = top, score[top] + np.log(added)
        count += 1
        begin = end
    by_total = np.argsort(-total[:count], kind="mergesort")
    return best[by_total], total[by_total]


@njit(cache=True)
def search_sounds(
    candidates: Ints,
    candidate_first: Ints,
    sounds_of: Ints,
    model: SequenceModel,
    width: int,
    beam: float,
) -> tuple[Floats, Longs]:
    """Find the most likely sounds of a word, letter by letter in the order of the model.

    The graphones of letter i are candidates[candidate_first[i]] to before that of i + 1, and
    graphone g has the sounds sounds_of[g] (-1 where there is none), as the word is read by the
    model. At most `width` hypotheses are kept after each letter, none worse than the best by more
    than `beam`. Those with the same sounds and state are one, with the sum of their probabilities.

    Returns:
        Log-probabilities, best first; and rows of graphones, one a letter.
    """
    num_letters = len(candidate_first) - 1
    parents = np.full((num_letters, width), -1, np.int64)
    graphones = np.full((num_letters, width), -1, np.int64)
    state = np.full(1, model.start, np.int64)
    score = np.zeros(1, np.float64)
    said = np.ones(1, np.uint64)  # a hash of the sounds so far
    for i in range(num_letters):
        options = candidates[candidate_first[i] : candidate_first[i + 1]]
        size = len(state) * len(options)
        new_state, new_score = np.empty(size, np.int64), np.empty(size, np.float64)
        new_said = np.empty(size, np.uint64)
        for h in range(len(state)):
            for c in range(len(options)):
                new = h * len(options) + c
                log, new_state[new] = _follow(model, state[h], options[c])
                new_score[new] = score[h] + log
                code = said[h]
                for sound in sounds_of[options[c]]:
                    if sound >= 0:
                        code = (code ^ np.uint64(sound + 1)) * HASH_FACTOR
                        code ^= code >> np.uint64(29)
                new_said[new] = code
        kept, totals = _merge((new_said ^ new_state.astype(np.uint64)) * HASH_FACTOR, new_score)
        count = 0
        while count < min(width, len(kept)) and totals[count] >= totals[0] - beam:
            count += 1
        kept = kept[:count]
        state, score, said = new_state[kept], totals[:count].copy(), new_said[kept]
        parents[i, :count] = kept // len(options)
        graphones[i, :count] = options[kept % len(options)]
    for h in range(len(state)):
        score[h] += _follow(model, state[h], model.num_items - 1)[0]
    kept, totals = _merge(said, score)
    return totals, _trace_back(parents, graphones, kept)


@njit(cache=True)
def _trace_back(parents: Longs, graphones: Longs, last: Longs) -> Longs:
    rows = np.empty((len(last), len(parents)), np.int64)
    for row in range(len(last)):
        h = last[row]
        for i in range(len(parents) - 1, -1, -1):
            rows[row, i] = graphones[i, h]
            h = parents[i, h]
    return rows
