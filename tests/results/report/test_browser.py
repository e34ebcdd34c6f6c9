"""The page in a real browser: it opens from disk, works by keyboard and on a phone, and nothing in a record runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.results.report.html import page
from tests.kit import browser as browsers
from tests.kit.browser import Browser, Page
from tests.results.report.support import (
    HEADER,
    HOSTILE,
    KILLED,
    change,
    failed,
    hostile,
    hostile_change,
    hostile_header,
    mixed,
    record,
)

pytestmark = pytest.mark.needs("browser")

ELEMENTS = "[...document.querySelectorAll('*')].map(one => one.tagName.toLowerCase()).sort().join(' ')"
SHOWN = "[...document.querySelectorAll('.list .row:not([hidden]) .id')].map(one => one.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.running(str(browsers.find())) as running:
        yield running


@pytest.fixture(scope="module")
def only_tab(browser: Browser) -> Iterator[Page]:
    with browser.page() as opened:
        yield opened


@pytest.fixture
def tab(only_tab: Page) -> Iterator[Page]:
    """A page that has to be silent to the end, and to ask for nothing but its own file."""
    only_tab.size(1280, 900)
    only_tab.colours("light")
    yield only_tab
    only_tab.value("localStorage.clear(); new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found = (list(only_tab.complaints), list(only_tab.requests), list(only_tab.opened))
    only_tab.call("Page.navigate", url="about:blank")
    only_tab.forget()
    complaints, requests, opened = found
    assert complaints == []
    assert requests == opened


def write_page(folder: Path, *runs: tuple[str, dict[str, Any], list[dict[str, Any]]], name: str = "page") -> Path:
    file = folder / f"{name}.html"
    file.write_text(page(list(runs)), encoding="utf-8")
    return file


def durations(median: float) -> dict[str, Any]:
    """A side of a budget, as ``conformance.judge.latency`` keeps it."""
    around = {"p90": 2e-4, "p95": 3e-4, "p99": 1e-3, "min": -2e-4}
    samples = [median - 1e-4 + number * 1e-5 for number in range(40)]
    further = {name: median + more for name, more in around.items()}
    return {"median": median, **further, "iqr": 0.0002, "rounds": 40, "samples": samples}


LATENCY = {
    "runtime": "onnxruntime", "at": {"batch": 4}, "unit": "seconds", "own": durations(0.004),
    "other": durations(0.003), "throughput": [{"batch": 1, "per_second": 251.5}],
    "budgets": [
        {"text": "1.2 x pytorch", "verdict": "broken", "ratio": 1.33, "low": 1.28, "high": 1.37, "limit": 1.2},
        {"text": "5 ms", "verdict": "holds", "ratio": 0.004, "low": 0.0039, "high": 0.0041, "limit": 0.005}],
}  # fmt: skip

FULL = failed(
    "everything", histogram={"edges": [-3, -2, -1, 0, 1, 2], "counts": [5, 9, 3, 0, 2]},
    loss={"export": "inf", "conversion": 41.25, "optimizer": -3.0, "runtime": "RuntimeError"},
    fidelity={"output": 0, "sqnr": 34.25, "cosine": 0.9998, "magnitude": 0.0026},
    latency=LATENCY,
    graph={"opset": 20, "nodes": {"Conv": 3, "Relu": 2}, "sha": "0123abcd"},
    arithmetic={"provider": "CPUExecutionProvider", "kernels": {"Conv float": 3}, "optimizer": True},
    conversion={"tool": "onnxruntime", "calibration": {"samples": 32}, "kept": []},
    bundle="bundles/everything.zip",
    coverage={"seen": 40, "of": 48, "calls": 198, "places": 2,
        "blind": [{"module": "features.1.block", "at": "models/net.py:55", "op": "aten.gelu", "count": 5}],
        "hidden": [{"module": "features.3", "tensor": "differs", "why": "node n7: 4 of 9 values differ"}]},
)  # fmt: skip


def run_of(count: int = 0) -> list[dict[str, Any]]:
    return [*mixed(), FULL, *(record(f"case{number:05}") for number in range(count))]


def write_report(file: Path, count: int) -> Path:
    """Two runs with changes; in the earlier one the full record passed."""
    earlier = [record("everything", worst={"output": 0, "ratio": 0.25}), *mixed()]
    runs = [("monday", HEADER, earlier), ("tuesday", HEADER, run_of(count))]
    file.write_text(page(runs, [change(FULL.id, "newly failing", text="was passed")]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tmp_path_factory.mktemp("report") / "report.html", 20)


@pytest.fixture(scope="module")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of more cells than a screen and a printed list hold; a page takes the longer to open the more it has."""
    return write_report(tmp_path_factory.mktemp("report") / "long.html", 300)


