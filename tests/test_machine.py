"""What the machine is, as it is told beside figures."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from natgrad import machine
from natgrad.machine import caches, cpu_model, describe_machine, machine_facts


def test_facts_go_into_json() -> None:
    facts = machine_facts()
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["memory_megabytes"] > 100
    assert json.loads(json.dumps(facts)) == facts


def test_description_has_the_machine_and_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "cpu": "Abacus",
        "cores": 2,
        "memory_megabytes": 24_400,
        "python": "3.11.7",
        "torch": "2.6.0",
        "torch_threads": 1,
        "natgrad": "0.1.0",
    }
    monkeypatch.setattr(machine, "machine_facts", lambda: facts)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert describe_machine() == (
        "Abacus, 2 cores, 24 GB; Linux, Python 3.11.7, torch 2.6.0 (1 threads), natgrad 0.1.0"
    )


def test_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(machine, "version", version)
    assert machine_facts()["numba"] is None


def test_processor_is_named_by_the_system(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("vendor_id : X\nmodel name\t: Abacus 9000: the fast one\nmodel name\t: other\n")
    assert cpu_model(file) == "Abacus 9000: the fast one"
    assert cpu_model(tmp_path / "none")


def test_generations_of_one_processor_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Abacus\n\nmodel\t\t: 3\n")
    assert cpu_model(file) == "Abacus (family 26, model 2)"


def test_caches_are_those_of_the_first_core(tmp_path: Path) -> None:
    for index, fields in enumerate([("1", "Data", "32K"), ("3", "Unified", "32768K")]):
        place = tmp_path / f"index{index}"
        place.mkdir()
        for name, value in zip(("level", "type", "size"), fields, strict=True):
            (place / name).write_text(f"{value}\n")
    assert caches(tmp_path) == {"L1 Data": "32K", "L3 Unified": "32768K"}
    assert caches(tmp_path / "none") == {}
