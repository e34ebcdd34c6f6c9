"""What a cell used is observed: each way of depending on something is in its list, and its change is seen."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.models.kept.fingerprint import changes
from conformance.models.kept.lowering_functions import read
from conformance.models.kept.observed_dependencies import Now, Observed
from conformance.results.records.record import Record
from conformance.results.records.run_file import RunWriter
from tests.kit.cases import Bench, module_of, say
from tests.kit.runs import run_command

BODY = say(module_of("Net", shape="batch, 3"), "runtimes: onnxruntime", "export: {torchscript: [17]}")
MODULE = """
import os
import sys
import torch
from pathlib import Path
HERE = Path(__file__).parent
def factor():
%s
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = float(factor())
    def forward(self, x):
        return torch.sin(x) * self.factor
"""

Change = Callable[[Path], object]


def text(name: str, content: str) -> Change:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    return write


def variable(name: str, value: str) -> Change:
    return lambda _: os.environ.update({name: value})


WAYS: dict[str, tuple[str, dict[str, str], Change]] = {
    "a file that is opened": ("return (HERE / 'a.txt').read_text()", {"a.txt": "1"}, text("a.txt", "2")),
    "a file that numpy reads": (
        "import numpy; return numpy.loadtxt(HERE / 'a.txt')", {"a.txt": "1"}, text("a.txt", "2"),
    ),
    "a helper": ("import helper; return helper.A", {"helper.py": "A = 1"}, text("helper.py", "A = 2")),
    "a helper's helper": ("import helper; return helper.A", {"helper.py": "from more import A", "more.py": "A = 1"},
        text("more.py", "A = 2")),
    "a folder on sys.path": ("sys.path.insert(0, str(HERE / 'lib')); import way_inserted; return way_inserted.A",
        {"lib/way_inserted.py": "A = 1"}, text("lib/way_inserted.py", "A = 2")),
    "text that is executed": (
        "space = {}; exec((HERE / 'a.cfg').read_text(), space); return space['A']", {"a.cfg": "A = 1"},
        text("a.cfg", "A = 2"),
    ),
    "a variable": ("return os.environ.get('CASE_LEGACY', 1)", {}, variable("CASE_LEGACY", "2")),
    "a variable by getenv": ("return os.getenv('CASE_OLDER') or 1", {}, variable("CASE_OLDER", "2")),
    "a file that is not there": ("return 2 if os.path.exists(HERE / 'flag') else 1", {}, text("flag", "")),
    "a module that is not there": (
        "\n    try:\n        import way_faster; return 2\n    except ImportError:\n        return 1", {},
        text("way_faster.py", ""),
    ),
    "a module that hides another": ("import colorsys; return 1", {}, text("colorsys.py", "")),
    "names in a folder": ("return len(list((HERE / 'data').iterdir()))", {"data/a": ""}, text("data/b", "")),
    "a pattern of names": ("return len(list(HERE.glob('*.dat')))", {"a.dat": ""}, text("b.dat", "")),
    "a file read by a function of a helper that keeps it": ("import helper; return helper.read()",
        {"helper.py": "import functools, pathlib\n@functools.cache\ndef read():\n"
        "    return pathlib.Path(__file__).with_name('a.txt').read_text()", "a.txt": "1"}, text("a.txt", "2")),
}  # fmt: skip


def observed(bench: Bench, way: str, files: dict[str, str]) -> tuple[Record, Observed, Path]:
    body = textwrap.indent(way, "    ") if not way.startswith("\n") else way
    cell = bench.cell(BODY, MODULE % body)
    for name, content in files.items():
        text(name, content)(cell.case.folder)
    record = bench.run_cell(cell, examples=1)
    assert record.status == "passed", record.reason
    return record, Observed.from_dict(record.depends), cell.case.folder.resolve()


@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_what_a_cell_used_is_seen(bench, monkeypatch, way):
    code, files, change = WAYS[way]
    for name in ("CASE_LEGACY", "CASE_OLDER"):
        monkeypatch.delenv(name, raising=False)
    _, known, home = observed(bench, code, files)
    assert list(known.differences(Now(home))) == []
    (home / "notes.md").write_text("nobody reads this")
    if way not in ("names in a folder", "a pattern of names"):
        assert known.holds(Now(home))
    change(home)
    assert len(list(known.differences(Now(home)))) == 1


@pytest.mark.parametrize("way", [
    "import time; return 1 + 0 * time.time()", "from datetime import datetime; return min(1, datetime.now().year)",
    "import uuid; return min(1, uuid.uuid4().int)", "import subprocess; subprocess.run(['true']); return 1",
])  # fmt: skip
def test_nothing_is_kept_of_what_is_another_at_each_run(bench, way):
    _, known, home = observed(bench, way, {})
    assert known.fleeting and not known.holds(Now(home))


def test_what_the_kernel_says_counts_where_the_case_itself_reads_it(bench):
    """Packages look at it as they are imported, which is none of the case's doing."""
    way = "sys.path.insert(0, str(HERE / 'site-packages')); import way_installed; return len(way_installed.STATE) > 0"
    package = "import pathlib\nSTATE = pathlib.Path('/proc/stat').read_text()"
    _, known, home = observed(bench, way, {"site-packages/way_installed.py": package})
    assert known.fleeting == () and known.holds(Now(home))
    _, known, home = observed(bench, "return len(Path('/proc/stat').read_text()) > 0", {})
    assert known.fleeting == ("/proc/stat",) and not known.holds(Now(home))


