from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from natgrad.recipes.an4 import an4_config
from natgrad.recipes.recording_stages import check_set, extract_set
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Workshop
from natgrad.speech.data.directory import DataDirectory, Utterance
from tests.speech.recordings import babble, write_recording


class Bars:
    """Progress bars, of which all that can be seen afterwards is how far they came."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: Counter[str] = Counter()

    @contextmanager
    def __call__(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
        self.totals[name] = total
        yield lambda more: self.done.update({name: more})


@pytest.mark.parametrize("engine", [EngineConfig("inline"), EngineConfig("local", num_workers=2)])
def test_bars_come_to_their_ends_and_a_broken_recording_is_told(
    tmp_path: Path, engine: EngineConfig
) -> None:
    bars = Bars()
    shop = Workshop(an4_config(), SpeechFiles(tmp_path), engine, bars)
    paths = [write_recording(tmp_path / f"{number}.wav", babble(0.5)) for number in range(4)]
    paths[2].write_bytes(b"no sound")
    data = DataDirectory.of(
        Utterance(f"a-{number}", "a", path, text=("YES",)) for number, path in enumerate(paths)
    )
    data.write(shop.files.data("train"))
    try:
        problems = check_set(shop, "train", data, ["YES"], None)
        usual, fast = (extract_set(shop, "train", speed) for speed in (1.0, 1.1))
    finally:
        shop.close()
    assert [problem.kind for problem in problems] == ["unreadable audio"]
    assert list(usual.failures) == ["a-2"]
    assert list(fast.failures) == ["a-2-1.1"]
    assert fast.store.num_frames("a-0-1.1") < usual.store.num_frames("a-0")
    assert list(bars.totals) == ["recordings: train", "features: train", "features: train-1.1"]
    assert bars.done == bars.totals
    assert set(bars.totals.values()) == {4}
