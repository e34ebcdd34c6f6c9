"""Expressions, ranges and tensor types of case files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.case.files.dims import Expression, Range, TensorType
from tests.kit.cases import dims_of

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("text, sizes, value", [
    ("n", {"n": 4}, 4), ("2*n", {"n": 4}, 8), ("n - 1", {"n": 4}, 3), ("-n + 9", {"n": 4}, 5),
    ("n // 3", {"n": 7}, 2), ("n % 3", {"n": 7}, 1), ("min(h, w) + max(h, w)", {"h": 2, "w": 9}, 11),
    ("k <= n", {"k": 3, "n": 3}, 1), ("k <= n and k != 3", {"k": 3, "n": 3}, 0), ("1 < n < 4", {"n": 4}, 0),
    ("7", {}, 7),
])  # fmt: skip
def test_an_expression_is_integer_arithmetic_over_dims(text, sizes, value):
    expression = Expression.parse(text)
    assert expression(sizes) == value and expression.names == set(sizes)


@pytest.mark.parametrize("text", [
    "n / 2", "n ** 2", "1.5", "n.bit_length()", "abs(n)", "min()", "min(a, key=b)", "lambda: 1", "[n]",
    "n if 1 else 2", "'n'", "n @ n", "(n := 3)", "__import__('os')", "min.__class__",
    "", "n +", "2 n", str(2**40), "True", "not n",
])  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="'"):
        Expression.parse(text)


def test_an_expression_that_cannot_be_computed_names_the_sizes():
    with pytest.raises(ValueError, match=r"'4 // n' at \{'n': 0\}"):
        Expression.parse("4 // n")({"n": 0})


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))
def test_a_range_holds_both_ends_where_the_step_reaches_them(low, more, step):
    values = Range.parse(f"{low}..{low + more} step {step}").values({})
    assert values[0] == low and values[-1] <= low + more < values[-1] + step


@pytest.mark.parametrize("text, values", [
    ("4", [4]), (4, [4]), ("0..2", [0, 1, 2]), ("32..64 step 16", [32, 48, 64]), ("1..n", [1, 2, 3]),
    ("n..2*n", [3, 4, 5, 6]), ("4..n", []),
])  # fmt: skip
def test_ranges_are_read_as_they_are_documented(text, values):
    assert list(Range.parse(text).values({"n": 3})) == values


@pytest.mark.parametrize("text, message", [
    ("9..4", "9 is larger than 4"), ("-3..4", "cannot be negative"), ("1..8 step 0", "at least 1"),
    ("1..", "not an expression"), ("1...8", "'"), ("a b..8", "not an expression"), ("1..2..3", "'"),
    ("-3", "negative"), ("1-8", "a range is written as 1..8"), ([1, 8], "write its ends as in 1..8"),
])  # fmt: skip
def test_a_range_that_cannot_be_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Range.parse(text)


@pytest.mark.parametrize("text, dtype, shape", [
    ("float32[batch, 5]", "float32", (2, 5)), ("float32[]", "float32", ()), (" int64 [ 2*batch ] ", "int64", (4,)),
    ("bool[min(batch, 7), max(1, batch)]", "bool", (2, 2)),
])  # fmt: skip
def test_a_tensor_type_has_onnx_syntax_with_numpy_dtypes(text, dtype, shape):
    found = TensorType.parse(text)
    assert (found.dtype, found.at({"batch": 2})) == (dtype, shape) and TensorType.parse(str(found)) == found


@pytest.mark.parametrize("text, message", [
    ("flaot32[2]", "did you mean 'float32'"), ("float32", "write it as"), ("float32(2)", "write it as"),
    ("float32[2,]", "'"), ("float32[a b]", "not an expression"), ("complex64[2]", "unknown dtype"),
    ("float[2]", "did you mean 'float"), ("float32[-1, 3]", "'-1' is not a size; a size that varies has a name"),
])  # fmt: skip
def test_a_tensor_type_that_is_none_says_how_to_write_it(text, message):
    with pytest.raises(ValueError, match=message):
        TensorType.parse(text)


@pytest.mark.parametrize("text", ["float32[n - 3]", "float32[n * 2147483648]"])
def test_a_shape_that_comes_out_negative_or_too_large_is_refused(text):
    with pytest.raises(ValueError, match="is "):
        TensorType.parse(text).at({"n": 2})


def test_dims_come_after_those_that_their_ends_name():
    assert list(dims_of(k="1..n", m="k..2*n", n="2..9").ranges) == ["n", "k", "m"]


def test_ranges_in_a_circle_are_refused_by_name():
    with pytest.raises(ValueError, match="a, b"):
        dims_of(a="1..b", b="1..a", c="1..2")


def test_allow_means_every_range_and_every_condition():
    found = dims_of(["k != 3"], k="1..n", n="2..9")
    assert found.allow({"k": 2, "n": 2}) and not found.allow({"k": 3, "n": 5})
    assert not found.allow({"k": 5, "n": 4}) and not found.allow({"k": 1, "n": 10})


@given(st.integers(-5, 40), st.integers(-5, 40))
def test_fit_gives_the_nearest_allowed_sizes(wish_n, wish_k):
    found = dims_of(n="2..32 step 3", k="1..n")
    sizes = found.fit({"n": wish_n, "k": wish_k})
    assert found.allow(sizes) and abs(sizes["n"] - wish_n) == min(abs(n - wish_n) for n in range(2, 33, 3))
    assert abs(sizes["k"] - wish_k) == min(abs(k - wish_k) for k in range(1, sizes["n"] + 1))


def test_fit_gives_nothing_where_a_condition_fails():
    assert dims_of(["n > 5"], n="1..9").fit({"n": 2}) is None


def test_fixing_holds_a_dim_at_one_value():
    found = dims_of(n="2..9", k="1..n").fixing({"n": 4})
    assert found.ranges["n"].fixed and list(found.ranges["k"].values({"n": 4})) == [1, 2, 3, 4]
