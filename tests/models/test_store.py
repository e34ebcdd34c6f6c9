"""The store of models: what it gives back, who may use it at the same time, and how large it becomes."""

import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.case.plan.settings import Settings
from conformance.front import cli
from conformance.models.cell_run import CellRun
from conformance.models.exporters.graph import Facts
from conformance.models.kept import contents
from conformance.models.kept.model_store import Store
from conformance.process.disk import stores
from conformance.process.disk.locks import exclusive
from conformance.process.disk.onnx_models import Serialized
from conformance.process.disk.stores import DAY, bytes_of, leave, make, size_of, tidy
from conformance.process.errors import UserError
from conformance.process.worker import uses
from tests.kit.calls import count_calls
from tests.kit.cases import PASSED, Bench, case_of, details, say, verdict
from tests.kit.processes import PLENTY
from tests.kit.runtimes import wrong_runtime

DATA = bytes(range(256)) * 4
FACTS = Facts(
    opset=17, domains={"ai.onnx": 17}, nodes={"Sin": 1}, inputs={"x": ["batch", 3]}, outputs={"y": ["batch", 3]},
    dtypes={"x": "float32", "y": "float32"}, initializers=0, overridable=0, sha="aa", structure="bb",
)  # fmt: skip
BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}\n'


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    leave()


def kept(folder: Path, key: str = "key") -> Path:
    """An entry of a store, with its folder."""
    Store(folder).put(key, Serialized(DATA), FACTS, {"export": 0.25}, {"tool": "own", "samples": 8})
    return folder / key


# ---- what it gives back --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["meta.json", "model.onnx"])
def test_no_flipped_bit_gives_other_facts_or_another_model(tmp_path, name):
    file = kept(tmp_path) / name
    sound = Store(tmp_path).get("key")
    data = file.read_bytes()
    assert sound is not None and sound.facts == FACTS
    bits = range(8 * len(data)) if name == "meta.json" else random.Random(3).sample(range(8 * len(data)), 500)
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        found = Store(tmp_path).get("key")
        assert found is None or (found == sound and found.file.read_bytes() == DATA), bit
    file.write_bytes(data)
    assert Store(tmp_path).get("key") == sound


def test_a_model_that_rests_is_read_once_and_again_when_it_was_changed(tmp_path, monkeypatch):
    """Also where the times of the file were put back."""
    file = kept(tmp_path) / "model.onnx"
    before, store = file.stat(), Store(tmp_path)
    with count_calls(contents._hashed) as counts:
        assert store.get("key") is not None
    assert not counts["_hashed"]  # this process has just written it
    contents._known.clear()
    with count_calls(contents._hashed) as counts:
        for settled in (int(DAY * 1e9), -int(DAY * 1e9)):  # whatever the clocks say
            monkeypatch.setattr(contents, "SETTLED", settled)
            assert store.get("key") == store.get("key") is not None
    assert counts["_hashed"] == 2 + 1
    time.sleep(0.05)  # as coarse as the times of a file are
    file.write_bytes(bytes([DATA[0] ^ 1]) + DATA[1:])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.get("key") is None


@pytest.mark.smoke
@pytest.mark.parametrize("spoilt", [b"", b"{", b"[" * 100_000, b"5", b'{"said": 5, "sha256": 5}', b"\xff"])
def test_a_damaged_entry_is_replaced(tmp_path, spoilt):
    place = kept(tmp_path)
    (place / "meta.json").write_bytes(spoilt)
    assert Store(tmp_path).get("key") is None
    kept(tmp_path)
    assert Store(tmp_path).get("key") is not None and not list(tmp_path.glob(".new-*"))
    shutil.rmtree(place)
    place.write_text("a file in its place")
    kept(tmp_path)
    assert Store(tmp_path).get("key") is not None


@pytest.mark.smoke
def test_an_entry_under_another_key_is_not_taken(tmp_path):
    shutil.copytree(kept(tmp_path), tmp_path / "other")
    assert Store(tmp_path).get("other") is None


