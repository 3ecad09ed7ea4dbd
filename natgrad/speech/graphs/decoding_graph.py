"""The decoding graph: from HMM states to words, through contexts, lexicon and language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import kaldifst
import numpy as np

from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.epsilons import remove_local_epsilons
from natgrad.speech.graphs.fst import from_fst, to_fst
from natgrad.speech.graphs.grammar_fst import grammar_graph
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.graph_file import hash_of, make_once
from natgrad.speech.graphs.hmm_fst import expand_phones
from natgrad.speech.graphs.lexicon_fst import lexicon_graph
from natgrad.speech.graphs.self_loops import TransitionCosts, add_self_loops
from natgrad.speech.hmm import ContextTree, HmmStates
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.lm.ngram import BEGIN, END, NgramModel
from natgrad.speech.symbols import Symbols

__all__ = ["GraphError", "decoding_graph", "decoding_graph_file"]

MOST_STATES = 50_000_000  # beyond that, a determinization goes on until the memory is full
ALGORITHM = 2  # is part of a cached graph's name: count it up when graphs come out otherwise


class GraphError(ValueError):
    """A decoding graph cannot be made of these parts."""


def decoding_graph(
    lexicon: Lexicon,
    grammar: NgramModel,
    words: Symbols,
    tree: ContextTree,
    states: HmmStates,
    *,
    self_loop_scale: float = 0.1,
    most_states: int = MOST_STATES,
) -> Graph:
    """Return the graph of all that a lexicon and a language model allow to say.

    It is det(H o C o min(det(L o G))): L has the words' pronunciations and silences, G the grammar,
    C puts each phone between its neighbours, across words too, and H gives it HMM states, which
    phones share where they can (minimizing again would save 1 % of the states for a fifth of the
    time). Symbols that tell homophones apart and stand for backing off are in it until all is
    determinized; then come self-loops. Determinization is in the log semiring, which keeps
    probabilities as early in the graph as they can be known: decoding needs no look-ahead.

    With a right context, a phone is known when the next one is: then a word can be on an arc of the
    last phone before it. Costs are exact to about 0.0005 per arc.

    Args:
        lexicon: has all words of the grammar. Words that only the lexicon has do not occur.
        grammar: the language model; `restricted_to` leaves words out of one.
        words: the numbers of words.
        tree: the distributions of phones in context.
        states: made of the tree; their probabilities of staying are those of the self-loops.
        self_loop_scale: how much the costs of staying in a state and leaving it count.
        most_states: a determinization that needs more is given up.

    Raises:
        GraphError: words without a pronunciation (some are named), a grammar that accepts nothing,
            too many states.
    """
    _check_words(grammar, lexicon)
    labels = ContextLabels(tree, states)
    costs = TransitionCosts.of(states, self_loop_scale)
    return _compose(lexicon, grammar, words, labels, costs, most_states)


def decoding_graph_file(
    directory: Path | str,
    lexicon: Lexicon,
    grammar: NgramModel,
    words: Symbols,
    tree: ContextTree,
    states: HmmStates,
    *,
    self_loop_scale: float = 0.1,
    most_states: int = MOST_STATES,
) -> Path:
    """Return the file of a decoding graph, which is made if it is not in the directory yet.

    It is named by a hash of all that it depends on. See `decoding_graph`, and `read_graph`.
    """
    _check_words(grammar, lexicon)
    labels = ContextLabels(tree, states)
    costs = TransitionCosts.of(states, self_loop_scale)
    key = hash_of(lexicon, grammar, words, labels, costs, ALGORITHM)
    make = partial(_compose, lexicon, grammar, words, labels, costs, most_states)
    return make_once(Path(directory), key, make)


def _check_words(grammar: NgramModel, lexicon: Lexicon) -> None:
    missing = [word for word in _words_of(grammar) if word not in lexicon]
    if missing:
        raise GraphError(
            f"{len(missing)} words of the language model have no pronunciation: "
            f"{' '.join(missing[:10])}{' ...' if len(missing) > 10 else ''}. Add them to the "
            "lexicon, or leave them out of the model by restricted_to(model, lexicon.words)"
        )


def _words_of(grammar: NgramModel) -> list[str]:
    return [word for word in grammar.vocabulary if word not in (BEGIN, END)]


def _compose(
    lexicon: Lexicon,
    grammar: NgramModel,
    words: Symbols,
    labels: ContextLabels,
    costs: TransitionCosts,
    most_states: int,
) -> Graph:
    phones = labels.states.phones
    sentences = grammar_graph(grammar, words)
    pronunciations, num_symbols = lexicon_graph(lexicon, words, phones, _words_of(grammar))
    fst = _compose_with_grammar(pronunciations, sentences)
    _determinize(fst, most_states, "lexicon and grammar")
    kaldifst.minimize_encoded(fst)
    symbols = range(len(phones), len(phones) + num_symbols)
    in_context, windows = _put_in_context(fst, symbols, labels.tree.context_width)
    del fst  # before the largest is made
    fst = to_fst(expand_phones(in_context, windows, labels))
    del in_context
    _determinize(fst, most_states, "the states of phones in context")
    graph = from_fst(fst)
    del fst
    without_symbols = np.where(graph.label > len(labels.states), 0, graph.label)
    graph = remove_local_epsilons(replace(graph, label=without_symbols))
    return add_self_loops(graph, costs)


def _compose_with_grammar(lexicon: Graph, grammar: Graph) -> kaldifst.StdVectorFst:
    left, right = to_fst(lexicon), to_fst(grammar)
    kaldifst.arcsort(left, "olabel")
    kaldifst.arcsort(right, "ilabel")
    composed = kaldifst.StdVectorFst(kaldifst.compose(left, right))
    if not composed.num_states:
        raise GraphError("the language model accepts no sentence: it has no way from <s> to </s>")
    return composed


def _determinize(fst: kaldifst.StdVectorFst, most_states: int, what: str) -> None:
    """Determinize in place, in the log semiring, and remove epsilons."""
    try:
        gave_up = kaldifst.determinize_star(fst, max_states=most_states, use_log=True)
    except RuntimeError as error:
        if "aborted since passed" not in str(error):
            raise
        gave_up = True
    if gave_up:
        raise GraphError(
            f"determinizing {what} needs more than {most_states} states: prune the language model, "
            "leave out words or pronunciations, or, if there is memory, raise most_states"
        )


def _put_in_context(
    fst: kaldifst.StdVectorFst, symbols: Sequence[int], context_width: int
) -> tuple[Graph, Sequence[Sequence[int]]]:
    """Return the graph with labels that stand for the windows beside it; see expand_phones."""
    if context_width == 1:
        phones: list[Sequence[int]] = [(0, phone, 0) for phone in range(1, symbols[0])]
        return from_fst(fst), [(), *phones, *([symbol] for symbol in symbols)]
    in_context, windows = kaldifst.compose_context(list(symbols), context_width, 1, fst)
    return from_fst(in_context), windows
