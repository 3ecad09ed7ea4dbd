from __future__ import annotations

import datetime

import pytest


@pytest.fixture(scope="session")
def now() -> datetime.datetime:
    return datetime.datetime(2025, 6, 15, 12, 30, tzinfo=datetime.UTC)
