"""`turnwise new`: the project that it makes passes its own test, and can be called."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_cli_call import PATIENCE, PYTHONPATH, Commands, commands


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands({}, tmp_path_factory.mktemp("new")) as begun:
        yield begun


@pytest.fixture
def here(origin: Commands, tmp_path: Path) -> Commands:
    return origin._replace(folder=tmp_path)


def test_a_new_project_passes_its_own_test_and_answers(here: Commands) -> None:
    (made,) = here.run(["new", "city-guide"])
    assert (made.code, made.out) == (0, "")
    assert made.err.splitlines()[1:] == [
        "cd city-guide",
        "pip install pytest",
        "python -m pytest",
        "turnwise dev city_guide:server",
    ]
    assert "\n    python -m pytest\n" in (here.folder / "city-guide/README.md").read_text()
    project = here.folder / "city-guide"
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "2 passed" in checked.stdout, checked.stdout + checked.stderr
    with here._replace(folder=project).terminal("call", "city_guide.py", "greet", "city=Ulm") as terminal:
        assert "Who is visiting Ulm?" in terminal.answers("value", "Ada")
        assert terminal.ended().out.endswith("Hello Ada, welcome to Ulm!\n")


def test_a_new_project_is_built_without_its_test(here: Commands) -> None:
    pytest.importorskip("setuptools")
    here.run(["new", "city-guide"])
    command = [sys.executable, "-c", "from setuptools import setup; setup()", "build_py", "--build-lib", "built"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    built = subprocess.run(command, cwd=here.folder / "city-guide", timeout=PATIENCE, check=False, **pipes)
    assert built.returncode == 0, built.stdout
    assert [path.name for path in (here.folder / "city-guide/built").iterdir()] == ["city_guide.py"]


def test_a_project_is_not_made_over_another_nor_under_an_odd_name(here: Commands) -> None:
    (here.folder / "shop").mkdir()
    there, *odd = here.run(["new", "shop"], *(["new", name] for name in ("7 shops", "../shop", "shops-", "Shops_")))
    assert there == (1, "", "shop is there already\n")
    assert [told.code for told in odd] == [2] * 4
    assert all("begins with a letter and ends with a letter or a digit" in told.err for told in odd)
    assert [path.name for path in here.folder.iterdir() if path.is_dir()] == ["shop"]


def test_a_name_that_python_has_a_use_for_gets_a_module_of_another_name(here: Commands) -> None:
    names = ["class", "asyncio", "turnwise", "pytest", "Test"]
    (here.folder / "ada.json").write_text('{"visitor": "Ada"}')
    for name, made in zip(names, here.run(*(["new", name] for name in names)), strict=True):
        module = f"{name.lower()}_server"
        assert made.code == 0
        assert made.err.splitlines()[-1] == f"turnwise dev {module}:server"
        assert (here.folder / name / f"test_{module}.py").read_text().count(f"from {module} import server") == 1
        project = tomllib.loads((here.folder / name / "pyproject.toml").read_text())
        assert project["project"]["name"] == module  # A project of the name `turnwise` would need itself.
        assert project["tool"]["setuptools"]["py-modules"] == [module]
        call = ["call", f"{module}:server", "greet", "city=Ulm", "--answers", "../ada.json"]
        assert here._replace(folder=here.folder / name).run(call) == [(0, "Hello Ada, welcome to Ulm!\n", "")]
