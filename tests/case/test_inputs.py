"""Shapes, regimes and seeds of the examples, and that values stay inside what a case declares."""

import importlib
import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conformance.case.draw.draw import Draw, Maker, regimes_of, seed_of
from conformance.case.draw.shapes import boundary_sizes, drawn_shapes, shrink, trace_sizes
from conformance.case.draw.value_regimes import _pick, make
from conformance.case.files.inputs import Input
from conformance.process.errors import Stopped
from conformance.results.records.words import REGIMES, SPECIALS
from tests.kit.cases import dims_of, load_case

ranges = st.tuples(st.integers(0, 20), st.integers(0, 40), st.integers(1, 4)).map(
    lambda t: f"{t[0]}..{t[0] + t[1]} step {t[2]}"
)


@given(ranges, ranges, ranges)
def test_no_dim_is_traced_at_0_or_1_or_at_the_size_of_another(a, b, c):
    found = dims_of(a=a, b=b, c=c)
    options = [[v for v in found.ranges[name].values({}) if v > 1] for name in "abc"]
    assume(all(len(values) >= 3 for values in options))
    sizes = trace_sizes(found, {})
    assert found.allow(sizes) and min(sizes.values()) > 1 and len(set(sizes.values())) == 3


@pytest.mark.parametrize("where", ["k < n", "n < k", "k <= n", "k + n < 9", "k != n", "n == 2*k"])
def test_conditions_do_not_bring_0_1_or_equal_sizes_back(where):
    found = dims_of([where], n="1..16", k="1..16")
    for odd in (False, True):
        sizes = trace_sizes(found, {}, odd=odd)
        assert found.allow(sizes) and min(sizes.values()) > 1 and sizes["n"] != sizes["k"]


@pytest.mark.smoke
def test_a_declared_point_of_tracing_is_taken():
    assert trace_sizes(dims_of(n="1..9", k="1..9"), {"n": 7})["n"] == 7


def test_the_second_point_of_tracing_differs_in_every_dim():
    found = dims_of(a="1..9", b="2..20 step 3")
    first, odd = trace_sizes(found, {}), trace_sizes(found, {}, odd=True)
    assert first["a"] != odd["a"] and first["b"] != odd["b"]


def test_ranges_that_leave_nothing_are_an_error():
    with pytest.raises(ValueError, match="no sizes satisfy"):
        trace_sizes(dims_of(["n > 20"], n="1..9"), {})


@pytest.mark.smoke
def test_boundary_shapes_go_beyond_the_traced_one_in_all_dims_together_and_in_each():
    shapes = boundary_sizes(dims_of(a="1..64", b="1..64"), {"a": 3, "b": 5})
    assert shapes[0] == {"a": 3, "b": 5}
    assert all(both in shapes for both in ({"a": 4, "b": 6}, {"a": 1, "b": 1}, {"a": 64, "b": 64}))
    assert len({tuple(sizes.values()) for sizes in shapes}) == len(shapes)
    assert all({"a": 3, "b": 5, **one} in shapes for one in ({"a": 1}, {"a": 7}, {"a": 64}, {"b": 1}, {"b": 11}))


@pytest.mark.smoke
def test_ends_that_depend_on_another_dim_follow_it():
    found = dims_of(n="2..8", k="1..n")
    shapes = boundary_sizes(found, trace_sizes(found, {}))
    assert {"n": 8, "k": 8} in shapes and {"n": 2, "k": 1} in shapes and all(found.allow(sizes) for sizes in shapes)


