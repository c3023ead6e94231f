"""What lowering refuses, and what it says then; donation; names, sources and scopes of steps."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import LoweringError, UnsupportedOpsError
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Execute
from tests.lower.ipu.cases import TINY, check, normal

X = normal(4, 3)


def test_all_that_is_refused_is_in_one_error_with_its_lines():
    def f(x):
        y = nx.fft.fft(x).real
        z = nx.pure_callback(np.sin, x, x)
        return x.astype(nx.bfloat16) * 2, y + z

    with pytest.raises(UnsupportedOpsError) as caught:
        lower(nx.make_jaxpr(f)(X), TINY)
    text = str(caught.value)
    for part in ("fft", "pure_callback", "bfloat16", "test_lower.py", "z = nx.pure_callback"):
        assert part in text, text
    assert isinstance(caught.value, LoweringError)
    assert len(caught.value.rows) >= 3


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int64", "bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_without_tile_memory(dtype):
    x = nx.zeros((3,), dtype)
    with pytest.raises(UnsupportedOpsError, match="tiles have no"):
        lower(nx.make_jaxpr(lambda x: x)(x), TINY)


@pytest.mark.parametrize(("preset", "words"), [("int8", "weights constants"), ("int16x8", '"int8"'), ("fp8", "float8")])
def test_quantized_programs_that_tiles_have_not(preset: str, words: str):
    """They say what to do about the quantization, not about the integers that it is made of."""
    params, x = {"w": normal(4, 3), "b": normal(3)}, normal(2, 4)
    q = nx.quantize(lambda p, x: x @ p["w"] + p["b"], preset, calibrate=[(params, x)])
    with pytest.raises(UnsupportedOpsError) as caught:
        lower(nx.make_jaxpr(q)(params, x), TINY)
    assert words in str(caught.value)
    assert preset == "fp8" or [what for what, *_ in caught.value.rows] == ["qdot"]


def test_what_is_donated_stays_in_its_place():
    program = check(lambda p, x: (p - x, nx.sum(x)), X, X * 2, donate=(0,))
    assert program.aliases == {0: 0}
    assert program.outputs[0] is program.inputs[0]
    assert program.inputs[0].role == "state"


def test_donated_inputs_may_change_places():
    check(lambda a, b: (b, a), X, X + 1, donate=(0, 1))
    check(lambda a, b: (a[::-1], a), X, X + 1, donate=(0, 1))
    check(lambda a, b: (a + b, a - b), X, X + 1, donate=(0, 1))


def test_steps_know_where_they_come_from():
    def f(x):
        with nx.named_scope("layer"):
            return nx.sum(nx.sin(x))

    steps = [s for s in lower(nx.make_jaxpr(f)(X), TINY).steps if isinstance(s, Execute)]
    assert {s.scope for s in steps} == {"layer"}
    assert all(s.source is not None and s.source.file == __file__ for s in steps)


def test_what_is_written_last_knows_its_line():
    found = lower(nx.make_jaxpr(lambda x: nx.exp(x)[:, None] * x)(np.ones(4, np.float32)), TINY)
    (y,) = found.outputs
    assert y.source is not None and "nx.exp(x)" in str(y.source.text)


def test_equal_constants_lie_in_memory_once():
    table = normal(5, 4)
    program = check(lambda x: (x @ table, x * 0 + table[:1, :3].sum(), (x + 1) @ table), normal(3, 5)[:, :5])
    constants = [v for v in program.variables() if v.role == "constant" and v.size == 20]
    assert len(constants) <= 1


def test_inputs_lie_where_they_are_first_needed():
    program = check(lambda table, i: table[i], normal(40, 16), np.array([3, 1], np.int32))
    table = program.inputs[0]
    # Every tile has all rows of its columns.
    assert all(p.boxes.sizes[-2] == 40 for p in table.pieces)
