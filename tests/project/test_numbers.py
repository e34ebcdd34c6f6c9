"""The tables of numbers: what is right is rounded right, and of planted kernels the mistakes are counted."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from evidence import numbers
from evidence.numbers import kernels, page, run
from evidence.numbers.functions import FUNCTIONS, Function
from evidence.numbers.right import DOUBT, FORMATS, Right, off_by, rounded
from evidence.numbers.run import ALL, Plan, inputs, measure, measure_part
from evidence.numbers.tally import Row

HALF, SINGLE, BRAIN = FORMATS["float16"], FORMATS["float32"], FORMATS["bfloat16"]


def row(name, of=HALF):
    return Row(name, of.name, "planted", "1", ALL, "any")


def measured(monkeypatch, name, kernel, of=HALF, *, few=True):
    """Return what is counted of a kernel in place of a runtime's, on all values of a format of 16 bits; ``few`` of
    them in short inputs."""
    monkeypatch.setattr(run, "CHUNK", 2**15 if few else 2**17)
    monkeypatch.setattr(kernels, "opened", lambda *_: contextlib.nullcontext(kernel))
    found = row(name, of)
    measure_part(FUNCTIONS[name], of, [found], range(2**16))
    return found


def planted(name, changes, of=HALF):
    """A kernel that is right but for some inputs, by their bits, whose results have the given bits."""
    right = Right(FUNCTIONS[name], of)

    def kernel(x):
        result = right.of(x)
        for bits, wrong in changes.items():
            result.view(of.bits)[x.view(of.bits) == bits] = wrong
        return result

    return kernel


@pytest.mark.parametrize("of", [HALF, BRAIN], ids=lambda of: of.name)
@pytest.mark.parametrize("name", ["Exp", "Gelu", "Reciprocal", "Pow 0.5", "Cos"])
def test_a_sound_kernel_is_off_nowhere(monkeypatch, name, of):
    found = measured(monkeypatch, name, planted(name, {}, of), of)
    assert (found.off, found.events, found.largest, found.count) == (0, {}, {}, 2**16)
    assert 0 < found.compared < 2**16


PLANTED = {
    "3 steps off": ("Tanh", {0x3C00: 0x3A1B}, {"fall": 1}, 3),
    "5 steps off": ("Tanh", {0x3C00: 0x3A1D}, {"over": 1, "fall": 1}, 5),
    "a step down": ("Exp", {0x3C00: 0x416E}, {"fall": 1}, 2),
    "a result flushed": ("Tanh", {0x0100: 0}, {"flushed": 1, "fall": 1}, 0),
    "an input flushed": ("Log", {0x0100: 0xFC00}, {"flushed": 1, "fall": 1}, 0),
    "the other zero": ("Tanh", {0x8000: 0}, {"sign": 1}, 0),
    "a NaN": ("Tanh", {0x3C00: 0x7E00}, {"nan": 1}, 0),
    "a number for NaN": ("Log", {0xBC00: 0}, {"nan": 1}, 0),
    "infinite too early": ("Exp", {0x498B: 0x7C00}, {"infinity": 1}, 0),
}
"""An operator, the bits of an input and of what it gives, what has to be counted, and how far it is off."""


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_counted_and_nothing_else(monkeypatch, mistake):
    name, changes, events, steps = PLANTED[mistake]
    found = measured(monkeypatch, name, planted(name, changes))
    assert found.events == events and found.largest.get("worst", 0) == steps and found.off == (steps > 0)
    assert all(seen[0] in changes for kind, seen in found.at.items() if kind != "fall")


def test_a_kernel_whose_results_hang_on_the_length_is_told(monkeypatch):
    sound, odd = planted("Exp", {}), planted("Exp", {0x3C00: 0x4171})
    found = measured(monkeypatch, "Exp", lambda x: odd(x) if len(x) == 7 else sound(x), few=False)
    assert found.at == {"by length": [0x3C00, 0x4170, 0x4171]} and found.cut >= 2**16 and found.off == 0


TIES = [
    (SINGLE, 1 + 2.0**-24, 0x3F800000, 0x3F800001), (SINGLE, -(1 + 3 * 2.0**-24), 0xBF800001, 0xBF800002),
    (SINGLE, 2.0**-150, 0, 1), (SINGLE, 2.0**128 - 2.0**103, 0x7F7FFFFF, 0x7F800000),
    (HALF, 1 + 2.0**-11, 0x3C00, 0x3C01), (HALF, 65520.0, 0x7BFF, 0x7C00), (HALF, 3 * 2.0**-25, 1, 2),
    (BRAIN, 1 + 3 * 2.0**-8, 0x3F81, 0x3F82), (BRAIN, 2.0**128 - 2.0**119, 0x7F7F, 0x7F80),
]  # fmt: skip
"""A tie, and the bits of its neighbours, that nearer to zero first."""


@pytest.mark.parametrize(("of", "tie", "low", "high"), TIES)
def test_what_float64_takes_for_a_tie_is_decided_by_more_digits(of, tie, low, high):
    even = low if low % 2 == 0 else high
    for beyond, right in ((0, even), (1, high), (-1, low)):
        with mp.workprec(400):
            digits = mpf(tie) * (1 + beyond * mpf(2) ** -200)
        near = Right(Function("near", lambda x: torch.full_like(x, tie), lambda _, v=digits: v, torch.exp), of)
        assert int(near.of(np.ones(1, of.dtype)).view(of.bits)[0]) == right and near.asked == 1


def test_float64_is_rounded_to_bfloat16_once():
    value = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40, -(2.0**-134) - 2.0**-160, 3.4e38, np.inf])
    assert rounded(value, BRAIN).view(np.uint16).tolist() == [0x3F81, 0x3F81, 0x8001, 0x7F80, 0x7F80]


def test_half_of_a_tiny_input_and_a_little_more_is_rounded_up():
    x = np.array([1, 3, 2**31 + 1, 2**31 + 3], np.uint32).view(np.float32)
    for name in ("Gelu", "Gelu, tanh", "HardSwish"):
        right = Right(FUNCTIONS[name], SINGLE)
        assert right.of(x).view(np.uint32).tolist() == [1, 2, 2**31, 2**31 + 1] and right.asked == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_form_in_float64_is_nearer_than_what_is_asked_about(name):
    assert off_by(FUNCTIONS[name], 20) < DOUBT / 4


def test_a_sample_rises_and_has_what_is_special():
    halves = [inputs(SINGLE, start, 2**23, sampled=True) for start in (0, 2**23)]
    bits = np.concatenate(halves).view(np.uint32)
    assert len(bits) == 2**24 and (bits[1:] > bits[:-1]).all() and len(np.unique(bits[:4096] % 256)) > 200
    assert all((bits == one).any() for one in (0, 2**31, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000))


@pytest.fixture
def plan(monkeypatch, tmp_path):
    """A plan of one row in 4 parts, and the first values of each range that its kernel was given."""
    seen = []

    def kernel(x):
        if len(x) > 14:
            seen.append(float(x[0]))
        return planted("Exp", {0x3C00: 0x4171})(x)

    monkeypatch.setattr(kernels, "runtimes", lambda: {"planted": "1"})
    monkeypatch.setattr(kernels, "opened", lambda *_: contextlib.nullcontext(kernel))
    monkeypatch.setattr(run, "PART", 2**14)
    return Plan(["Exp"], ["float16"], kept=tmp_path), seen


def timeless(rows):
    return [dataclasses.replace(row, seconds=0) for row in rows]


def test_an_interrupted_row_goes_on_and_is_the_same(plan, monkeypatch, tmp_path):
    whole, seen = plan
    expected = timeless(measure(dataclasses.replace(whole, kept=tmp_path / "other")))
    assert len(expected) == 1 and expected[0].count == 2**16 and len(seen) == 4
    seen.clear()
    part_of, done = run.measure_part, []

    def cut_off(*arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(part_of(*arguments))

    monkeypatch.setattr(run, "measure_part", cut_off)
    with pytest.raises(KeyboardInterrupt):
        list(measure(whole))
    assert list(measure(dataclasses.replace(whole, until=0.0))) == []  # and no row of half of the values
    monkeypatch.setattr(run, "measure_part", part_of)
    assert timeless(measure(whole)) == expected and len(seen) == 4
    assert timeless(measure(whole)) == expected and len(seen) == 4


def test_what_does_not_run_is_a_row_and_a_small_host_is_told(plan, monkeypatch, capsys):
    def refuse(*_):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(kernels, "opened", refuse)
    (found,) = measure(plan[0])
    assert found.error == "RuntimeError: no kernel" and "does not run" in page.line(found)
    monkeypatch.setattr(run, "available", lambda: 2**20)
    assert numbers.main(["--quick"]) == 3 and "too little memory: a row needs 2 GiB" in capsys.readouterr().out


def test_the_page_keeps_rows_that_were_not_measured_again(monkeypatch, tmp_path):
    every = dataclasses.replace(row("Exp", SINGLE), count=2**32, largest={"worst": 2}, at={"worst": [1, 2, 4]})
    sample, newer = (dataclasses.replace(every, values="sample", version=version) for version in "12")
    other = row("Log", SINGLE)
    assert page.updated([every, other], [sample]) == [every, other]
    assert page.updated([sample], [every]) == [every] and page.updated([every], [newer]) == [newer]
    monkeypatch.setattr(page, "PAGE", tmp_path / "numbers.md")
    monkeypatch.setattr(page, "DATA", tmp_path / "numbers.json")
    page.write([every, other], 2.0**-45, "Here.")
    assert page.saved() == [every, other]
    lines = [line.split("|") for line in Path(page.PAGE).read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert [len(line) for line in lines] == [10] * 3 + [16] * 4 + [16] * 4 and "`00000001` 1.4013e-45" in str(lines)


@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
def test_a_runtime_is_measured(name):
    found = dataclasses.replace(row("Exp"), runtime=name)
    measure_part(FUNCTIONS["Exp"], HALF, [found], range(2**15))
    assert found.error is None and found.largest["worst"] == 1 and 0 < found.off < 100 and found.seconds > 0
