from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from natgrad.run.config import ConfigError, from_mapping, read_toml, set_key, to_mapping


@dataclass(frozen=True)
class Inner:
    count: int = 1
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    limit: float | None = None
    widths: tuple[int | tuple[int, ...], ...] = ()
    flag: bool = False
    free: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}, but must be at least 1")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = Inner()


def test_mapping_goes_there_and_back() -> None:
    inner = {
        "count": 2,
        "rate": 1,
        "kind": "b",
        "limit": 3,
        "widths": [10, [20, 5]],
        "flag": True,
        "free": {"x": [1]},
    }
    config = from_mapping(Outer, {"name": "run", "inner": inner})
    assert config == Outer("run", Inner(2, 1.0, "b", 3.0, (10, (20, 5)), True, {"x": [1]}))
    assert from_mapping(Outer, to_mapping(config)) == config


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "the key 'name' is missing"),
        ({"nam": "x"}, "unknown key 'nam': did you mean 'name'"),
        ({"name": "x", "inner": {"zzz": 1}}, "unknown key 'inner.zzz': There are count, "),
        ({"name": "x", "inner": 3}, "'inner' must be a table of keys, but is 3"),
        ({"name": 1}, r"'name' must be of type str, but is 1 \(int\)"),
        ({"name": "x", "inner": {"count": 1.5}}, "'inner.count' must be of type int, but is 1.5"),
        ({"name": "x", "inner": {"count": True}}, "'inner.count' must be of type int, but is True"),
        ({"name": "x", "inner": {"rate": "1"}}, "'inner.rate' must be of type float"),
        (
            {"name": "x", "inner": {"flag": 1}},
            r"'inner.flag' must be true or false, but is 1 \(int\)",
        ),
        ({"name": "x", "inner": {"kind": "c"}}, "'inner.kind' is 'c', but must be one of 'a', 'b'"),
        ({"name": "x", "inner": {"limit": "c"}}, "'inner.limit' must be of type float"),
        ({"name": "x", "inner": {"widths": 3}}, "'inner.widths' must be a list, but is 3"),
        ({"name": "x", "inner": {"widths": [1, ["y"]]}}, r"'inner.widths\[1\]\[0\]' must be"),
        ({"name": "x", "inner": {"free": 3}}, "'inner.free' must be a table of keys"),
        ({"name": "x", "inner": {"count": 0}}, "in 'inner': count is 0, but must be at least 1"),
    ],
)
def test_mistake_is_named(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(Outer, mapping)


def test_toml_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no configuration .*absent\.toml"):
        read_toml(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[run\n")
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML: .*line 1"):
        read_toml(tmp_path / "bad.toml")


def test_key_is_set_from_the_command_line() -> None:
    mapping: dict[str, Any] = {"a": {"b": 1}, "c": 2}
    for assignment in ("a.b=2.5", "a.new=[1, 2]", "d.e.f=word", "g='1'"):
        set_key(mapping, assignment)
    assert mapping == {"a": {"b": 2.5, "new": [1, 2]}, "c": 2, "d": {"e": {"f": "word"}}, "g": "1"}
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        set_key(mapping, "a.b")
    with pytest.raises(ConfigError, match="'c' is not a table"):
        set_key(mapping, "c.d=1")
