"""Servers that samples need."""

from tests.unit.conftest import postgres

__all__ = ["postgres"]
