"""What is released: built, installed and used where TURNWISE_RELEASE is set, for it takes a network and a minute."""

import os
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import turnwise
from scripts import release_check
from scripts.release_check import KNOWN, ROOT, Figures, Refused, check, check_contents, compared, version

needs_network = pytest.mark.skipif(not os.environ.get("TURNWISE_RELEASE"), reason="TURNWISE_RELEASE is not set")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return check(tmp_path_factory.mktemp("release"))


@needs_network
def test_what_would_be_released_is_built_installed_and_used(ours: Figures) -> None:
    assert ours.dependencies > 0


@needs_network
def test_it_brings_less_along_than_the_official_sdk(ours: Figures) -> None:
    assert compared(ours, KNOWN) == []


def test_figures_are_compared() -> None:
    assert compared(Figures("ours", 26, 20.0), KNOWN) == []
    assert compared(Figures("ours", 27, 20.0), KNOWN) == ["27 dependencies are not below 27"]
    assert compared(Figures("ours", 26, 40.0), KNOWN) == ["40.0 MB are not below 28.9 MB"]


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert version() == turnwise.__version__
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["source"] == "vcs"
    assert project["tool"]["hatch"]["build"]["hooks"]["vcs"]["version-file"] == "src/turnwise/_version.py"


def archives(folder: Path, names: list[str]) -> tuple[Path, Path]:
    """An sdist and a wheel of files that are empty."""
    (folder / "empty").touch()
    sdist, wheel = folder / f"turnwise-{version()}.tar.gz", folder / f"turnwise-{version()}-py3-none-any.whl"
    with tarfile.open(sdist, "w:gz") as tar, zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            tar.add(folder / "empty", f"turnwise-{version()}/src/{name}")
            archive.write(folder / "empty", name)
    return sdist, wheel


def test_a_wheel_that_lacks_a_module_or_has_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "src" / "turnwise"
    source.mkdir(parents=True)
    (source / "_version.py").write_text(f'__version__ = "{version()}"\n')
    (source / "server.py").touch()
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    whole = ["turnwise/_version.py", "turnwise/server.py", "turnwise/py.typed"]
    check_contents(*archives(tmp_path, whole))
    with pytest.raises(Refused, match=r"lacks turnwise/server\.py"):
        check_contents(*archives(tmp_path, ["turnwise/_version.py", "turnwise/py.typed"]))
    with pytest.raises(Refused, match=r"the wheel has tests/test_it\.py"):
        check_contents(*archives(tmp_path, [*whole, "tests/test_it.py"]))
    sdist, wheel = archives(tmp_path, whole)
    with pytest.raises(Refused, match=r"turnwise-0\.0\.tar\.gz is not of version"):
        check_contents(sdist.rename(tmp_path / "turnwise-0.0.tar.gz"), wheel)