def ids(tab: Page) -> list[str]:
    """The cells whose rows stand in the list, in order."""
    found: list[str] = tab.value(SHOWN)
    return found


def panel(tab: Page) -> str | None:
    """The text of the open cell."""
    found: str | None = tab.value("document.getElementById('panel').hidden ? null : panel.innerText")
    return found


def wait_for_address(tab: Page, fragment: str) -> None:
    """Until the address has that fragment, which is written a while after what it tells of."""
    tab.wait(f"decodeURIComponent(location.hash) === {json.dumps(fragment)}")


def open_cell(tab: Page, id: str) -> str:
    """Open a cell by the address of a page that is there; the text of its panel."""
    tab.value(f"location.hash = '#cell=' + encodeURIComponent({json.dumps(id)})")
    tab.wait(f"document.getElementById('panel-title')?.textContent === {json.dumps(id)}")
    return panel(tab) or ""


# ---- opening -----------------------------------------------------------------------------------------------
def test_opens_from_disk_with_all_there_is(tab, long_report):
    """Only rows in sight exist, all can be reached, and the selection scrolls into sight."""
    tab.open(long_report)
    for title in ("document.title", "document.querySelector('h1').innerText"):
        assert tab.value(title) == "4 of 318 cells failed"
    assert tab.value("document.getElementById('found').textContent") == "318 cells"
    assert tab.value("document.querySelectorAll('.matrix tbody tr').length") == 307
    assert {one.partition("[")[0] for one in ids(tab)[:4]} == {"accuracy", "specials", "export"}
    assert tab.value("document.getElementById('list').getAttribute('aria-rowcount')") == "318"
    assert len(ids(tab)) < 60
    tab.value("window.scrollTo(0, document.documentElement.scrollHeight)")
    tab.wait(f"({SHOWN}).some(one => one.includes('case00299'))")
    assert len(ids(tab)) < 60
    for _ in range(60):
        tab.press("j")
    top, bottom, height = tab.value(
        "(() => { const box = document.querySelector('.row.selected').getBoundingClientRect();"
        " return [box.top, box.bottom, innerHeight]; })()"
    )
    assert 0 <= top < bottom <= height


def test_a_killed_run_says_so_and_no_records_are_no_error(tab, tmp_path):
    tab.open(write_page(tmp_path, ("killed", KILLED, [record()])))
    assert "did not finish" in tab.value("document.querySelector('[role=alert]').innerText")
    tab.open(write_page(tmp_path, ("empty", KILLED, []), name="empty"))
    assert tab.value("document.getElementById('found').textContent") == "0 cells"
    tab.press("j")
    tab.press("Enter")
    assert panel(tab) is None


# ---- filters, search and the address -------------------------------------------------------------------------
ADDRESSES = {
    "#status=failed": 3, "#status=failed,xpassed": 4, "#exporter=torchscript": 1, "#runtime=tensorrt": 1,
    "#precision=int8": 3, "#check=specials": 3, "#fault=runtime": 1, "#stage=compare": 1, "#changed=1": 1,
    "#q=EVERYTHING+onnxruntime": 1, "#q=cases/case0001": 10, "#q=elements+differ": 1, "#q=nothing-has-this": 0,
    "#status=unheard-of&sort=unheard-of&exporter=": 38, "#check=specials&status=xfailed": 2,
}  # fmt: skip


