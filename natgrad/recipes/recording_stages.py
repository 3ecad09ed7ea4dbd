"""What stages do with recordings: look for what is wrong with them, compute their cepstra."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from natgrad.recipes.counted_calls import CountedCalls
from natgrad.recipes.speech_files import at_speed
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.data.audio import read_audio
from natgrad.speech.data.check import check
from natgrad.speech.data.directory import DataDirectory
from natgrad.speech.data.problem import Problem
from natgrad.speech.features.extraction import Extraction, extract

__all__ = ["check_set", "extract_features", "extract_set"]

FRAMES_PER_HOUR = 360_000


def check_set(
    shop: Workshop,
    name: str,
    data: DataDirectory,
    words: Collection[str] | None,
    other: DataDirectory | None,
) -> list[Problem]:
    """Return all that is wrong with a data directory; see `natgrad.speech.data.check`."""
    with shop.progress(f"recordings: {name}", len(data)) as update:
        return check(data, words, other, CountedCalls(shop.workers, update))


def extract_features(shop: Workshop) -> Facts:
    """Compute the cepstra of all data directories; recordings that have none are in the facts."""
    facts: Facts = {}
    for name in shop.sets:
        found = extract_set(shop, name)
        hours = round(found.store.total_frames / FRAMES_PER_HOUR, 3)
        facts[name] = {"utterances": len(found.store), "hours": hours, "failures": found.failures}
    return facts


def extract_set(shop: Workshop, name: str, speed: float = 1.0) -> Extraction:
    """Compute the cepstra of one data directory, at a speed."""
    utterances = shop.data(name, speed).utterances.values()
    with shop.progress(f"features: {at_speed(name, speed)}", len(utterances)) as update:
        calls = CountedCalls(shop.workers, update, weigh=lambda batch: len(batch.recordings))
        place = shop.files.features(name, speed)
        return extract(utterances, shop.config.mfcc, place, calls, partial(read_audio, speed=speed))
