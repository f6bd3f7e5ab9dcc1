"""What the tests of the documentation share: where the samples are, and how one is loaded."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import turnwise

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "docs_src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}


def load(name: str) -> ModuleType:
    """A sample as a module of its own, fresh every time."""
    spec = importlib.util.spec_from_file_location(f"sample_{name.replace('/', '_')[:-3]}", SAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
