"""Typed configurations: a dataclass from a TOML or JSON mapping, every mistake named.

A field's annotation says what it takes: bool, int, float, str, a Literal, a tuple or list of
those, another dataclass (a table), or any of them `| None`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = ["ConfigError", "from_mapping", "read_toml", "set_key", "to_mapping"]

T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration is not what it should be; the message names the key."""


def from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str = "") -> T:
    """Make a dataclass of a mapping; what the class refuses in `__post_init__` is named too.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Training:
    ...     num_epochs: float = 5.0
    ...     method: Literal["online", "none"] = "online"
    >>> from_mapping(Training, {"num_epochs": 3}, "training")
    Training(num_epochs=3.0, method='online')
    >>> from_mapping(Training, {"num_epoch": 3}, "training")
    Traceback (most recent call last):
    natgrad.run.config.ConfigError: unknown key 'training.num_epoch': did you mean 'num_epochs'? ...
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"'{where}' must be a table of keys, but is {mapping!r}")
    annotations = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in mapping:
        if key not in fields:
            raise ConfigError(_unknown(key, list(fields), where))
    values = {}
    for name, field in fields.items():
        key = f"{where}.{name}" if where else name
        if name in mapping:
            values[name] = _convert(annotations[name], mapping[name], key)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"the key '{key}' is missing: it has no default")
    try:
        return cls(**values)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"in '{where}': {error}" if where else str(error)) from error


def _unknown(key: str, known: list[str], where: str) -> str:
    full = f"{where}.{key}" if where else key
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown key '{full}': {hint}There are {', '.join(sorted(known))}"


def _convert(annotation: Any, value: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        return from_mapping(annotation, value, key)  # type: ignore[arg-type]
    if origin in (types.UnionType, typing.Union):
        return _convert_union(arguments, value, key)
    if origin is Literal:
        if value not in arguments:
            choices = ", ".join(repr(choice) for choice in arguments)
            raise ConfigError(f"'{key}' is {value!r}, but must be one of {choices}")
        return value
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"'{key}' must be a list, but is {value!r}")
        return origin(_convert(arguments[0], item, f"{key}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"'{key}' must be a table of keys, but is {value!r}")
        return dict(value)
    return _convert_scalar(annotation, value, key)


def _convert_union(choices: tuple[Any, ...], value: Any, key: str) -> Any:
    if value is None and type(None) in choices:
        return None
    errors = []
    for choice in choices:
        if choice is not type(None):
            try:
                return _convert(choice, value, key)
            except ConfigError as error:
                errors.append(str(error))
    raise ConfigError("; or ".join(errors))


def _convert_scalar(annotation: Any, value: Any, key: str) -> Any:
    if annotation is Any:
        return value
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # 3 is a fine number of epochs
    is_bool = isinstance(value, bool)
    if not isinstance(value, annotation) or (is_bool and annotation is not bool):
        expected = "true or false" if annotation is bool else f"of type {annotation.__name__}"
        raise ConfigError(f"'{key}' must be {expected}, but is {value!r} ({type(value).__name__})")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """Return a configuration as JSON would: what `from_mapping` takes.

    >>> @dataclasses.dataclass
    ... class Network:
    ...     hidden: tuple[int, ...] = (20, 20)
    >>> to_mapping(Network())
    {'hidden': [20, 20]}
    """
    mapping: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return mapping


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; its errors name the file."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def set_key(mapping: dict[str, Any], assignment: str) -> None:
    """Set "table.key=value", as given on a command line; the value is as in TOML, or a bare word.

    >>> config = {"training": {"num_jobs": 1}}
    >>> set_key(config, "training.num_jobs=4"); set_key(config, "engine.name=slurm"); config
    {'training': {'num_jobs': 4}, 'engine': {'name': 'slurm'}}
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"expected KEY=VALUE, as in training.num_jobs=4, but got {assignment!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, last = key.strip().split(".")
    for table in tables:
        mapping = mapping.setdefault(table, {})
        if not isinstance(mapping, dict):
            raise ConfigError(f"cannot set '{key}': '{table}' is not a table of keys")
    mapping[last] = value
