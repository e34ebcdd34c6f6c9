"""Which cells a shard has: each cell once, models whole, and about as many seconds in each."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.results.baseline.line import case_of
from conformance.results.baseline.shards import cut, parse_shard, repeated, shard

pytestmark = pytest.mark.smoke


def test_a_shard_is_one_of_several():
    assert [parse_shard(text) for text in ("1/1", "2/4", " 4/4 ")] == [(1, 1), (2, 4), (4, 4)]
    for text in ("0/4", "5/4", "2", "2/", "a/b", "-1/2", "1/0", "", "1/4/2"):
        with pytest.raises(ValueError, match="is no shard: write I/N"):
            parse_shard(text)
    with pytest.raises(ValueError, match="is not the id of a cell"):
        shard(["something"], 1, 2)


def test_a_new_case_moves_no_other():
    ids = [f"export[case{n}-dynamo-op20]" for n in range(50)]
    before = shard(ids, 2, 4)
    assert shard([*ids, "export[new-dynamo-op20]"], 2, 4) - {"export[new-dynamo-op20]"} == before
    assert 2 <= len(before) <= 30


def parts_of(ids, count, seconds=None):
    """The shards of the cells, which have each cell once."""
    parts = [shard(ids, index, count, seconds) for index in range(1, count + 1)]
    assert sorted(name for part in parts for name in part) == sorted(ids)
    return parts


def test_seconds_balance_the_shards():
    ids = [f"export[case{n}-dynamo-op20]" for n in range(20)]
    seconds = {name: float(2 ** min(n, 6)) for n, name in enumerate(ids)}
    loads = [sum(seconds[name] for name in part) for part in parts_of(ids, 3, seconds)]
    assert max(loads) - min(loads) <= max(seconds.values())


def test_a_case_that_is_longer_than_a_shard_is_divided_by_its_models():
    network = [f"{check}[network-dynamo-op{opset}{rest}]" for opset in (18, 20, 23)
               for check, rest in (("export", ""), ("accuracy", "-onnxruntime-fp32"))]  # fmt: skip
    others = [f"export[case{n}-dynamo-op20]" for n in range(6)]
    seconds = {**dict.fromkeys(network, 5.0), **dict.fromkeys(others, 1.0)}
    parts = parts_of([*network, *others], 3, seconds)
    assert [sum(map(seconds.__getitem__, part)) for part in parts] == [12.0, 12.0, 12.0]
    for part in parts:
        assert sum(name.startswith("export[network") for name in part) == 1, "each model is exported once"
        assert len({name.split("-op")[1][:2] for name in part if "[network" in name}) == 1


NETWORK = [
    "export[network-dynamo-op20]", "accuracy[network-dynamo-op20-onnxruntime-fp32]",
    *(f"{cell}-{precision}]" for precision in ("fp16", "int8") for cell in (
        "fidelity[network-dynamo-op20", "accuracy[network-dynamo-op20-onnxruntime",
        "specials[network-dynamo-op20-onnxruntime")),
]  # fmt: skip


def test_a_model_that_is_longer_than_a_shard_is_divided_by_its_precisions():
    seconds = dict.fromkeys(NETWORK, 10.0) | {f"export[case{n}-dynamo-op20]": 1.0 for n in range(40)}
    parts = parts_of(seconds, 3, seconds)
    for part in parts:
        assert len({name[-5:-1] for name in part if "accuracy[network" in name}) == 1
    loads = [sum(map(seconds.__getitem__, part)) + repeated(part, seconds) for part in parts]
    assert max(loads) - min(loads) <= 1.0
    assert sum(loads) == sum(seconds.values()) + 2 * 10.0, "two shards export the network once more"


def test_skipped_cells_take_no_export_along():
    """Those of a runtime that the host lacks, at a precision that is divided by its cells."""
    skipped = [name.replace("onnxruntime", "tensorrt") for name in NETWORK if "onnxruntime" in name]
    seconds = dict.fromkeys(NETWORK, 10.0) | dict.fromkeys(skipped, 0.0)
    assert repeated(skipped, seconds) == 0.0
    parts = parts_of(seconds, 8, seconds)
    assert max(sum(map(seconds.__getitem__, part)) + repeated(part, seconds) for part in parts) <= 30.0


@pytest.mark.parametrize("cells, wanted", [
    (NETWORK, 0.0), (["accuracy[network-dynamo-op20-onnxruntime-fp32]"], 1.0),
    (["export[network-dynamo-op20]", "accuracy[network-dynamo-op20-onnxruntime-fp16]"], 4.0),
    (["specials[network-dynamo-op20-onnxruntime-int8]"], 1.0 + 32.0), (["export[other-dynamo-op20]"], 0.0),
    ([], 0.0),
])  # fmt: skip
def test_a_shard_repeats_exports_and_conversions_that_others_have(cells, wanted):
    assert repeated(cells, {name: 2.0**n for n, name in enumerate(NETWORK)}) == wanted


def test_cells_of_an_onnx_file_are_cells():
    """A file in place of a module has no exporter of PyTorch's; its id has ``onnx`` there."""
    ids = [f"accuracy[net{n}-onnx-op17-{runtime}-fp32]" for n in range(4) for runtime in ("onnxruntime", "openvino")]
    assert case_of(ids[0]) == "net0"
    for seconds in (None, dict.fromkeys(ids, 1.0)):
        parts_of(ids, 2, seconds)


