"""Parts of a corpus that can be compared: halves without a common speaker, and fair samples."""

from __future__ import annotations

from collections.abc import Mapping

from natgrad.speech.data.directory import DataDirectory

__all__ = ["halve_by_speaker", "sample_evenly"]


def halve_by_speaker(
    data: DataDirectory, seconds: Mapping[str, float]
) -> tuple[DataDirectory, DataDirectory]:
    """Part the speakers in two, so that the halves have as many of each gender and last as long.

    The speakers of a gender are taken two by two, the longest first, and one of the two goes to
    each half: the longer one to where there is less so far. Nothing is drawn at random.

    Args:
        data: the utterances.
        seconds: how long each utterance lasts, by its key.
    """
    speakers = data.speakers
    length = {name: sum(seconds[key] for key in keys) for name, keys in speakers.items()}
    halves: tuple[list[str], list[str]] = ([], [])
    for gender in sorted({data.genders.get(name, "") for name in speakers}):
        names = [name for name in speakers if data.genders.get(name, "") == gender]
        names.sort(key=lambda name: (-length[name], name))
        for index in range(0, len(names), 2):
            totals = [sum(length[name] for name in half) for half in halves]
            shorter = int(totals[1] < totals[0])
            for place, name in enumerate(names[index : index + 2]):
                halves[shorter ^ place].append(name)
    one, two = (data.subset(key for name in half for key in speakers[name]) for half in halves)
    return one, two


def sample_evenly(
    data: DataDirectory, seconds: Mapping[str, float], wanted_seconds: float
) -> DataDirectory:
    """Return utterances that last about so long in all: the same share of every speaker's.

    Of each speaker, in the order of their keys, an utterance is taken whenever those taken last
    less than their share of those passed: all chapters are in it, and nothing is drawn at random.
    """
    total = sum(seconds[key] for key in data.utterances)
    share = min(1.0, wanted_seconds / total) if total > 0 else 1.0
    keys = []
    for names in data.speakers.values():
        passed = taken = 0.0
        for key in names:
            passed += seconds[key]
            if taken + seconds[key] / 2 <= share * passed:
                taken += seconds[key]
                keys.append(key)
    return data.subset(keys)
