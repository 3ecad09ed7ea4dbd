"""Stages that recognise utterances and count the errors."""

from __future__ import annotations

import shutil
from pathlib import Path

from natgrad.recipes.dnn_stages import network_scorer
from natgrad.recipes.outcome import Outcome, score_settings
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Scorer, over_shares
from natgrad.speech.graphs.decoding_graph import decoding_graph_file
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.lm.arpa import read_arpa
from natgrad.speech.recognition import (
    Pass,
    RecognisedShare,
    recognise,
    recognise_by_speaker,
)
from natgrad.speech.trained import MODEL, TRANSFORMS, read_transforms, write_transforms

__all__ = ["decode_dnn", "decode_gmm", "recognise_with_network"]


def decode_gmm(shop: Workshop, name: str) -> Facts:
    """Recognise with a GMM-HMM: if it is speaker-adaptive, in passes, of which the first counts
    as the system "NAME-unadapted", and the last as "NAME".
    """
    model = AcousticModel.read(shop.files.gmm(name) / MODEL)
    decoding = shop.config.decoding
    searches = [decoding.first, *(decoding.next if model.unadapted is not None else ())]
    graph = _graph(shop, model)
    passes = [Pass(graph, search, decoding.settings) for search in searches]
    for system in (f"{name}-unadapted", name):  # of other settings, with other passes
        for where in shop.decoded_sets:
            shutil.rmtree(shop.files.decoded(system, where), ignore_errors=True)
    systems = [name] if len(passes) == 1 else [f"{name}-unadapted", name]
    found: dict[str, dict[str, RecognisedShare]] = {system: {} for system in systems}
    for where in shop.decoded_sets:
        shares = shop.shares(where)
        with shop.progress(f"{name}: {where}", sum(s.num_frames for s in shares)) as update:
            parts = over_shares(
                shop.workers, recognise_by_speaker, shares, model, passes, on_done=update
            )
        found[systems[0]][where] = RecognisedShare.total(each[0] for each, _ in parts)
        found[systems[-1]][where] = RecognisedShare.total(each[-1] for each, _ in parts)
        transforms = {speaker: each for _, of_share in parts for speaker, each in of_share.items()}
        if transforms:
            path = shop.files.decoded(name, where)
            path.mkdir(parents=True, exist_ok=True)
            write_transforms(path / TRANSFORMS, transforms)
    return {
        system: _outcome(shop, found[system]).write(shop.files.decoded(system, shop.config.report))
        for system in systems
    }


def decode_dnn(shop: Workshop) -> Facts:
    """Recognise with the network."""
    scorer = network_scorer(shop, shop.config.dnn.num_realignments)
    outcome = recognise_with_network(shop, scorer)
    return {"dnn": outcome.write(shop.files.decoded("dnn", shop.config.report))}


def recognise_with_network(shop: Workshop, scorer: Scorer, name: str = "dnn") -> Outcome:
    """Recognise on features that the GMM-HMM's speaker transforms made, and count the errors."""
    model = AcousticModel.read(shop.files.gmm("sat") / MODEL)
    one_pass = Pass(_graph(shop, model), shop.config.dnn.decoder, shop.config.decoding.settings)
    found = {}
    for where in shop.decoded_sets:
        shares = shop.shares(where)
        transforms = read_transforms(shop.files.decoded("sat", where) / TRANSFORMS)
        with shop.progress(f"{name}: {where}", sum(s.num_frames for s in shares)) as update:
            arguments = (model.front_end, scorer, model.states.pdf_of_label, one_pass, transforms)
            parts = over_shares(shop.workers, recognise, shares, *arguments, on_done=update)
        found[where] = RecognisedShare.total(parts)
    return _outcome(shop, found)


def _graph(shop: Workshop, model: AcousticModel) -> Path:
    lexicon = shop.lexicon
    grammar = read_arpa(shop.files.language_model)
    words = word_symbols(lexicon)
    return decoding_graph_file(shop.files.graphs, lexicon, grammar, words, model.tree, model.states)


def _outcome(shop: Workshop, found: dict[str, RecognisedShare]) -> Outcome:
    config = shop.config
    return score_settings(
        shop.data(config.tune),
        shop.data(config.report),
        found[config.tune],
        found[config.report],
        word_symbols(shop.lexicon),
        is_same_set=config.tune == config.report,
    )