# ---- what cannot be written ----------------------------------------------------------------------------------
@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], None]:
    """``fill_disk("write_bytes", folder)``: below that folder there is no space left for what the method does."""

    def fill(method: str, folder: Path) -> None:
        original = getattr(Path, method)

        def full(self: Path, *more: object, **named: object) -> object:
            if self.is_relative_to(folder):
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(self, *more, **named)

        monkeypatch.setattr(Path, method, full)

    return fill


@pytest.mark.parametrize("broken", ["write_bytes", "mkdir", "rename"])
def test_a_cell_passes_where_the_store_cannot_be_written(tmp_path, bench, fill_disk, broken):
    place = tmp_path / "full"
    fill_disk(broken, place)
    assert verdict(Bench(bench.folder, place).run(BODY)) == PASSED and not list(place.glob("*/model.onnx"))


def test_a_model_that_the_store_does_not_take_stays_for_as_long_as_its_cell(tmp_path, bench, fill_disk):
    """Whoever asks for its file alone holds nothing else of it."""
    place = tmp_path / "full"
    fill_disk("mkdir", place)
    cell = bench.cell(say(BODY, "export: {torchscript: [17]}"), runtime="onnxruntime")
    uses.begin()
    with uses.of_case((cell.case.file, cell.case.name)), CellRun.opened(cell, Settings(store=place)) as run:
        file = run.model().file
        assert file.is_file()


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS"])
def test_a_full_disk_under_the_case_or_the_exporter_is_the_fault_of_the_host(bench, number):
    python = f"""
        import errno, torch
        class Writes(torch.nn.Module):
            def forward(self, x):
                try:
                    raise OSError(errno.{number}, "planted")
                except OSError as error:
                    raise RuntimeError("could not be written") from error
    """
    body = BODY.replace("forward: torch.sin(x)", "module: beside.Writes")
    record = bench.run(body, python, check="export")
    assert (record.error, record.fault) == ("CannotWrite", "harness")


# ---- several processes ---------------------------------------------------------------------------------------
PROCESS = """
import json, random, sys
from pathlib import Path
from conformance.process.disk.stores import leave, tidy
from conformance.process.disk.onnx_models import Serialized
from conformance.models.exporters.graph import Facts
from conformance.models.kept.model_store import Store
FACTS = Facts(17, {"ai.onnx": 17}, {"Sin": 1}, {"x": [3]}, {"y": [3]}, {"x": "float32"}, 0, 0, "aa", "bb")
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
chance, hits = random.Random(seed), 0
for turn in range(120):
    key = f"key{chance.randrange(4)}"
    data = key.encode() * 5000
    stored = Store(folder / "models").get(key)
    hits += stored is not None
    stored = stored or Store(folder / "models").put(key, Serialized(data), FACTS, {})
    if chance.random() < 0.2:
        (folder / "models" / key / "meta.json").write_text("damaged")
    assert stored.file.read_bytes() == data, "another process took the model away"
    if chance.random() < 0.3:
        leave()
        tidy(folder, 0)
print(hits)
"""


def test_processes_may_put_get_and_drop_the_same_models_at_a_time(tmp_path):
    """Each reads, after another could have dropped or replaced it, what the store gave it."""
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert sum(int(out) for out, _ in ended) > 0
    tidy(tmp_path, 0)
    assert sorted(file.name for file in (tmp_path / "models").iterdir()) == [".lock", ".writing"]


def another_process(folder: Path) -> subprocess.Popen[str]:
    """A process that uses a store until its input ends."""
    code = "import sys; from pathlib import Path; from conformance.process.disk.stores import use;"
    code += " use(Path(sys.argv[1]));"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code} print('uses', flush=True); sys.stdin.read()", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "uses\n"
    return process


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_one_process_at_a_time_mends_a_damaged_entry(tmp_path):
    damaged = kept(tmp_path) / "meta.json"
    damaged.write_bytes(b"")
    mending = threading.Thread(target=kept, args=(tmp_path,))
    with exclusive(tmp_path / ".writing"):  # as another process holds it that mends the same entry
        mending.start()
        mending.join(0.5)
        assert damaged.read_bytes() == b"" and mending.is_alive()
    mending.join(PLENTY)
    assert Store(tmp_path).get("key") is not None


