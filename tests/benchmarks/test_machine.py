"""The facts that come with figures."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.machine import commit, facts_of_now


def test_facts_are_all_there_and_go_into_json() -> None:
    facts = facts_of_now()
    assert set(facts) >= {"date", "cpu", "cores", "caches", "memory_megabytes", "python", "torch"}
    assert set(facts) >= {"numpy", "torch_threads", "commit", "is_dirty", "load_before"}
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["memory_megabytes"] > 100
    assert len(facts["load_before"]) == 3
    assert json.loads(json.dumps(facts)) == facts


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("natgrad/a.py", "benchmarks/b.py", "benchmarks/results/step.json", "README.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_checkout_is_dirty_only_if_what_is_measured_has_changed(checkout: Path) -> None:
    revision = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout) == (revision, False)
    (checkout / "benchmarks/results/step.json").write_text("2\n")  # by the benchmark before
    (checkout / "README.md").write_text("2\n")
    assert commit(checkout) == (revision, False)
    (checkout / "natgrad/new.py").write_text("2\n")
    assert commit(checkout) == (revision, True)


def test_directory_without_git_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", os.fspath(tmp_path.parent))
    assert commit(tmp_path) == (None, None)
