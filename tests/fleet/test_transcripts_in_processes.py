"""Transcripts of tests that several processes run."""

from pathlib import Path

from tests.examples.test_testing import check_names


def test_every_test_has_transcripts_of_its_own(tmp_path: Path) -> None:
    check_names(tmp_path, "-n", "2")