def test_what_another_run_may_use_is_not_dropped_until_that_run_is_killed(tmp_path):
    entry, old = kept(tmp_path / "models"), kept(tmp_path / "models", "old")
    leave()
    age(old, 2 * DAY)
    with another_process(tmp_path / "models") as process:
        tidy(tmp_path, 0)
        assert entry.is_dir() and not old.exists(), "only what nobody asked for in a day is dropped"
        process.kill()
    tidy(tmp_path, 0)
    assert not entry.exists()


def test_leftovers_of_killed_runs_go_when_no_process_can_be_writing_them(tmp_path):
    for section in stores.SECTIONS:
        (tmp_path / section / ".new-abc").mkdir(parents=True)
        (tmp_path / section / ".new-abc" / "model.onnx").write_bytes(DATA)
    kept(tmp_path / "models")
    leave()
    with another_process(tmp_path / "models") as process:
        tidy(tmp_path)
        assert [path.parent.name for path in tmp_path.glob("*/.new-*")] == ["models"]
        process.kill()
    freed = tidy(tmp_path)
    assert (freed.entries, freed.bytes) == (1, len(DATA))
    assert Store(tmp_path / "models").get("key") is not None


# ---- its size ------------------------------------------------------------------------------------------------
@pytest.mark.smoke
def test_what_was_not_used_for_longest_is_dropped_first(tmp_path):
    for number, name in enumerate(("first", "second", "third", "fourth")):
        age(kept(tmp_path / "models", name), 1000 - number)
    assert Store(tmp_path / "models").get("first") is not None
    leave()
    size = sum(file.stat().st_size for file in tmp_path.glob("models/*/*"))
    freed = tidy(tmp_path, size // 2)
    assert sorted(path.name for path in tmp_path.glob("models/*") if path.is_dir()) == ["first", "fourth"]
    assert freed.entries == 2 and freed.left <= size // 2


@pytest.mark.parametrize(("text", "size"), [
    ("20GiB", 20 << 30), ("512 MiB", 512 << 20), ("0B", 0), ("1.5KiB", 1536), ("2TiB", 2 << 40), ("", None),
    ("20", None), ("GiB", None), ("-1GiB", None), ("1e3GiB", None), ("20GB", None), ("9" * 50 + "GiB", None),
    ("nan", None),
])  # fmt: skip
def test_a_size_is_a_number_with_its_unit(text, size):
    if size is None:
        with pytest.raises(UserError, match="is not a size"):
            bytes_of(text)
    else:
        assert bytes_of(text) == bytes_of(size_of(size)) == size


# ---- conformance clean ---------------------------------------------------------------------------------------
def a_store(folder: Path) -> Path:
    home = folder / "store"
    kept(home / "models")
    for place in ("failures/abc", "documents", "cluster", "environments"):
        (home / place).mkdir(parents=True)
    (home / ".gitignore").write_text("*\n")
    leave()
    return home


def test_a_store_of_another_version_is_made_again_which_is_said_once(tmp_path):
    home = a_store(tmp_path)
    assert [make(home), make(home), make(tmp_path / "new")] == [True, False, False]


def test_clean_removes_a_store_and_says_what_that_freed(tmp_path, capsys):
    home = a_store(tmp_path)
    assert cli.main(["clean", "--store", str(home), "--leftovers"]) == 0
    assert cli.main(["clean", "--store", str(home), "--limit", "1MiB"]) == 0 and (home / "models" / "key").is_dir()
    assert cli.main(["clean", "--store", str(home), "--limit", "0B"]) == 0
    assert not (home / "models" / "key").exists() and (home / "failures" / "abc").is_dir()
    assert cli.main(["clean", "--store", str(home)]) == 0 and not home.exists()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1].split(" of ")[1].split(" ")[0] for line in lines] == ["0", "0", "1", "0"]


