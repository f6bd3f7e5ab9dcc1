"""Servers that several files of tests share."""

from tests.unit.conftest import postgres

__all__ = ["postgres"]