@pytest.mark.parametrize("way, facts", [
    ("os.uname().machine", {"platform", "host name"}),
    ("__import__('platform').uname().node", {"platform", "host name"}),
    ("__import__('platform').machine()", {"platform"}),
])  # fmt: skip
def test_what_code_asks_of_the_host_is_a_fact(bench, way, facts):
    _, known, home = observed(bench, f"return len({way}) > 0", {})
    assert known.host.keys() == facts and known.holds(Now(home))


def test_another_time_zone_makes_all_results_again():
    told = "from conformance.models.kept.fingerprint import host; print(host('suite'))"
    command, zones = [sys.executable, "-c", told], ("ABC-1", "ABC-2")
    one, other = (subprocess.check_output(command, env={**os.environ, "TZ": zone}) for zone in zones)
    assert one != other


def test_what_a_case_writes_is_its_own(bench):
    way = "(HERE / 'made.txt').write_text('1'); return (HERE / 'made.txt').read_text()"
    _, known, home = observed(bench, way, {})
    (home / "made.txt").unlink()
    assert known.holds(Now(home))


def test_two_cases_that_share_a_helper_both_depend_on_what_it_read(bench):
    body = "\n".join(f"{name}:\n  about: one\n" + textwrap.indent(BODY, "  ") for name in ("first", "second"))
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan

    folder = bench.cells(BODY, "")[0].case.folder
    text("beside.py", MODULE % "    import helper; return helper.read()")(folder)
    for name, content in WAYS["a file read by a function of a helper that keeps it"][1].items():
        text(name, content)(folder)
    (folder / "two.yaml").write_text(body)
    for case in load(folder / "two.yaml"):
        (cell,) = (cell for cell in plan(case) if cell.check == "accuracy")
        record = bench.run_cell(cell, examples=1)
        assert "a.txt" in (record.depends or {})["files"], (case.name, record.reason, record.depends)


def test_of_lowerings_the_functions_that_the_export_called_count(bench):
    for exporter, function in (("torchscript: [17]", "sin"), ("dynamo: [20]", "aten_sin")):
        cell = bench.cell(BODY.replace("torchscript: [17]", exporter), MODULE % "    return 1")
        parts = (bench.run_cell(cell, examples=1).depends or {})["parts"]
        names = {name for found in parts.values() for name in found}
        assert function in names
        assert not names & {"cos", "aten_cos"}


def test_a_lowering_that_calls_one_of_another_file_depends_on_that_one_alone(bench):
    """At opset 11 ``add`` is a function that calls that of opset 9, by an attribute of its module."""
    cell = bench.cell(BODY.replace("[17]", "[11]"), MODULE.replace("(x) *", "(x) +") % "    return 1")
    parts = (bench.run_cell(cell, examples=1).depends or {})["parts"]
    of_nine = next(known for file, known in parts.items() if "opset9" in file)
    assert {"add", "sin"} <= of_nine.keys() and not {"cos", "relu", "mul"} & of_nine.keys()


