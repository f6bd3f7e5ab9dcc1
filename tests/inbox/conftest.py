"""Servers that several files of tests share."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL of our own."""
    from tests.unit.test_flow_stores import Postgres, temporary_home

    with temporary_home() as home:
        server = Postgres(home)
        yield server
        server.stop()
