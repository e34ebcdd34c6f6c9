"""Open a built site in a browser and use it: ``python -m docs.open_site FOLDER``, as ``tox run -e docs`` does.

A page that complains, asks another host for anything, is wider than a telephone, or a search that finds nothing,
is an error.
"""

from __future__ import annotations

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit import browser as browsers
from tests.kit import programs
from tests.kit.browser import Browser, Page

TELEPHONE = 360
"""CSS pixels."""
SEARCHES = {"asinh": "first-case", "accept": "gating", "IllConditioned": "errors"}
"""A word, and a page that a search for it has to find."""
WIDER = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # which a browser asks every host for
            self.send_error(204)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this host alone, and give its address: a search reads other pages, which no file may."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def open_page(page: Page, address: str) -> None:
    """Open a page, or the one that it sends a browser to, and wait until all of it is there; on a busy host the page
    before stays for a while."""
    page.value("window.before = true")
    page.call("Page.navigate", url=address)
    there = "window.before === undefined && document.body !== null && document.readyState === 'complete'"
    page.wait(f"{there} && document.querySelector('meta[http-equiv=refresh]') === null")


def problems(browser: Browser, folder: Path, site: str) -> Iterator[str]:
    with browser.page(width=TELEPHONE, height=740) as page:
        for file in sorted(folder.rglob("*.html")):
            name = file.relative_to(folder).as_posix()
            open_page(page, site + name)
            if (wider := page.value(WIDER)) > 0:
                yield f"{name} is {wider} pixels wider than a telephone"
        for word, found in SEARCHES.items():
            open_page(page, f"{site}search.html?q={word}")
            page.wait("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
            links = page.value("[...document.querySelectorAll('#search-results a')].map(one => one.href).join(' ')")
            if f"{found}.html" not in links:
                yield f"a search for {word} does not find {found}: {links}"
        yield from page.complaints
        yield from (f"asked for {address}" for address in page.requests if not address.startswith((site, "data:")))


def main(folder: Path) -> str | None:
    """Return what is wrong, if anything: without a browser nothing, unless ``CONFORMANCE_REQUIRE`` asks for one."""
    try:
        required = programs.read_required()
    except ValueError as error:
        return str(error)
    if lack := programs.find_lack("browser"):
        print(f"the site was not opened: {lack}")
        return f"{programs.REQUIRE} asks for a browser" if "browser" in required else None
    with served(folder) as site, browsers.running(str(browsers.find())) as browser:
        return "\n".join(problems(browser, folder, site)) or None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