def test_drawn_shapes_do_not_depend_on_what_else_the_process_has_imported(tmp_path, monkeypatch):
    found = dims_of(a="1..4096", b="1..4096")
    before = drawn_shapes(found, 100, seed=3)
    (tmp_path / "numbers_that_a_case_might_have.py").write_text(f"SIZES = {list(range(1000, 1400))}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("numbers_that_a_case_might_have")
    assert drawn_shapes(found, 100, seed=3) == before


def test_there_are_as_many_examples_where_there_are_few_shapes():
    found = drawn_shapes(dims_of(a="1..2"), 8, seed=0)
    assert {sizes["a"] for sizes, _ in found} == {1, 2} and len({seed for _, seed in found}) == 8


@pytest.mark.smoke
def test_drawn_shapes_are_allowed_varied_and_the_same_for_the_same_seed():
    found = dims_of(["k != 3"], n="1..64", k="1..n")
    first = drawn_shapes(found, 20, 7)
    assert len(first) == 20 and first == drawn_shapes(found, 20, 7)
    assert first != drawn_shapes(found, 20, 8) and all(found.allow(sizes) for sizes, _ in first)
    assert len({sizes["n"] for sizes, _ in first}) > 5
    assert drawn_shapes(found, 0, 7) == []


@pytest.mark.smoke
def test_shrinking_stays_inside_the_ranges_and_keeps_what_does_not_get_smaller():
    found = dims_of(["k != 2"], n="2..32 step 2", k="1..n")
    assert shrink(found, {"n": 32, "k": 30}, lambda sizes: sizes["k"] >= 2) == {"n": 4, "k": 3}
    assert shrink(found, {"n": 32, "k": 30}, lambda sizes: sizes == {"n": 32, "k": 30}) == {"n": 32, "k": 30}


@pytest.mark.smoke
def test_over_a_few_shapes_every_regime_has_its_turn_and_each_shape_gets_plain_values():
    seen = [regimes_of("accuracy", 4, shape) for shape in range(3)]
    assert all(one[0] == "plain" and len(one) == 4 for one in seen) and set(itertools.chain(*seen)) == set(REGIMES)
    assert set(itertools.chain(*(regimes_of("specials", 4, shape) for shape in range(2)))) == set(SPECIALS)


@pytest.mark.smoke
def test_seeds_are_the_same_in_every_process_and_differ_between_cells():
    assert seed_of("accuracy[a-torchscript-op17-onnxruntime-fp32]") == 1426026176
    assert len({seed_of("a", k) for k in range(1000)}) == 1000
    assert all(0 <= seed_of(str(k)) < 2**32 for k in range(100))


def array_of(spec, regime, seed=0, **sizes):
    one = Input.model_validate(spec)
    return make(one, sizes, regime, np.random.default_rng(seed))


@given(st.floats(-2000, 2000, width=32), st.floats(0, 3000, width=32), st.sampled_from(REGIMES),
       st.integers(0, 2**32 - 1), st.integers(0, 40))  # fmt: skip
def test_uniform_values_stay_between_their_ends_in_every_regime(low, width, regime, seed, n):
    high = low + width
    array = array_of({"type": "float32[n]", "values": {"uniform": {"low": low, "high": high}}}, regime, seed, n=n)
    assert (array.shape, array.dtype) == ((n,), np.float32) and (np.float32(low) <= array).all()
    assert (array <= np.float32(high)).all()


@given(st.integers(-50, 50), st.integers(0, 60), st.sampled_from([*REGIMES, *SPECIALS]), st.integers(0, 2**32 - 1))
def test_integers_stay_between_their_ends_in_every_regime(low, width, regime, seed):
    spec = {"type": "int64[n]", "values": {"integers": {"low": low, "high": low + width}}}
    array = array_of(spec, regime, seed, n=20)
    assert array.dtype == np.int64 and low <= array.min() and array.max() <= low + width


@pytest.mark.parametrize("regime", [*REGIMES, *SPECIALS])
def test_choices_bools_and_permutations_keep_to_their_values(regime):
    for seed in range(20):
        chosen = array_of({"type": "int32[n]", "values": {"choice": [3, 7, 11]}}, regime, seed, n=9)
        assert set(chosen.tolist()) <= {3, 7, 11} and chosen.dtype == np.int32
        assert array_of({"type": "bool[n]"}, regime, seed, n=9).dtype == bool
        shuffled = array_of({"type": "int64[2, n]", "values": {"permutations": "n"}}, regime, seed, n=9)
        assert (np.sort(shuffled, axis=-1) == np.arange(9)).all()


@pytest.mark.parametrize("regime", [*REGIMES, *SPECIALS])
def test_values_that_are_sorted_ascend_along_the_last_axis_and_nan_comes_last(regime):
    for values in ({}, {"values": {"integers": {"low": -9, "high": 9}}}, {"values": {"choice": [3, 1, 2]}}):
        kind = "int64" if "integers" in str(values) else "float32"
        for seed in range(5):
            array = array_of({"type": f"{kind}[3, n]", "sorted": True, **values}, regime, seed, n=9)
            assert np.array_equal(array, np.sort(array, axis=-1), equal_nan=kind == "float32")


@pytest.mark.parametrize("says, told", [
    ({"type": "float32[]"}, "sorted: values ascend along the last axis"),
    ({"type": "float32[3]", "values": {"exactly": [3, 1, 2]}}, "numbers that are drawn, which exactly are not"),
    ({"type": "int64[3]", "values": {"permutations": 3}}, "numbers that are drawn, which permutations are not"),
    ({"type": "string[3]", "values": {"texts": ["a"]}}, "numbers that are drawn, which texts are not"),
])  # fmt: skip
def test_sorted_stands_beside_numbers_that_are_drawn(says, told):
    with pytest.raises(ValueError, match=told):
        Input.model_validate({**says, "sorted": True})


@pytest.mark.smoke
def test_the_ends_of_integers_may_depend_on_dims():
    spec = {"type": "int64[n]", "values": {"integers": {"low": 0, "high": "n - 1"}}}
    for n in (1, 2, 30):
        found = [array_of(spec, regime, n=n) for regime in REGIMES]
        assert max(array.max() for array in found) == n - 1 and min(array.min() for array in found) == 0


@pytest.mark.smoke
@pytest.mark.parametrize("regime, holds", [
    ("zero", lambda a: (a == 0).all()), ("equal", lambda a: (a == a[0]).all()),
    ("negative", lambda a: (a <= 0).all()), ("tiny", lambda a: (np.abs(a) <= 1.01e-7).all() and (a != 0).any()),
    ("ties", lambda a: len(set(a.tolist())) < 10), ("large", lambda a: np.abs(a).max() > 15),
    ("grid", lambda a: np.allclose(a * 20, np.round(a * 20), atol=1e-4)),
    ("offset", lambda a: abs(a.mean()) > 5 * a.std() > 0), ("plain", lambda a: len(set(a.tolist())) > 60),
])  # fmt: skip
def test_each_regime_is_what_its_name_says(regime, holds):
    for seed in range(20):
        array = array_of({"type": "float32[n]"}, regime, seed, n=64)
        assert holds(array) and np.isfinite(array).all()


@pytest.mark.parametrize("low, high, held", [(0, 2, True), (-3, 0, True), (-1, 1, True), (0.5, 2, False)])
def test_tiny_values_lie_on_the_side_of_zero_that_a_range_has(low, high, held):
    spec = {"type": "float32[n]", "values": {"uniform": {"low": low, "high": high}}}
    array = array_of(spec, "tiny", 3, n=64)
    assert array.min() >= low and array.max() <= high
    assert bool(np.abs(array).max() <= 1.01e-7 and (array != 0).any()) == held


def test_large_values_reach_every_magnitude_at_which_functions_change():
    largest = [np.abs(array_of({"type": "float32[n]"}, "large", seed, n=8)).max() for seed in range(60)]
    for size in (17, 30, 90, 1000):
        assert any(0.8 * size < one < 1.2 * size for one in largest)


@pytest.mark.parametrize("regime, special", [
    ("nan", np.isnan), ("inf", np.isposinf), ("-inf", np.isneginf),
    ("signed zero", lambda a: (a == 0) & np.signbit(a)),
])  # fmt: skip
def test_specials_are_there_and_leave_other_values_alone(regime, special):
    found = [array_of({"type": "float32[n]"}, regime, seed, n=64) for seed in range(20)]
    assert any(special(array).any() for array in found) and all((~special(array)).any() for array in found)
    assert len({np.flatnonzero(special(array)).tobytes() for array in found}) > 5, "at places of their own"


def test_duplicates_are_certain_among_ties_of_integers():
    spec = {"type": "int64[n]", "values": {"integers": {"low": 0, "high": 10**6}}}
    assert all(len(set(array_of(spec, "ties", seed, n=8).tolist())) < 8 for seed in range(20))


@pytest.mark.smoke
def test_a_draw_makes_the_same_arrays_every_time(tmp_path):
    case = load_case(tmp_path, 'forward: x + y\ninputs: {x: "float32[n]", y: "float32[n]"}\ndims: {n: 1..9}\n')
    maker = Maker(case, lambda name: None)
    draw = Draw({"n": 5}, "plain", 3)
    first, again = maker(draw), maker(draw)
    assert all(np.array_equal(first[name], again[name]) for name in "xy")
    assert not np.array_equal(first["x"], first["y"])
    assert not np.array_equal(first["x"], maker(Draw({"n": 5}, "plain", 4))["x"])


def test_inputs_that_do_not_fit_the_memory_are_refused_before_they_are_made(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: "float32[2000000, n]"}\ndims: {n: 1..2000000}')
    make_inputs = Maker(case, lambda name: None)
    assert make_inputs(Draw({"n": 1}, "plain", 0))["x"].size == 2_000_000
    with pytest.raises(
        Stopped,
        match=r"the inputs take 1.49e\+04 GiB .*; the largest is x, float32\[2000000, 2000000\]: declare .*:1",
    ):
        make_inputs(Draw({"n": 2_000_000}, "plain", 0))


@pytest.mark.parametrize("shape", [(), (5, 3), (2**15 + 3,), (0,)], ids=str)
def test_options_are_picked_as_numpy_does_however_many(shape):
    options, rng, other = np.array([-1.0, 1.0, 4.0]), np.random.default_rng(3), np.random.default_rng(3)
    np.testing.assert_array_equal(_pick(options, shape, rng), other.choice(options, size=shape))
    assert rng.integers(1 << 60) == other.integers(1 << 60)  # what is drawn next stays as it was