def test_a_cut_tells_shards_of_one_whole():
    ids, seconds = [f"export[case{n}-dynamo-op20]" for n in range(4)], {"export[case1-dynamo-op20]": 1.0}
    same = {cut(ids, 2), cut(reversed(ids), 2), cut(ids, 2, {"export[gone-dynamo-op20]": 1.0})}
    assert len(same) == 1 and len({*same, cut(ids[1:], 2), cut(ids, 3), cut(ids, 2, seconds)}) == 4


SMALL = [f"{check}[case{n}-dynamo-op{opset}]" for check in ("export", "more") for n in range(9) for opset in (1, 2)]


TIES = """
import random
from conformance.results.baseline.shards import shard
for seed in range(100):
    draw = random.Random(seed)
    seconds = {f"export[case{n}-dynamo-op{opset}]": draw.randint(1, 9) / 10 for n in range(6) for opset in (1, 2)}
    print([sorted(shard(seconds, index, 4, seconds)) for index in range(1, 5)])
"""


def test_jobs_divide_alike_in_whichever_order_their_sets_are():
    """The order of a set of texts is another one in each process, and so is the last digit of a sum of floats."""
    said = set[bytes]()
    for seed in ("1", "2", "3", "4"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        said.add(
            subprocess.run([sys.executable, "-c", TIES], env=environment, stdout=subprocess.PIPE, check=True).stdout
        )
    assert len(said) == 1


@given(st.sets(st.sampled_from(SMALL)), st.integers(1, 5), st.randoms(), st.booleans())
def test_shards_have_each_cell_once_and_models_whole_that_are_no_longer_than_a_shard(ids, count, random, balanced):
    seconds = {name: random.random() for name in random.sample(sorted(ids), len(ids) // 2)} if balanced else None
    parts = [shard(random.sample(sorted(ids), len(ids)), index, count, seconds) for index in range(1, count + 1)]
    assert sorted(name for part in parts for name in part) == sorted(ids)
    known = seconds or {}
    whole = sum(known.values())
    for part in parts:
        models = {name.partition("[")[2] for name in part}
        for model in models:
            cells = {name for name in ids if name.partition("[")[2] == model}
            longer = sum(known.get(name, 0.0) for name in cells) * count > whole
            assert cells <= part or (seconds and longer)
        if not seconds:
            assert {name for name in ids if case_of(name) in {case_of(one) for one in part}} == part
