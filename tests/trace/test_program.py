"""Programs: printed, parsed, checked, run; equations know their line and scope."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ProgramError, UnexpectedTracerError
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.elementary import sin
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.text import _python_value, parse_program, to_text
from nxjax.trace.types import ArrayType, parse_type

F3 = ArrayType((3,), dtypes.float32)


def round_trip(program):
    text = to_text(program)
    again = parse_program(text, program.values)
    assert to_text(again) == text
    return again


def test_text_of_a_small_program():
    program = stage(lambda x: [mul(sin(x), 2.0)], [F3])
    assert str(program) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = sin a\n"
        "    c:f32[3] = broadcast_in_dim[broadcast_dimensions=() shape=(3,)] 2.0:f32[]\n"
        "    d:f32[3] = mul b c\n"
        "  in (d,) }"
    )
    round_trip(program)


PROGRAMS = {
    "constants": lambda x: x + np.arange(3, dtype=np.float32),
    "literals": lambda x: x * np.float32(np.inf) + nx.where(x > 0, -1e-30, np.nan),
    "integers and bools": lambda x: ((x > 0).astype(int) << 2) & 7,
    "complex": lambda x: nx.real(x * (1 + 2j)),
    "keys": lambda x: x + nx.random.uniform(nx.random.key(3), (3,)),
    "gather": lambda x: x[nx.array([2, 0])],
    "convolution": lambda x: nx.lax.conv_general_dilated(x[None, None], x[None, None], (1,), "SAME"),
    "sorting": lambda x: nx.argsort(x),
    "nested jit": lambda x: nx.jit(lambda y: y * 2)(x) + nx.jit(lambda y: y * 2)(x),
    "scan": lambda x: nx.lax.scan(lambda c, v: (c + v, c * v), 0.0, x),
    "cond": lambda x: nx.lax.cond(x[0] > 0, lambda y: y, lambda y: -y, x),
    "while": lambda x: nx.lax.while_loop(lambda v: v[0] < 9, lambda v: v + 1, x),
    "derivatives": lambda x: nx.grad(lambda y: nx.sum(nx.tanh(y) ** 3))(x),
    "linear algebra": lambda x: nx.linalg.inv(nx.eye(3) * x),
    "softmax": lambda x: nx.nn.softmax(x),
}


def test_what_the_meaning_gives_are_arrays():
    program = nx.make_jaxpr(lambda x: (nx.lax.clz(x), nx.lax.pad(x, np.uint8(1), [])))(np.uint8(3))
    assert [type(y) for y in evaluate(program, [np.array(3, np.uint8)])] == [np.ndarray, np.ndarray]


@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip(name):
    program = nx.make_jaxpr(PROGRAMS[name])(np.array([0.5, 1.5, 2.5], np.float32))
    again = round_trip(program.check())
    x = wrap(np.array([0.5, 1.5, 2.5], np.float32))
    for a, b in zip(program(x), again(x), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert again.fingerprint == program.fingerprint


@pytest.mark.parametrize("text", ["f32[3,4]", "f32[]*", "key<fry>[2]", "bf16[0]", "u4[7]", "bool[]"])
def test_types_round_trip(text):
    assert repr(parse_type(text)) == text


def test_equations_know_the_users_line_and_scope():
    def f(x):
        with nx.named_scope("outer"), nx.named_scope("inner"):
            return nx.sin(x)  # this line

    program = nx.make_jaxpr(f)(1.0)
    (equation,) = program.equations
    assert equation.scope == "outer/inner"
    assert equation.source.file == __file__
    assert "this line" in equation.source.text
    assert "test_program.py" in program.pretty_print(source=True)
    assert "@outer/inner" in str(program)
    # The line survives a transform of the program.
    replayed = nx.make_jaxpr(nx.grad(nx.jit(f)))(1.0)
    inner = [e for outer in replayed.equations for p in outer.programs() for e in p.equations]
    assert inner
    assert all("this line" in e.source.text for e in inner if e.op.name in ("sin", "cos"))


def test_html_shows_every_op():
    html = nx.make_jaxpr(lambda x: nx.sin(x) * 2)(nx.ones(3))._repr_html_()
    assert "<b>sin</b>" in html
    assert "f32[3]" in html


BAD = {
    "unknown op": ("{ lambda ; a:f32[3]. let b:f32[3] = nothing a in (b,) }", "no such op"),
    "unknown variable": ("{ lambda ; a:f32[3]. let b:f32[3] = sin z in (b,) }", "unknown variable"),
    "wrong type": ("{ lambda ; a:f32[3]. let b:f32[4] = sin a in (b,) }", "infers"),
    "unknown type": ("{ lambda ; a:f33[3]. let in (a,) }", "f33"),
    "trailing words": ("{ lambda ; a:f32[3]. let in (a,) } a", "after the end"),
    "cut short": ("{ lambda ; a:f32[3]. let", "unexpected"),
    "missing consts": ("{ lambda c:f32[3] ; a:f32[3]. let in (a,) }", "need values"),
    "garbage": ("{ lambda ; a:f32[3]. let \x00 }", "not understood"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_is_refused(name):
    text, says = BAD[name]
    with pytest.raises((ProgramError, DtypeError), match=says):
        parse_program(text)


def test_check_finds_what_is_wrong():
    a, b = Var(F3), Var(F3)
    good = Program([a], [Equation(sin, (a,), (b,), {})], [b])
    assert good.check() is good
    with pytest.raises(ProgramError, match="not defined"):
        Program([], [Equation(sin, (a,), (b,), {})], [b]).check()
    with pytest.raises(ProgramError, match="twice"):
        Program([a], [Equation(sin, (a,), (a,), {})], [a]).check()
    with pytest.raises(ProgramError, match="infers"):
        Program([a], [Equation(sin, (a,), (Var(ArrayType((4,), dtypes.float32)),), {})], [a]).check()
    with pytest.raises(ProgramError, match="differ in number"):
        Program([], [], [a], [a], []).check()
    with pytest.raises(ProgramError, match="number of arguments"):
        good(wrap(np.zeros(3)), wrap(np.zeros(3)))


def test_captured_values_become_consts_and_inner_tracers_arguments():
    outside = wrap(np.arange(3, dtype=np.float32))
    program = stage(lambda x: [add(x, outside)], [F3])
    assert program.values == (outside,)
    hoisted, values = program.hoist_consts()
    assert hoisted.in_types == (F3, F3)
    assert values == (outside,)
    outer = nx.make_jaxpr(lambda x: nx.jit(lambda y: y * x)(2.0))(3.0)
    assert not outer.constvars
    assert outer.equations[-1].op.name == "jit"


def test_a_value_that_left_its_trace_is_named():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x

    nx.jit(f)(1.0)
    with pytest.raises(UnexpectedTracerError, match=r"(?s)has left the function.*mul.*test_program.py"):
        nx.sin(kept[0])
    with pytest.raises(UnexpectedTracerError, match="has left"):
        nx.jit(lambda y: y + kept[0])(1.0)


def test_equal_programs_have_equal_fingerprints():
    one = stage(lambda x: [sin(x)], [F3])
    two = stage(lambda x: [sin(x)], [F3])
    other = stage(lambda x: [sin(sin(x))], [F3])
    assert one.fingerprint == two.fingerprint != other.fingerprint


def test_pickles_are_read_whose_loops_have_their_parameters_apart():
    summed = lambda x: nx.scan(lambda c, v: (c + v, None), x, x[None])[0]
    text = str(nx.make_jaxpr(lambda x: nx.lax.while_loop(lambda v: v < 9, lambda v: v + 1, summed(x)))(1.0))
    program = parse_program(text)
    for e in program.equations:
        apart = e.op.unpack_params(e.params)
        state = {name: getattr(e, name) for name in Equation.__slots__} | {"params": apart}
        again = Equation.__new__(Equation)
        again.__setstate__((None, state))
        assert again.params == e.params
    assert str(pickle.loads(pickle.dumps(program))) == text


def test_pickled_programs_keep_the_lines_of_the_user():
    @nx.jit
    def inner(x):
        with nx.named_scope("inner"):
            return nx.numpy.where(x > 0, nx.sin(x), x)

    def f(x):
        y = inner(x) * 2
        return nx.grad(lambda y: nx.scan(lambda c, _: (c * y, nx.cos(c)), y, None, 3)[0])(y.sum())

    def lines(program):
        for e in program.equations:
            yield e.op.name, e.scope, e.source and (e.source.file, e.source.line, e.source.shown())
            for held in e.programs():
                yield from lines(held)

    x = nx.numpy.ones(3)
    program = nx.make_jaxpr(f)(x)
    again = pickle.loads(pickle.dumps(program))
    assert str(again) == str(program)
    assert list(lines(again)) == list(lines(program))
    shown = [source[2] for _, _, source in lines(again) if source]
    assert any(text.endswith("<locals>.inner: return nx.numpy.where(x > 0, nx.sin(x), x)") for text in shown)
    assert again.fingerprint == program.fingerprint
    assert again(x)[0].tolist() == f(x).tolist()


def test_a_process_that_has_used_no_op_reads_programs():
    program = str(nx.make_jaxpr(lambda x: nx.lax.cumsum(nx.sin(x)).sum() + nx.nn.gelu(x[0]))(nx.numpy.ones(3)))
    code = f"import nxjax as nx; print(nx.parse_program({program!r}))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == program, done.stderr


def test_parameters_of_text_are_those_that_python_writes():
    """Numbers and strings with every kind of character, by several threads at once."""
    words = [
        "None",
        "True",
        "7",
        "-12",
        "1.5",
        "-2e-07",
        "1e+300",
        "2j",
        "(1-2j)",
        "'a'",
        '"it\'s"',
        r"'\n\\\x00ü\u20ac €'",
    ]

    def all_of_them(_):
        return [_python_value(word) for word in words]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(all_of_them, range(200)):
            assert [(type(x), x) for x in found] == [(type(x := eval(word)), x) for word in words]
