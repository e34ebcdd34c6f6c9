"""Build the Markdown pages into a site with a search: ``tox run -e docs``.

The pages are plain Markdown, so that a code host shows them too. The menu is made of the headings and links of
``index.md``: there is one list of pages.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
project = "onnx-export-conformance"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [f"{folder}*.md" for folder in ("", "docs/", "docs/guides/", "docs/evidence/", "cases/", "tests/")]
myst_heading_anchors = 4
highlight_language = "none"
html_theme = "furo"
html_title = project
html_copy_source = False


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_menu)
    app.connect("build-finished", _complete)


def _add_menu(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the links of each section of the index into the menu, below the heading of the section."""
    if page != root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        pages = [f"/{_name(link)}" for link in re.findall(r"\]\(([\w./-]+)\.md\)", section)]
        heading = section.partition("\n")[0]
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""])


def _name(link: str) -> str:
    return (ROOT / "docs" / link).resolve().relative_to(ROOT).as_posix()


def _complete(app: Sphinx, error: Exception | None) -> None:
    """Add a first page that leads to the index, and the pictures that the README names in HTML."""
    if error is None:
        site = Path(app.outdir)
        start = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>{project}</title>'
        (site / "index.html").write_text(start, encoding="utf-8")
        shutil.copytree(ROOT / "docs" / "pictures", site / "docs" / "pictures", dirs_exist_ok=True)
