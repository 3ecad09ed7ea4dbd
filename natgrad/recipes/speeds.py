"""Copies of the training utterances at other speeds, for a network to learn from.

Whoever speaks faster, with a smaller head, is another speaker: a few hours of speech at 0.9, 1 and
1.1 of their speed teach a network more than three times as many epochs of them (Ko, Peddinti, Povey
and Khudanpur, "Audio augmentation for speech recognition", 2015). Copies have keys, speakers and
transforms of their own, and are aligned by the mixtures, which have never heard them.
"""

from __future__ import annotations

from dataclasses import replace

from natgrad.recipes.recording_stages import extract_set
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.gmm.training import GmmTrainer
from natgrad.speech.trained import Trained

__all__ = ["align_at_speed", "read_at_all_speeds"]


def align_at_speed(shop: Workshop, speed: float) -> Facts:
    """Compute the features of the training utterances at a speed, and align them."""
    found = extract_set(shop, "train", speed)
    trained = Trained.read(shop.files.gmm("sat"))
    adapted = trained.model
    assert adapted.unadapted is not None, "it was trained with speakers' transforms"
    trainer = GmmTrainer(shop.shares("train", speed), shop.lexicon, shop.workers)
    schedule = shop.config.sat.schedule
    first = trainer.align(Trained(replace(adapted, gmms=adapted.unadapted), {}), schedule)
    aligned = trainer.adapt(replace(first, model=adapted), schedule)
    aligned.write(shop.files.gmm("sat", speed))
    return {"failures": {**found.failures, **aligned.failures}}


def read_at_all_speeds(shop: Workshop) -> dict[float, Trained]:
    """Return the alignments and transforms of the training utterances at each speed."""
    speeds = (1.0, *shop.config.dnn.other_speeds)
    return {speed: Trained.read(shop.files.gmm("sat", speed)) for speed in speeds}