def test_names_that_code_takes_from_other_modules(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        textwrap.dedent("""
            import a.b
            import a.c as d
            from . import e
            from .f import g

            def one():
                a.b.h()
                d.i

            def two():
                e.j(g).k

            def three():
                print(e, e.j)
        """)
    )
    source = read(str(file))
    assert set(source.taken(["one"])) == {"a.b.h", "a.c.i"}
    assert set(source.taken(["two"])) == {".e.j", ".f.g"}
    assert set(source.taken(["three"])) == {".e", ".e.j"}, "of a module that is handed on, all may be used"


def test_explain_lists_what_a_cell_depends_on_and_what_has_changed(bench, tmp_path):
    record, _, home = observed(bench, *WAYS["a file that is opened"][:2])
    writer = RunWriter(tmp_path / "run", {"started": "now", "environment": {}})
    writer.add(record.as_dict())
    writer.close(1.0)
    told = run_command(tmp_path, "explain", "accuracy*", "--run", "run", "--depends")
    assert told.code == 0 and "file a.txt" in told.text and "all that it used is as it was" in told.text
    (home / "a.txt").write_text("2")
    told = run_command(tmp_path, "explain", "accuracy*", "--run", "run")
    assert told.code == 1 and "now: a.txt changed" in told.text


def test_very_many_files_count_by_their_folder(bench):
    way = "return 1 + 0 * sum(len(file.read_text()) for file in (HERE / 'many').iterdir())"
    _, known, home = observed(bench, way, {f"many/{n}": "" for n in range(2_000)})
    assert len(known.files) < 5 and known.holds(Now(home))
    (home / "many" / "7").write_text("changed")
    assert not known.holds(Now(home))


def test_names_that_are_no_text_and_files_that_vanish(bench):
    way = (
        "import os; name = os.fsencode(HERE) + b'/\\xff'; open(name, 'w').close(); os.unlink(name); "
        "return open(os.fsencode(HERE) + b'/\\xfe').close() or 1"
    )
    cell = bench.cell(BODY, MODULE % f"    {way}")
    home = cell.case.folder.resolve()
    Path(os.fsdecode(os.fsencode(home) + b"/\xfe")).write_bytes(b"1")
    record = bench.run_cell(cell, examples=1)
    known = Observed.from_dict(json.loads(json.dumps(record.depends)))
    assert record.status == "passed" and known.holds(Now(home))
    Path(os.fsdecode(os.fsencode(home) + b"/\xfe")).unlink()
    assert list(known.differences(Now(home))) == ["\udcfe is gone"]


def test_functions_that_are_observed_are_what_they_were(bench):
    observed(bench, "return 1", {})
    assert pickle.loads(pickle.dumps(os.stat)) is os.stat and pickle.loads(pickle.dumps(time.time)) is time.time
    assert os.stat in os.supports_fd and os.stat(".").st_ino == os.lstat(".").st_ino  # noqa: PTH116
    holder = type("Holder", (), {"clock": time.time})
    assert holder().clock() > 0, "it is no method of a class"


def test_another_version_of_a_package_that_every_cell_uses_makes_all_results_again(tmp_path):
    told = "import json, sys; sys.path.insert(0, sys.argv[1])\n"
    told += "from conformance.models.kept.fingerprint import conditions, suite\n"
    told += "print(json.dumps([suite(), conditions()]))"
    for version in ("1.0", "2.0"):
        info = tmp_path / version / f"onnx-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: onnx\nVersion: {version}\n", encoding="utf-8")
        shutil.copytree(info, tmp_path / f"again {version}" / info.name)
    folders = [tmp_path / name for name in ("1.0", "again 1.0", "2.0")]
    one, again, other = (json.loads(subprocess.check_output([sys.executable, "-c", told, one])) for one in folders)
    assert one == again and one[0] != other[0]
    assert list(changes(one[1], other[1])) == ["the package onnx: 1.0 -> 2.0"]
