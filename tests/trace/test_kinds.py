"""Programs that nxjax did not write: parameters that do not fit are refused, and what is accepted has one meaning."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import AxisError, MemoryLimitError, NxError, ParameterError, ProgramError
from nxjax.ops import vocabulary
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.kinds import _parameters, kind_of
from nxjax.trace.text import parse_program
from nxjax.transforms.call import jit_call

# A program for each op that has parameters.
PROGRAMS = {
    found.group(1): text
    for text in (Path(__file__).parent / "parameters.txt").read_text().splitlines()
    if (found := re.search(r"= ([a-z_0-9]+)\[", text))
}
# What programs of text cannot hold: Python functions, or parameters that a user's function has.
FUNCTIONS = frozenset((
    "call_exported", "check", "composite", "custom_jvp_call", "custom_lin", "custom_root", "custom_vjp_call",
    "custom_vmap_call",
    "debug_callback", "io_callback", "linear_call", "pure_callback",
))  # fmt: skip
# Literals of parameters: numbers that are no sizes in a type and no operands, and what stands for True and False.
_LITERAL = re.compile(r"(?<![\w\[.:])-?\d+(?![\w.\]]|,\d)|\bTrue\b|\bFalse\b|\bNone\b")
_TUPLE = re.compile(r"\((?:-?\d+, )*-?\d+,?\)")
_INSTEAD = ("-1", "1099511627776", "7", "True", "1.5", "'x'", "()")


def mutants(text):
    """``text`` with one literal of a parameter replaced, or one tuple of numbers made longer, shorter or doubled."""
    start = text.index("[", text.index(" let "))
    for found in _LITERAL.finditer(text, start):
        if text[found.end() : found.end() + 1] != ":" and not re.search(r"[a-z]\d+\[[\d,]*$", text[: found.start()]):
            for other in _INSTEAD:
                yield text[: found.start()] + other + text[found.end() :]
    for found in _TUPLE.finditer(text, start):
        n = found.group().strip("(),").split(", ")
        for other in ([*n, n[0]], n[:-1], n[:1] * len(n)):
            yield f"{text[: found.start()]}({', '.join(other)}{',' if len(other) == 1 else ''}){text[found.end() :]}"


def value(t, rng):
    if t.dtype == dtypes.key:
        return wrap(np.zeros(t.shape, dtypes.key))
    if t.dtype in dtypes.BITS:
        return wrap(rng.integers(0, 2, t.shape).astype(t.dtype))
    return wrap(np.asarray(rng.uniform(0.1, 2, t.shape)).astype(t.dtype))


def results(program, args, executor):
    """What an executor gives, or the name of its error."""
    with nx.config.using(executor=executor, check=False):
        try:
            jit_call(*args, program=program, name="f")
            # The first call of a short program may be by its meaning; this one is of machine code.
            return [y.numpy() for y in jit_call(*args, program=program, name="f")]
        except NxError as error:
            return type(error).__name__


@pytest.mark.parametrize("op", sorted(PROGRAMS))
def test_a_damaged_parameter_is_refused_or_means_one_thing(op):
    assert str(parse_program(PROGRAMS[op])) == str(parse_program(str(parse_program(PROGRAMS[op]))))
    for text in dict.fromkeys(mutants(PROGRAMS[op])):
        try:
            program = parse_program(text)
        except NxError:
            continue
        rng = np.random.default_rng(0)
        args = [value(t, rng) for t in program.in_types]
        expected, got = (results(program, args, executor) for executor in ("reference", "cpu"))
        assert isinstance(got, str) == isinstance(expected, str), f"{text}\n{expected}\n{got}"
        if isinstance(got, str):
            continue
        for t, y, z in zip(program.out_types, got, expected, strict=True):
            assert (y.shape, y.dtype) == (z.shape, z.dtype) == (t.shape, t.dtype), text
            if t.dtype in dtypes.INEXACT:
                # An eigenvector may have either sign.
                y, z = (np.abs(y), np.abs(z)) if op == "eigh" else (y, z)
                np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-3, err_msg=text)
            else:
                assert y.tobytes() == z.tobytes(), text


def test_every_op_with_parameters_has_a_program():
    built = list(vocabulary.every().values())
    known = {op.name for op in built if _parameters(type(op))[0] and not op.any_params}
    assert known - FUNCTIONS <= PROGRAMS.keys()


@pytest.mark.parametrize(
    ("op", "old", "new", "error"),
    [
        ("cumsum", "axis=0", "axis=-1", AxisError),
        ("softmax", "axis=0", "axis=-2", AxisError),
        ("iota", "dimension=0", "dimension=-1", AxisError),
        ("sort", "dimension=1", "dimension=-1", AxisError),
        ("argmax", "axes=(0,)", "axes=(-1,)", AxisError),
        ("top_k", "axis=1", "axis=-1", AxisError),
        ("while", "body_nconsts=1", "body_nconsts=-100", ParameterError),
        ("scan", "num_carry=1", "num_carry=-1", ParameterError),
        ("scan", "unroll=1", "unroll=0", ParameterError),
        ("reduce_precision", "exponent_bits=2", "exponent_bits=0", ParameterError),
        ("rev", "dimensions=", "axes=", ParameterError),
        ("sort", "num_keys=1", "num_keys=True", ParameterError),
        ("jit", "b:f32[3,2]. let", "b:f32[2,3]. let", NxError),
    ],
)
def test_the_error_names_the_op_what_was_got_and_what_was_expected(op, old, new, error):
    assert old in PROGRAMS[op]
    with pytest.raises(error) as caught:
        parse_program(PROGRAMS[op].replace(old, new))
    if error is not NxError:
        message = str(caught.value)
        assert op in message.splitlines()[0]
        assert "got:" in message
        assert "expected:" in message


def test_bits_beyond_those_of_a_dtype_change_nothing():
    text = PROGRAMS["reduce_precision"].replace(
        "exponent_bits=2 mantissa_bits=1", "exponent_bits=100 mantissa_bits=100"
    )
    x = wrap(np.linspace(-1e30, 1e30, 61, dtype=np.float32))
    for executor in ("reference", "cpu"):
        (y,) = results(parse_program(text), [x], executor)
        np.testing.assert_array_equal(y, x.numpy())


@pytest.mark.parametrize("index", [-5, -1, 0, 1, 2, 3, 100])
def test_an_index_without_a_branch_means_the_last_one(index):
    program = parse_program(PROGRAMS["cond"])
    x = np.float32([3, 4])
    wanted = [x * x, x + x, x][index if 0 <= index < 3 else 2]
    for executor in nx.testing.executors():
        (y,) = results(program, [wrap(np.int32(index)), wrap(x)], executor)
        np.testing.assert_array_equal(y, wanted)
    # Of each element of a batch, and of an index that is known.
    batched = nx.vmap(lambda i: jit_call(i, wrap(x), program=program, name="f")[0])
    np.testing.assert_array_equal(batched(wrap(np.int32([index, 0]))), [wanted, x * x])
    known = nx.jit(lambda: jit_call(wrap(np.int32(index)), wrap(x), program=program, name="f")[0])
    np.testing.assert_array_equal(known(), wanted)


def test_kinds_are_those_of_the_annotations():
    for hint, fine, wrong in (
        (int, (0, -3, np.int64(2)), (True, 1.0, None, 1 << 70)),
        (bool, (True, np.bool_(False)), (0, 1, None)),
        (float, (0.5, 3, float("inf")), (True, "1", 1j, 10**400)),
        (tuple[int, ...], ((), (1, 2)), ([1], (1, 2.0), 3)),
        (tuple[int, int] | None, (None, (1, 2)), ((1,), (1, 2, 3))),
        (np.dtype, (dtypes.float32, dtypes.key), (np.float32, "f4", np.dtype("datetime64[s]"))),
    ):
        called, fits = kind_of(hint)
        assert called
        for v, good in itertools.chain(((v, True) for v in fine), ((v, False) for v in wrong)):
            assert fits(v) == good, (hint, v)


def test_programs_of_another_type_than_their_operands_are_refused():
    outer = "{ lambda ; a:f32[3]. let b:f32[3] = jit[name='g' program={ lambda ; a:f32[4]. let in (a,) }] a in (b,) }"
    with pytest.raises(ProgramError, match="jit: operands do not fit"):
        parse_program(outer)


@pytest.mark.parametrize("size", [2**45, 2**62, 2**63, 2**70])
@pytest.mark.parametrize(
    "text",
    [
        "{ lambda ; . let b:f32[N] = iota[dimension=0 dtype=f32 shape=(N,)] in (b,) }",
        "{ lambda ; a:f32[]. let b:f32[N,8] = broadcast_in_dim[broadcast_dimensions=() shape=(N, 8)] a in (b,) }",
        "{ lambda ; a:f32[0,N]. let b:f32[N,0] = transpose[permutation=(1, 0)] a in (b,) }",
        "{ lambda ; . let b:f32[N] = scan[body={ lambda ; . let in (1.0:f32[],) } length=N num_carry=0 num_consts=0"
        " reverse=False unroll=1] in (b,) }",
    ],
)
def test_arrays_that_no_memory_holds_are_refused(text, size):
    with pytest.raises(NxError):
        parse_program(text.replace("N", str(size)))


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_sizes_are_checked_before_anything_is_compiled(executor):
    with nx.config.using(executor=executor, check=False), pytest.raises(MemoryLimitError, match="no memory holds"):
        nx.jit(lambda x: nx.lax.broadcast(x, (2**40, 2**30)).sum())(1.0)


def test_numpy_without_memory_is_an_error_of_nxjax():
    with nx.config.using(executor="reference"), pytest.raises(MemoryLimitError, match="out of memory"):
        nx.jit(lambda: nx.lax.iota("float32", 2**44))()