def test_clean_leaves_a_store_that_a_run_uses(tmp_path, capsys):
    home = a_store(tmp_path)
    with another_process(home / "models") as process:
        assert cli.main(["clean", "--store", str(home)]) == 2
        process.kill()
    assert (home / "models" / "key").is_dir()
    assert "a run uses it" in capsys.readouterr().err


def test_clean_refuses_what_is_no_store(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    home = a_store(tmp_path)
    (home / "notes.txt").write_text("mine")
    for name, said in {"empty": "it has none", "file": "no such folder", "store": "it has 'notes.txt'"}.items():
        assert cli.main(["clean", "--store", str(tmp_path / name)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert cli.main(["clean", "--store", str(home), "--limit", "all"]) == 2
    assert (home / "notes.txt").exists() and (home / "models" / "key").is_dir()


# ---- failing draws that are kept -----------------------------------------------------------------------------
DRAW = {"dims": {"batch": 3}, "regime": "plain", "seed": 5, "index": 0}
UNREADABLE: dict[str, bytes] = {
    "no JSON": b"\xff\xfe\0", "nested": b"[" * 100_000, "no draw": b'{"dims": 3}',
    "sizes": json.dumps({**DRAW, "dims": {"batch": "3"}}).encode(),
    "regime": json.dumps({**DRAW, "regime": "nowhere"}).encode(),
    "negative": json.dumps({**DRAW, "seed": -1}).encode(), "more": json.dumps({**DRAW, "more": 1}).encode(),
}  # fmt: skip


def test_kept_draws_that_cannot_be_read_are_dropped_and_told(bench):
    cells = bench.cells(f"{BODY}export: {{torchscript: [17]}}\nruntimes: onnxruntime")
    (cell,) = (cell for cell in cells if cell.check == "accuracy")
    failures = bench.folder / "failures"
    folder = failures / hashlib.sha384(cell.id.encode()).hexdigest()[:16]
    folder.mkdir(parents=True)
    for name, data in UNREADABLE.items():
        (folder / name).write_bytes(data)
    (folder / "of other dims").write_text(json.dumps({**DRAW, "dims": {"n": 3}}))
    (folder / "sound").write_text(json.dumps(DRAW))
    (folder / "a folder").mkdir()
    record = bench.run_cell(cell, failures=failures)
    assert verdict(record) == PASSED and record.dropped_draws == len(UNREADABLE)
    assert details(record) == [f"{len(UNREADABLE)} kept failing draws could not be read and were dropped"]
    assert [file.name for file in folder.iterdir()] == ["a folder"]
    assert bench.run_cell(cell, failures=failures).dropped_draws == 0


def test_a_draw_that_was_kept_is_made_as_small_as_a_new_one(bench):
    """It is kept with its dims in the order of the alphabet, which need not be that of the case."""
    body = case_of("torch.sin(x)", "runtimes: onnxruntime", dims="n: 2..9, batch: 1..9", x="[batch, n]")
    failures = bench.folder / "failures"
    with wrong_runtime(lambda inputs, outputs: [outputs[0] + 1]):
        new, kept = (bench.run(body, failures=failures) for _ in range(2))
    assert new.draw is not None and kept.draw is not None
    assert new.draw["dims"] == kept.draw["dims"] == {"n": 2, "batch": 1}


def test_a_full_disk_is_the_fault_of_the_host(tmp_path, bench, fill_disk):
    fill_disk("write_bytes", Path("/"))
    record = Bench(bench.folder, tmp_path / "full").run(BODY)
    assert verdict(record) == ("failed", "check", "CannotWrite", "harness")
    assert record.reason is not None and record.reason.startswith("the host's disk is full: OSError")
    assert not any("mistake" in line or "Traceback" in line for line in details(record))


def test_what_was_used_since_the_run_began_stays(tmp_path):
    began = time.time() - 60
    age(kept(tmp_path / "models", "before"), 100)
    kept(tmp_path / "models", "used")
    leave()
    assert tidy(tmp_path, 0, began).left > 0
    assert [path.name for path in tmp_path.glob("models/*") if path.is_dir()] == ["used"]
