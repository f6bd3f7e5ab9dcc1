"""How the site is made. `make docs` builds it; a warning is an error, and so is a link that leads nowhere."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from turnwise import __version__

project = "Turnwise"
author = "the Turnwise contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Turnwise"
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["conf.py"]

# Headings are linked to as on a forge: lower case, hyphens for spaces, without punctuation.
myst_heading_anchors = 4

# Docstrings are plain prose, with code between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
nitpick_ignore_regex = [("py:.*", ".*")]  # Signatures name types of other libraries; those have sites of their own.
python_maximum_signature_line_length = 100

PARTS = {
    "Start": ["start"],
    "Guides": [
        "guides/asking",
        "guides/steps",
        "guides/prompts",
        "guides/effects",
        "guides/tasks",
        "guides/clients",
        "guides/call-in-hand",
        "guides/inbox",
        "guides/inbox-api",
        "guides/inbox-deploy",
        "guides/serving",
        "guides/fleet",
        "guides/keys",
        "guides/auth",
        "guides/limits",
        "guides/telemetry",
        "guides/testing",
        "guides/command",
        "guides/hosts",
        "guides/from-official-sdk",
        "guides/from-fastmcp",
    ],
    "Concepts": ["concepts/round-trips", "concepts/seal", "concepts/replay", "concepts/wires", "glossary"],
    "Reference": ["reference/*"],
    "Inside": ["design", "spec-map", "comparison", "benchmarks", "soak", "rough-edges", "dependencies"],
}
"""The tree of pages, which the first page gets when the site is built; `*` stands for all of a folder."""

HERE = Path(__file__).parent


def _plant(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        for part, pages in PARTS.items():
            names = "\n".join(name for name in pages if "*" in name or (HERE / f"{name}.md").exists())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {part}\n\n{names}\n```\n"


def _point_outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Markdown beside these pages, such as a README, is no page of the site: it is given along as a file."""

    def pointed(link: re.Match[str]) -> str:
        target = (HERE / page).parent / link[1]
        is_page = HERE in target.resolve().parents
        return link[0] if is_page else f"](path:{link[1]})"

    source[0] = re.sub(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)", pointed, source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _point_outside)
    app.connect("source-read", _plant)
