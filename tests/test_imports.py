"""Imports point one way: each part of natgrad imports what the table allows, and nothing else.

cli -> recipes -> { speech, nn, optim, data, parallel -> run } -> torch, numpy
cli -> report, serve
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "natgrad"

# What each part may import beside itself and the standard library. "" is natgrad/__init__.py;
# "natgrad.x" is the part x, every other name a package from outside; "*" is any from outside.
ALLOWED: dict[str, set[str]] = {
    "": {"natgrad.optim", "natgrad.version"},
    "__main__": {"natgrad.cli"},
    "version": set(),
    "atomic": set(),
    "freed_memory": set(),
    "machine": {"torch", "natgrad.version"},
    "optim": {"torch"},
    "nn": {"torch"},
    "data": {"torch", "numpy", "natgrad.atomic"},
    "parallel": {"*", "natgrad.run"},  # engines bring their own clients: ray, for one
    "run": {"torch", "safetensors", "natgrad.atomic"},
    "speech": {
        "torch",
        "numpy",
        "kaldi_native_fbank",
        "kaldialign",
        "kaldifst",
        "kaldiio",
        "lhotse",
        "numba",
        "soundfile",
        "soxr",
        "natgrad.atomic",
        "natgrad.run",  # its model files
    },
    "recipes": {
        "*",
        "natgrad.speech",
        "natgrad.nn",
        "natgrad.optim",
        "natgrad.data",
        "natgrad.parallel",
        "natgrad.run",
        "natgrad.atomic",
        "natgrad.freed_memory",
        "natgrad.machine",
        "natgrad.version",
    },
    "report": {"*", "natgrad.run", "natgrad.atomic"},
    "serve": {"*", "natgrad.speech", "natgrad.nn", "natgrad.run"},
    "cli": {"*", "natgrad.recipes", "natgrad.report", "natgrad.serve", "natgrad.version"},
}
PUBLIC_NAMES_ARE_IN = (
    "optim"  # `from natgrad import NGSGD` imports what natgrad/__init__.py takes from there
)


def part_of(module: str) -> str:
    """Return the part that a module of natgrad belongs to: its second name."""
    return module.split(".")[1] if "." in module else ""


def imported_modules(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Yield the full names of the modules that a source imports, wherever it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = module.split(".")[: None if is_package else -1]
                parents = parents[: len(parents) - (node.level - 1)]
                origin = ".".join([*parents, *([origin] if origin else [])])
            if origin == "natgrad":
                yield from (f"natgrad.{alias.name}" for alias in node.names)
            else:
                yield origin
        elif isinstance(node, ast.Call) and _is_import_by_name(node.func):
            match node.args:  # only a literal can be judged, and nothing else is needed
                case [ast.Constant(value=str() as name), *_]:
                    yield name
                case _:
                    yield "a name that is computed"


def _is_import_by_name(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def forbidden_imports(source: str, module: str, is_package: bool = False) -> list[str]:
    """Return what a module of natgrad imports and must not, in words."""
    part = part_of(module)
    if part not in ALLOWED:
        return [
            f"{module}: natgrad.{part} is new: add it to the table ALLOWED in {Path(__file__).name}"
        ]
    found = []
    for imported in imported_modules(source, module, is_package):
        top = imported.split(".")[0]
        if top == "natgrad":
            origin = part_of(imported)
            if origin not in ALLOWED and not (PACKAGE / origin).exists():
                origin = PUBLIC_NAMES_ARE_IN if origin else ""
            allowed = origin == part or f"natgrad.{origin}" in ALLOWED[part]
        else:
            is_outside = top not in sys.stdlib_module_names
            allowed = not is_outside or not {top, "*"}.isdisjoint(ALLOWED[part])
        if not allowed:
            permitted = ", ".join(sorted(ALLOWED[part])) or "nothing"
            found.append(
                f"{module} imports {imported}, but natgrad.{part} may import only {permitted}"
            )
    return found


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(PACKAGE)) for file in FILES])
def test_module_imports_only_what_its_part_may(file: Path) -> None:
    is_package = file.name == "__init__.py"
    assert forbidden_imports(file.read_text(), module_of(file), is_package) == []


def test_every_file_of_the_package_is_looked_at() -> None:
    modules = {module_of(file) for file in FILES}
    assert {"natgrad", "natgrad.optim", "natgrad.optim.ngsgd", "natgrad.nn.layers"} <= modules


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("natgrad.optim.ngsgd", "import numpy"),
        ("natgrad.optim.ngsgd", "import os, numpy.linalg as la"),
        ("natgrad.optim.ngsgd", "import natgrad.nn"),
        ("natgrad.optim.ngsgd", "from natgrad.nn import layers"),
        ("natgrad.optim.ngsgd", "from natgrad import nn"),
        ("natgrad.optim.ngsgd", "from .. import nn"),
        ("natgrad.optim.ngsgd", "from ..nn.layers import PNorm"),
        ("natgrad.optim.deep.er", "from ...nn import layers"),
        (
            "natgrad.optim.ngsgd",
            "import torch\ndef f():\n    if True:\n        from natgrad import speech",
        ),
        ("natgrad.optim.ngsgd", "try:\n    import scipy\nexcept ImportError:\n    pass"),
        ("natgrad.optim.ngsgd", "import typing\nif typing.TYPE_CHECKING:\n    import natgrad.run"),
        ("natgrad.optim.ngsgd", "import importlib\nimportlib.import_module('natgrad.nn')"),
        ("natgrad.optim.ngsgd", "import importlib\nimportlib.import_module(f'natgrad.{1}')"),
        ("natgrad.optim.ngsgd", "nn = __import__('natgrad.nn')"),
        ("natgrad.nn.network", "from natgrad.optim import NGSGD"),
        ("natgrad.nn.network", "from natgrad import NGSGD"),
        ("natgrad.nn.network", "import natgrad"),
        ("natgrad.nn.network", "import sklearn"),
        ("natgrad.data.blocks", "import natgrad.parallel.job"),
        ("natgrad.parallel.job", "from natgrad.optim.ngsgd import NGSGD"),
        ("natgrad.parallel.job", "from ..data import blocks"),
        ("natgrad.speech.decode", "from natgrad.nn import build"),
        ("natgrad.run.events", "from natgrad.parallel import outer"),
        ("natgrad.report.page", "from natgrad.recipes import demo"),
        ("natgrad.recipes.demo", "import natgrad.cli"),
        ("natgrad.cli", "from natgrad.optim import NGSGD"),
        ("natgrad.cli", "from . import speech"),
        ("natgrad.version", "import torch"),
    ],
)
def test_checker_finds_a_forbidden_import(module: str, source: str) -> None:
    assert len(forbidden_imports(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("natgrad.optim.ngsgd", "import math, torch.nn.functional as F\nfrom torch import Tensor"),
        (
            "natgrad.optim.ngsgd",
            "from natgrad.optim import taps\nfrom . import rows\nfrom .rows import Rows",
        ),
        (
            "natgrad.parallel.outer",
            "from natgrad.run import events\nfrom ..run import config\nimport ray",
        ),
        ("natgrad.recipes.demo", "from natgrad import NGSGD, nn, speech\nimport sklearn.datasets"),
        ("natgrad.cli", "from natgrad import recipes, report, serve"),
        ("natgrad.report.page", "from natgrad.run import events\nimport matplotlib"),
    ],
)
def test_checker_lets_an_allowed_import_pass(module: str, source: str) -> None:
    assert forbidden_imports(source, module) == []


def test_relative_import_in_a_package_counts_from_itself() -> None:
    assert forbidden_imports("from . import rows", "natgrad.optim", is_package=True) == []
    assert forbidden_imports("from .. import nn", "natgrad.optim", is_package=True)
    assert forbidden_imports("from .optim import NGSGD", "natgrad", is_package=True) == []
    assert forbidden_imports("from .nn import build", "natgrad", is_package=True)


def test_unknown_part_fails_until_it_is_in_the_table() -> None:
    (message,) = forbidden_imports("import torch", "natgrad.vision.layers")
    assert "natgrad.vision is new: add it to the table" in message
    (message,) = forbidden_imports("", "natgrad.vision", is_package=True)
    assert "natgrad.vision is new" in message


def test_parts_never_import_one_another() -> None:
    """The rule of the design that the table must not lose."""
    parts = {"optim", "nn", "data", "parallel", "speech"}
    for part in parts:
        assert {f"natgrad.{other}" for other in parts} & ALLOWED[part] == set()
    assert ALLOWED["optim"] == ALLOWED["nn"] == {"torch"}
