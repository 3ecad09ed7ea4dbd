"""From phones to HMM states: the transducer H, as an expansion of each arc into a row of arcs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph

__all__ = ["expand_phones"]

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


def expand_phones(graph: Graph, windows: Sequence[Sequence[int]], labels: ContextLabels) -> Graph:
    """Return a graph with the labels of HMM states, each once, for one of phones in context.

    Word and cost stay on the first arc of a phone. Phones that end at one state share their last
    states, if those have equal labels: what differs only in the context is one from there on.

    Args:
        graph: its labels are places in `windows`.
        windows: for each label, what it stands for: nothing; one number, of a symbol that takes no
            time; or three: the phone before, the phone, the phone after.
        labels: of the phones' states. Those of symbols follow them: a symbol with label i has
            label len(states) + 1 + i.
    """
    is_phone = np.array([len(window) == 3 for window in windows])
    triples = np.array([window for window in windows if len(window) == 3], np.int32).reshape(-1, 3)
    rows = labels.of(*triples.T)
    row_of_label = np.cumsum(is_phone) - 1
    source = np.repeat(np.arange(graph.num_states), np.diff(graph.first_arc))
    takes_time = is_phone[graph.label]
    symbols = np.flatnonzero(~takes_time)
    symbol = graph.label[symbols]
    symbol = np.where(symbol > 0, len(labels.states) + 1 + symbol, 0)

    phone_arcs = np.flatnonzero(takes_time)
    row, end = row_of_label[graph.label[phone_arcs]], graph.target[phone_arcs].astype(np.int64)
    entered, tails, num_states = _tails(rows, row, end, graph.num_states)
    nothing = np.zeros(len(tails), np.int32)
    final = np.full(num_states, np.inf, np.float32)
    final[: graph.num_states] = graph.final
    return graph_of_arcs(
        source=np.concatenate([source[symbols], source[phone_arcs], tails[:, 0]]),
        label=np.concatenate([symbol, rows[row, 0], tails[:, 1]]),
        word=np.concatenate([graph.word[symbols], graph.word[phone_arcs], nothing]),
        weight=np.concatenate([graph.weight[symbols], graph.weight[phone_arcs], nothing]),
        target=np.concatenate([graph.target[symbols], entered, tails[:, 2]]),
        final=final,
        start=graph.start,
    )


def _tails(rows: Ints, row: Places, end: Places, num_states: int) -> tuple[Places, Places, int]:
    """Return, for arcs of rows of labels, where their first labels lead, and the arcs from there.

    The arcs (source, label, target) lead on to the states `end`; their own states are new, numbered
    from `num_states`. The last result is the number of states with them.
    """
    target, tails = end, [np.zeros((0, 3), dtype=np.int64)]
    for position in range(rows.shape[1] - 1, 0, -1):
        _, rest = np.unique(rows[:, position:], axis=0, return_inverse=True)
        has = np.flatnonzero(rows[row, position])
        keys = end[has] * len(rows) + rest.reshape(-1)[row[has]]
        _, one_of_each, state = np.unique(keys, return_index=True, return_inverse=True)
        chosen = has[one_of_each]
        sources = num_states + np.arange(len(chosen))
        tails.append(np.stack([sources, rows[row[chosen], position], target[chosen]], axis=1))
        target = target.copy()
        target[has] = num_states + state
        num_states += len(chosen)
    return target, np.concatenate(tails), num_states
