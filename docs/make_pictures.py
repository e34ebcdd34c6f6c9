"""Make the pictures of ``docs/pictures`` from a real run of ``docs/examples/graph_network``: a terminal that shows a
finding (SVG), and the page about the run (PNG, by Debian's chromium), each for light and dark surroundings.

    python docs/make_pictures.py
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLE = HERE / "examples" / "graph_network"
WIDTH = 100
"""Columns of the terminal."""
_CHARACTER, _LINE, _MARGIN = 7.82, 17, 16
"""Pixels: the width of a character of 13 pixels in a monospaced face, the height of a line, the margin."""
_COLOURS = {"light": ("#ffffff", "#1f2328", "#b3261e"), "dark": ("#0d1117", "#e6edf3", "#ff8f85")}
"""Ground, text, and what is wrong."""


def run_example(folder: Path) -> list[str]:
    """Run the example in a copy, and return the lines that its run prints from the first finding on."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance"]
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if " 1 of 1: " in line)
    return lines[
        start : next(number for number, line in enumerate(lines) if line.startswith("====") and number > start)
    ]


def terminal(lines: Sequence[str], colours: tuple[str, str, str]) -> str:
    """Return the lines as an SVG of a terminal."""
    ground, ink, wrong = colours
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    width, height = round(WIDTH * _CHARACTER + 2 * _MARGIN), len(lines) * _LINE + 2 * _MARGIN
    told = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + (number + 0.8) * _LINE:.0f}" xml:space="preserve"'
        f"{_style(number, wrong)}>{html.escape(line)}</text>"
        for number, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="{ground}"/>\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="{ink}">\n'
        f"{told}\n</g>\n</svg>\n"
    )


def _style(number: int, wrong: str) -> str:
    return f' fill="{wrong}" font-weight="bold"' if number == 0 else ""


def photograph(page: Path, picture: Path, *, dark: bool) -> None:
    """Have chromium write a picture of a page."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,760"]
    flags += ["--blink-settings=preferredColorScheme=0" if dark else "--blink-settings=preferredColorScheme=1"]
    command = ["chromium", *flags, f"--screenshot={picture}", page.absolute().as_uri()]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    pictures = HERE / "pictures"
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        lines = run_example(Path(folder))
        for name, colours in _COLOURS.items():
            (pictures / f"finding-{name}.svg").write_text(terminal(lines, colours), encoding="utf-8")
        command = [sys.executable, "-m", "conformance", "report", "--html", "page.html"]
        subprocess.run(command, cwd=folder, check=False, capture_output=True)
        for name in _COLOURS:
            photograph(Path(folder) / "page.html", pictures / f"page-{name}.png", dark=name == "dark")


if __name__ == "__main__":
    main()
