"""The words that a trained network recognises, against those of another."""

from __future__ import annotations

from pathlib import Path

from natgrad.data import open_examples
from natgrad.recipes.decode_stages import recognise_with_network
from natgrad.recipes.dnn import NetworkScorer, estimate_priors
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.reproduce.finished_recipe import FinishedRecipe
from natgrad.recipes.reproduce.speech_runs import ENGINE
from natgrad.speech.score import compare, read_hypotheses, score

__all__ = ["recognise_words"]

PRIORS = "priors.safetensors"
WORDS = "words"


def recognise_words(
    recipe: FinishedRecipe, bench: Bench, model: Path, examples: Path, reference: Path | None
) -> Found:
    """Recognise the recipe's test set with a network, on the features of its GMM-HMM.

    `reference` is the directory of another such measurement, on whose words utterances are drawn
    again together with these: `better` is the share of draws in which these have fewer errors.
    """
    priors = bench.directory / PRIORS
    estimate_priors(model, open_examples(examples), priors)
    context = recipe.config.dnn.context
    with recipe.opened(bench.progress, ENGINE) as shop:
        scorer = NetworkScorer(model, priors, context, context)
        outcome = recognise_with_network(shop, scorer, "network")
    found: Found = dict(outcome.write(bench.directory / WORDS))
    if reference is not None:
        said = outcome.scored.references
        other = score(said, read_hypotheses(reference / WORDS / "text"))
        found["better"] = compare(other, outcome.scored).probability_second_is_better
    return found