def test_an_address_shows_what_it_says(tab, report):
    """As a page is opened with it, and as it is typed into a page that is there."""
    tab.open(report, "#status=failed,xpassed&q=elements+differ")
    assert ids(tab) == [FULL.id]
    for address, count in ADDRESSES.items():
        tab.value(f"location.hash = {json.dumps(address)}")
        tab.wait(f"list.getAttribute('aria-rowcount') === '{count}'")
        assert len(ids(tab)) == count or 20 <= len(ids(tab)) < count, address


def test_filters_and_search_write_the_address(tab, report):
    tab.open(report)
    tab.click("[data-status=failed]")
    wait_for_address(tab, "#status=failed")
    assert len(ids(tab)) == 3
    assert tab.value("document.querySelector('[data-status=failed]').getAttribute('aria-pressed')") == "true"
    tab.press("/")
    tab.type("every")
    tab.wait(f"({SHOWN}).length === 1")
    wait_for_address(tab, "#status=failed&q=every")
    rows = "[...document.querySelectorAll('.matrix tbody tr')].filter(one => !one.hidden).map(one => one.innerText)"
    assert [line.split()[0] for line in tab.value(rows)] == ["everything"]  # the matrix follows
    tab.value(
        "(() => { const one = document.querySelector('[name=check]'); one.value = 'specials';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    wait_for_address(tab, "#status=failed&check=specials&q=every")
    assert ids(tab) == []
    tab.click("#clear")
    wait_for_address(tab, "")
    assert tab.value("found.textContent") == "38 cells"


def test_orders(tab, report):
    given = [one.id for one in run_of(20)]
    failures = [one.id for one in run_of() if one.status == "failed"]
    orders = {"ratio": [FULL.id], "id": sorted(given), "finished": given, "failures": failures}
    for order, first in orders.items():
        tab.open(report, f"#sort={order}", query=order)
        assert ids(tab)[: len(first)] == first[: len(ids(tab))], order


# ---- a cell -------------------------------------------------------------------------------------------------
def test_a_cell_has_all_that_is_known(tab, report):
    tab.open(report, f"#cell={FULL.id}")
    found = panel(tab)
    assert found is not None and "[object" not in found and "undefined" not in found and "NaN" not in found
    for part in (
        FULL.id, "smallest example: batch=2; offset values, seed 5", "newly failing was passed",
        FULL.command, "conformance replay bundles/everything.zip --runtime onnxruntime",
        "got\n0.5", "wanted\n0.25", "error / allowed\n125000", "[1, 2]", "no loss", "41.3 dB", "-3.0 dB",
        "RuntimeError", "34.3 dB", "0.9998", "1.33×", "1.28× to 1.37×", "4 ms", "251.5", "monday", "0.25",
        "What of the module shows: 40 of 48 operator calls", "of 198 calls, 48 at equal distances",
        "and at 1 more places", "features", "aten.gelu 5 times models/net.py:55", "Conv", "Graph: 5 nodes",
        "CPUExecutionProvider", "calibration", "Time: 750 ms", "cases/everything.yaml:7",
        "node n7: 4 of 9 values differ",
    ):  # fmt: skip
        assert part in found, part
    charts = "[...panel.querySelectorAll('svg')].map(one => one.getAttribute('aria-label'))"
    assert tab.value(charts) == [
        "Errors over what is allowed: 2 of 19 above 1",
        "broken: 1.33×, between 1.28× and 1.37×; the limit is 1.2×",
        "holds: 4 ms, between 3.9 ms and 4.1 ms; the limit is 5 ms",
        "Durations. onnxruntime: median 4 ms; pytorch: median 3 ms",
        "Largest error over what is allowed, run by run: 0.25, 125000",
    ]
    tab.value("window.copied = []; navigator.clipboard.writeText = async text => window.copied.push(text)")
    tab.click("[data-copy]")
    tab.wait("window.copied.length > 0")
    assert tab.value("window.copied") == [FULL.command]
    assert tab.value("document.querySelector('[data-copy]').textContent") == "copied"


def test_every_kind_of_record_has_a_panel(tab, report):
    tab.open(report, "#cell=accuracy[long-gone]")
    assert "no such cell" in (panel(tab) or "")
    for one in mixed():
        found = open_cell(tab, one.id)
        assert "[object" not in found and "undefined" not in found and "NaN" not in found


# ---- keys ---------------------------------------------------------------------------------------------------
def test_all_by_keyboard(tab, report):
    tab.open(report)
    first, second, third = ids(tab)[:3]
    selected = "document.querySelector('.row.selected .id')?.textContent"
    tab.press("j")
    assert tab.value(selected) == first
    tab.press("j")
    tab.press("ArrowDown")
    assert tab.value(selected) == third
    tab.press("k")
    assert tab.value(selected) == second
    active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText"
    assert second in tab.value(active)
    tab.press("Enter")
    wait_for_address(tab, f"#cell={second}")
    assert second in (panel(tab) or "") and tab.value("panel.contains(document.activeElement)")
    tab.press("j")
    assert third in (panel(tab) or "")
    tab.press("Escape")
    assert panel(tab) is None and tab.value("document.activeElement.id") == "list"
    tab.press("/")
    assert tab.value("document.activeElement.id") == "search"
    tab.type("jk/t")
    assert tab.value("search.value") == "jk/t"
    tab.press("Escape")
    assert tab.value("search.value") == ""
    tab.press("Escape")
    assert tab.value("document.activeElement === document.body")


def test_the_matrix_is_one_stop_and_the_arrows_move_in_it(tab, report):
    tab.open(report)
    assert tab.value("document.querySelectorAll('.matrix [tabindex=\"0\"]').length") == 1
    tab.value("document.querySelector('.matrix [tabindex=\"0\"]').focus()")
    here = "document.activeElement.getAttribute('aria-label')"
    start = tab.value(here)
    tab.press("ArrowRight")
    right = tab.value(here)
    tab.press("ArrowDown")
    below = tab.value(here)
    assert len({start, right, below}) == 3
    tab.press("Enter")
    assert below.partition(": ")[2] in (panel(tab) or "")
    tab.press("Escape")
    assert tab.value(here) == below


def test_the_focus_is_seen_and_what_can_be_used_has_a_name(tab, report):
    """As the browser's own accessibility tree has it."""
    tab.open(report)
    for _ in range(12):
        tab.press("Tab")
        style = tab.value("getComputedStyle(document.activeElement).outline")
        assert "solid" in style and "2px" in style
    open_cell(tab, FULL.id)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    used = [one for one in nodes if one.get("role", {}).get("value") in
            ("button", "link", "searchbox", "combobox", "checkbox", "grid", "dialog", "table")]  # fmt: skip
    assert len(used) > 20
    assert [one for one in used if not one["ignored"] and not one.get("name", {}).get("value")] == []


# ---- looks --------------------------------------------------------------------------------------------------
def luminance(tab: Page, selector: str, name: str) -> float:
    """Relative luminance of a colour, 0 black to 1 white (WCAG 2)."""
    text = tab.value(f"getComputedStyle(document.querySelector({json.dumps(selector)})).{name}")
    parts = [float(part) / 255 for part in text[text.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_can_be_read(tab, report, scheme):
    tab.colours(scheme)
    tab.open(report, f"#cell={FULL.id}")
    paper = luminance(tab, "body", "backgroundColor")
    assert (paper > 0.5) == (scheme == "light")
    pairs = [("body", "body"), (".quiet", "body"), (".first a", ".first"), (".verdict", ".verdict")]
    pairs += [
        (f".chip.is-{status}", f".chip.is-{status}")
        for status in ("failed", "xpassed", "xfailed", "passed", "skipped")
    ]
    for ink, behind in pairs:
        one, other = luminance(tab, ink, "color"), luminance(tab, behind, "backgroundColor")
        contrast = (max(one, other) + 0.05) / (min(one, other) + 0.05)
        assert contrast >= 4.5, f"{ink} in {scheme}: {contrast:.2f}"  # WCAG 2 AA


def test_the_button_changes_the_colours_and_they_stay(tab, report):
    tab.open(report)
    assert luminance(tab, "body", "backgroundColor") > 0.5
    tab.click("#theme")
    assert luminance(tab, "body", "backgroundColor") < 0.5
    tab.open(report)
    assert luminance(tab, "body", "backgroundColor") < 0.5
    tab.press("t")
    tab.colours("dark")
    assert luminance(tab, "body", "backgroundColor") > 0.5


def test_the_page_is_as_wide_as_the_screen(tab, report):
    wide = "[document.documentElement.scrollWidth, innerWidth]"
    for width in (360, 1280):
        tab.size(width, 740)
        tab.open(report, query=str(width))
        assert tab.value(wide) == [width, width]
        if width == 360:  # on a phone, the matrix scrolls in its box
            assert tab.value("matrix.scrollWidth > matrix.clientWidth && matrix.clientWidth <= 360")
        tab.value("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert tab.value(wide) == [width, width]
        open_cell(tab, FULL.id)
        assert tab.value("panel.scrollWidth <= panel.clientWidth") and tab.value(wide) == [width, width]


def test_without_scripts_what_needs_them_is_not_there(browser, report):
    with browser.page() as page:
        page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.call("Page.navigate", url=report.resolve().as_uri())
        page.wait("document.readyState === 'complete' && document.querySelector('footer') !== null")
        text = page.value("document.body.innerText")
        assert "need JavaScript" in text and "4 of 38 cells failed" in text and FULL.id in text
        for selector in (".filters", "#matrix", "#list", "footer", "#theme"):
            assert page.value(f"document.querySelector('{selector}').getClientRects().length") == 0, selector


# ---- nothing of a record runs -------------------------------------------------------------------------------
def shown_of(tab: Page, folder: Path, poison: str) -> list[Any]:
    """The title of a page with that text in every place, and its elements, those of an open cell too."""
    file = folder / "page.html"
    runs = [(poison, hostile_header(poison), [hostile(poison)])] * 2
    file.write_text(page(runs, [hostile_change(poison)]), encoding="utf-8")
    tab.open(file)
    title = tab.value("document.title")
    tab.press("j")
    tab.press("Enter")
    told = panel(tab) or ""
    assert len(told) > 400 and "[object" not in told and "native code" not in told
    tab.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = [title, tab.value(ELEMENTS), tab.value("document.querySelectorAll('[onerror],[onload]').length")]
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")
    assert tab.value("panel.scrollWidth <= panel.clientWidth")
    return found


@pytest.mark.parametrize("names", [
    pytest.param([*HOSTILE], marks=pytest.mark.thorough),
    ["attribute", "end of script", "template", "long", "prototype"],
], ids=["all", "some"])  # fmt: skip
def test_what_is_planted_in_a_record_is_inert(tab, tmp_path, names):
    """The elements are those that harmless text makes."""
    harmless = shown_of(tab, tmp_path, "harmless")
    for name in names:
        assert shown_of(tab, tmp_path, HOSTILE[name]) == harmless, name


def test_the_policy_stops_what_is_not_the_page_s_own(browser, tmp_path):
    """If markup did get in, it would not run: the content security policy is checked by planting some."""
    file = write_page(tmp_path, ("run", HEADER, [record()]))
    planted = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    file.write_text(file.read_text("utf-8").replace("</main>", f"</main>{planted}"), encoding="utf-8")
    with browser.page() as opened:
        opened.open(file)
        assert opened.value("document.title") == "1 cell, none failed"
        assert any("Content Security Policy" in one for one in opened.complaints)
        replaced = "(() => { try { document.body.innerHTML = 'x'; } catch (e) { return e.name; } })()"
        assert opened.value(replaced) == "TypeError"
