"""What is planted for the generator of programs is found, and told in a few lines that fail again."""

import os
from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.quiet import quiet
from nxjax.lower.cpu.rules import reduce
from nxjax.ops import arithmetic, elementary, special
from nxjax.runtime import clear_caches
from nxjax.testing import fuzz_programs, judge, ways
from nxjax.testing.fuzz_programs import attempt, check, failure
from nxjax.testing.generator import random_text
from nxjax.testing.inputs import Argument, values
from nxjax.testing.judge import Bounds
from nxjax.testing.numeric import Numeric, TooLarge
from nxjax.testing.productions import ROWS
from nxjax.testing.steps import StepRefused, Unfit
from nxjax.testing.through import THROUGH
from nxjax.testing.ways import Broken, Way
from nxjax.testing.writer import ProgramWriter


@pytest.fixture(autouse=True)
def _fresh():
    """No machine code of before a fault was planted, and none of a planted fault afterwards."""
    clear_caches()
    yield
    clear_caches()


def found(word, seeds):
    """The report of the first failure among ``seeds``."""
    text = next(filter(None, (attempt(seed, others=0).failure for seed in seeds)))
    assert word in text, text
    return text


def fails_again(text):
    with pytest.raises(Broken):
        exec(text, {})


def lines(text):
    """The lines of the function in a report."""
    return text.split("'''")[1].strip().splitlines()


def test_a_wrong_derivative(monkeypatch):
    """grad, jvp, vjp and linearize share the rule and agree; differences of values do not."""
    monkeypatch.setattr(type(elementary.tanh), "tangents", lambda self, y, x: (lambda t: arithmetic.mul(t, y),))
    x = np.array([0.3, -1.2], np.float32)
    uses = (
        "jax.grad(lambda a: jnp.tanh(a).sum())(x)",
        "jax.jvp(jnp.tanh, (x,), (x,))[1]",
        "jax.vjp(jnp.tanh, x)[1](x)[0]",
        "jax.linearize(jnp.tanh, x)[1](x)",
    )
    for use in uses:
        text = f"def f(x):\n    v1 = {use}\n    return v1,\n"
        check(text, [x], Way("cpu"), {"v1": 6e-8})
        assert "wrong derivative" in failure(text, [x], Way("differences"), {"v1": 6e-8})
    own = "def f(x, n):\n    v1 = jnp.tanh(x)\n    return v1, n\n"
    assert "wrong derivative" in failure(own, [x, np.arange(3)], Way("slopes"), {"v1": 6e-8})
    monkeypatch.undo()
    assert not failure(own, [x, np.arange(3)], Way("slopes"), {"v1": 6e-8})
    assert not any(
        failure(f"def f(x):\n    v1 = {use}\n    return v1,\n", [x], Way("differences"), {"v1": 6e-8}) for use in uses
    )


def test_what_hangs_on_the_last_digits_of_a_derivative_is_not_judged_by_differences():
    """The derivative of x - x is 0, and by differences nearly."""
    text = """def f(x):
    v1 = jax.grad(lambda a: (jnp.sin(a) * 3 - jnp.sin(a) - jnp.sin(a) * 2).sum())(x)
    v2 = jnp.where(v1 > 0, 1.0, 0.0) + jnp.where(v1 < 0, 1.0, 0.0)
    return v2,
"""
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=3).astype(np.float32)
        assert not failure(text, [x], Way("differences"), {"v1": 6e-8})


def test_a_wrong_transpose(monkeypatch):
    """vjp gives another derivative than jvp."""
    plain = nx.vjp
    monkeypatch.setattr(judge.nxjax, "vjp", lambda f, *xs: (f(*xs), lambda cts: [g * 2 for g in plain(f, *xs)[1](cts)]))
    x = np.array([0.3, -1.2], np.float32)
    wrong = failure("def f(x):\n    v1 = jnp.sin(x)\n    return v1,\n", [x], Way("slopes"), {"v1": 6e-8})
    assert "wrong derivative: vjp and jvp pair to" in wrong


def test_a_wrong_kernel(monkeypatch):
    """The maximum is computed as the minimum, by the CPU compiler alone."""
    plain = reduce.LazyReduce
    monkeypatch.setattr(reduce, "LazyReduce", lambda op, *rest: plain("min" if op == "max" else op, *rest))
    text = found("wrong value", range(400))
    assert len(lines(text)) <= 5 and text.count("    np.array") <= 2, text
    fails_again(text)


def test_an_argument_that_is_written_to(monkeypatch):
    def jit(f, **options):
        def call(*xs):
            y = f(*(nx.asarray(x, dtype=x.dtype) if isinstance(x, np.ndarray) else x for x in xs))
            for x in xs:
                if isinstance(x, np.ndarray) and x.flags.writeable and x.size:
                    x[...] = 0
            return y

        return call

    monkeypatch.setattr(ways.nxjax, "jit", jit)
    text = found("argument changed", range(100))
    assert len(lines(text)) <= 4, text
    fails_again(text)


def test_a_result_that_a_later_call_writes_over(monkeypatch):
    shared = np.zeros(3, np.float32)

    def jit(f, **options):
        def call(*xs):
            shared[...] += 1
            return (shared,)

        return call

    monkeypatch.setattr(ways.nxjax, "jit", jit)
    assert "result changed" in failure("def f(x):\n    return x + 1,\n", [shared.copy()], Way(calls=2))


def test_bounds_are_narrow_where_rounding_is_small_and_wide_where_it_is_large():
    x = np.array([1.0, 1.0 + 1e-6, 3.0], np.float32)
    stable = "def f(x):\n    v1 = x * 3\n    return v1,\n"
    check(stable, [x], Way(), {"v1": 6e-8})
    bounds = fuzz_programs.Bounds(stable.replace("3", "3.0003"), [x], {"v1": 6e-8})
    assert "[0] is 3.0, expected 3.0003" in failure(stable, [x], Way(), {"v1": 6e-8}, bounds=bounds)
    # A difference of equal numbers is all rounding, and so is what is computed from it.
    rough = """def f(x):
    v1 = jnp.sin(x)
    v2 = jnp.cos(x - 1.5707964)
    v3 = v1 - v2
    v4 = v3 * 1e6
    return v4,
"""
    check(rough, [x], Way(), dict.fromkeys(("v1", "v2", "v3", "v4"), 6e-8))


def test_differences_of_differences_have_an_end():
    numeric, x = Numeric(1e-3), np.ones(5)
    once = numeric.grad(lambda x: (x**4).sum())
    np.testing.assert_allclose(once(x), 4, rtol=1e-5)
    twice = numeric.grad(lambda x: once(x).sum())
    np.testing.assert_allclose(twice(x), 12, rtol=1e-3)
    with pytest.raises(TooLarge):
        numeric.grad(lambda x: twice(x).sum())(x)


def test_a_derivative_that_is_a_little_wrong(monkeypatch):
    """Five parts in a hundred, where the derivative is one term of several and small itself."""
    right = arithmetic.Rsqrt.tangents
    wrong = lambda self, y, x: [lambda t, push=p: arithmetic.mul(push(t), 1.05) for p in right(self, y, x)]
    text = "def f(x):\n    v1 = x + lax.rsqrt(x * x + 3)\n    return v1,\n"
    x = np.array([0.3, -1.2], np.float32)
    check(text, [x], Way("slopes"), {"v1": 6e-8})
    monkeypatch.setattr(arithmetic.Rsqrt, "tangents", wrong)
    assert "wrong derivative" in failure(text, [x], Way("slopes"), {"v1": 6e-8})


def test_cancellation_in_64_bits_is_known():
    """The line is off by one rounding, its derivative, 1 - tanh(x) ** 2, by thousands; also when others look again."""
    text = "def f(x):\n    v1 = jax.grad(lambda a: jnp.tanh(a * 1.5).mean())(x)\n    return v1,\n"
    x = np.array([3.0, 2.5])
    with nx.config.using(enable_x64=True):
        bounds = judge.Bounds(text, [x], {"v1": 1.1e-16})
    y = 0.75 * (1 - np.tanh(1.5 * x) ** 2)
    off = [y * (1 + 1e-12)]
    assert bounds.wrong(off)
    bounds.widen()
    assert not bounds.wrong(off) and "wrong value" in bounds.wrong([y * (1 + 1e-9)])


def test_cancellation_inside_of_a_line_is_known():
    """The tangent is what three thirds are off from one, which each order of sums makes another number."""
    text = "def f(x):\n    v1 = jax.jvp(lambda a: jax.nn.log_softmax(a)[0], (x,), (jnp.cos(x),))[1]\n    return v1,\n"
    bounds = judge.Bounds(text, [np.array([1e-18, 1e-36, -7e-5], np.float32)], {"v1": 6e-8})
    bounds.widen()
    assert not bounds.wrong([np.float32(1.2e-7)])
    assert "wrong value" in bounds.wrong([np.float32(1e-4)])


def test_the_sign_of_a_nan_is_open_where_its_bits_are_read():
    text = "def f(x):\n    v1 = jnp.sin(x)\n    return v1.astype(np.float16).view(jnp.int16),\n"
    bounds = judge.Bounds(text, [np.array([np.inf, 0.0], np.float32)], {"v1": 6e-8})
    other = bounds.working[0] ^ np.array([-(2**15), 0], np.int16)
    bounds.widen()
    assert not bounds.wrong([other])
    assert "wrong value" in bounds.wrong([other ^ np.array([0, -(2**15)], np.int16)])


@pytest.mark.parametrize("executor", ["jax", "xla"])
def test_another_definition_is_wrong_and_rounding_errors_of_others_are_not(monkeypatch, executor):
    pytest.importorskip("jax" if executor == "jax" else "jaxlib")
    text = "def f(x):\n    v1 = lax.lgamma(x * x + 1)\n    return v1,\n"
    x = np.array([-0.0, 0.5], np.float32)
    assert not failure(text, [x], Way(executor), {"v1": 6e-8})  # XLA's is 4.8e-7 at 1, where it is 0
    plain = special.Lgamma.eval
    monkeypatch.setattr(special.Lgamma, "eval", lambda self, x: plain(self, x) + np.asarray(1e-5, x.dtype))
    assert "wrong value" in failure(text, [x], Way(executor), {"v1": 6e-8})


def test_what_xla_gets_wrong_in_few_bits_alone_is_wrong(monkeypatch):
    pytest.importorskip("jaxlib")
    text = "def f(x):\n    v1 = jnp.exp(x)\n    return v1,\n"
    x = np.array([0.3, 0.5], np.float32)
    plain = fuzz_programs.run

    def off(text, args, way, x64):
        return [[y * np.float32(1.001) for y in ys] for ys in plain(text, args, way, x64)]

    monkeypatch.setattr(fuzz_programs, "run", off)
    assert "wrong value" in failure(text, [x], Way("xla"), {"v1": 6e-8})


def test_a_policy_is_not_read_from_text():
    """It is a Python function, as a rule of derivatives is."""
    policy = "policy=jax.checkpoint_policies.nothing_saveable"
    text = f"def f(x):\n    v1 = jax.checkpoint(lambda a: jnp.sin(a) * 2, {policy})(x)\n    return v1,\n"
    check(text, [np.ones(3, np.float32)], Way(through=("printing",)), {"v1": 6e-8})


def test_floats_that_jump_have_no_slope_to_be_judged():
    """Whatever the row counts as: what makes floats, and is not said to be smooth."""
    jumping = next(r for r in ROWS if getattr(r.write, "text", "") == "jnp.nextafter({x}, {s})" and not r.smooth)
    smooth = next(r for r in ROWS if getattr(r.write, "text", "") == "jnp.sin({x})" and r.smooth)
    compared = next(r for r in ROWS if getattr(r.write, "text", "") == "{x} > {y}")
    for row, rough in ((jumping, True), (smooth, False), (compared, False)):
        drawn = [
            ProgramWriter((replace(row, weight=1.0),), 0).program([Argument("x", (3,), "float32")], None, False, 1)
        ]
        assert [p.rough for p in drawn] == [rough], row


def test_moves_and_integers_are_exact():
    x = np.array([-0.0, np.nan, 1.0], np.float32)
    check("def f(x):\n    return x[::-1],\n", [x], Way())
    bounds = fuzz_programs.Bounds("def f(x):\n    return jnp.abs(x),\n", [x], {})
    assert "wrong value" in failure("def f(x):\n    return x,\n", [x], Way(), bounds=bounds)


def test_programs_are_those_of_their_seeds():
    programs = [random_text(ROWS, 7) for _ in range(2)]
    assert programs[0].text == programs[1].text
    assert len({random_text(ROWS, seed).text for seed in range(20)}) == 20


def test_a_program_that_ends_its_process(monkeypatch):
    """It is made smaller by other processes."""
    run = ways.run

    def ending(text, *args):
        return os.abort() if "softmax" in text else run(text, *args)

    monkeypatch.setattr(fuzz_programs, "run", ending)
    drawn = lambda seed: random_text(ROWS, seed, fuzz_programs._taken_by_jax)
    seed = next(s for s in range(200) if "softmax" in drawn(s).text)
    assert len(lines(text := fuzz_programs.ended(seed))) <= 4 and "ends the process" in text, text
    assert not fuzz_programs.ended(next(s for s in range(200) if "softmax" not in drawn(s).text))


def test_every_row_of_the_table_makes_lines():
    """A row that is misspelt would only be left out: what is refused here and by JAX is no failure."""
    shapes = {"a": (2, 4), "b": (2, 4), "c": (4,), "d": (), "e": (2, 2, 2, 4)}
    fit = next(row for row in ROWS if row.feature == "fit")
    simple = [row for row in ROWS if row.feature in ("elementwise", "integer")][::10]
    idle = []
    for k, row in enumerate(ROWS):
        rows = (replace(row, weight=1.0), replace(fit, weight=0.0))
        rows += tuple(replace(r, weight=1.0 if row.nested else 0.0) for r in simple)

        def writes(dtype, seed, row=row, rows=rows):
            args = [Argument(f"{n}{dtype}", s, dtype) for n, s in shapes.items()]
            args += [Argument(f"{n}_int", s, "int32", "small") for n, s in shapes.items()]
            args.append(Argument("mask", (2, 4), "bool"))
            writer = ProgramWriter(rows, seed)
            with nx.config.using(executor="reference"), quiet():
                try:
                    made = writer.program(args, None, False, 3)
                except (Unfit, StepRefused):
                    return False
            return any(step.row == 0 for step in made.body.walk())

        kinds = ("float32", "int32", "bool", "complex64", "uint8", "float8_e4m3fn")
        if not any(writes(dtype, seed) for seed in range(6) for dtype in kinds):
            idle.append((k, row.feature))
    assert not idle


@pytest.mark.parametrize("executor", ["eager", "xla", "jax"])
def test_executors(executor):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = "def f(x):\n    v1 = jax.nn.softmax(x, 1)\n    return v1, x.astype(jnp.int32)\n"
    check(text, [x], Way(executor), {"v1": 6e-8})


def test_threads_donation_layouts_and_closed_over_values():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    text = "def f(x, y, n):\n    v1 = jnp.sin(x) + y * n\n    return v1,\n"
    way = Way(settings=(("num_threads", 2),), layouts=("reversed", "array", "array"), donate=(1,), closed=(0,), calls=3)
    for each in (way, Way(callers=4, calls=2, closed=(1,)), Way("xla", donate=(0, 1), calls=2)):
        check(text, [x, y, 2], each, {"v1": 6e-8})


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "float32", "bfloat16", "float16", "int4", "uint64", "bool"]
)
@pytest.mark.parametrize("data", ["plain", "ties", "special", "huge", "tiny", "extreme", "python"])
def test_arguments_in_a_report_are_those_of_the_program(dtype, data):
    """To the bit: a failure may hang on the sign of a zero."""
    names = {"np": np, "inf": np.inf, "nan": np.nan, "values": values, "Argument": Argument}
    for shape in ((), (3,), (0, 2), (40, 6)):
        for seed in range(5):
            a = Argument("x", shape, dtype, data, seed)
            x, again = values(a), eval(fuzz_programs._literal(a), names)
            assert type(again) is type(x), a
            x, again = np.asarray(x), np.asarray(again)
            assert (again.dtype, again.shape, again.tobytes()) == (x.dtype, x.shape, x.tobytes()), a


def test_layouts_have_the_same_elements():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for name, layout in ways.LAYOUTS.items():
        for each in (x, np.array(x[0, 0]), x[:0], np.broadcast_to(x[:1], (2, 4)).copy()):
            np.testing.assert_array_equal(np.asarray(layout(each)), each, err_msg=name, strict=True)
    assert not ways.LAYOUTS["offset"](x).flags.aligned and ways.LAYOUTS["reversed"](x).strides == (-16, -4)
    assert nx.jit(lambda v: v + 1)(ways.LAYOUTS["memmap"](x)).shape == (3, 4)


@pytest.mark.parametrize("name", THROUGH)
def test_transforms_that_keep_values(name, monkeypatch):
    x, n = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3, dtype=np.int32)
    text = "def f(x, n):\n    v1 = jax.nn.softmax(x, 1)\n    return v1, n + 1\n"
    rounds = {"v1": 6e-8}
    for way in (Way("eager", through=(name,)), Way("cpu", through=(name, "vmap"), calls=3)):
        check(text, [x, n], way, rounds)
    plain = THROUGH[name]
    monkeypatch.setitem(THROUGH, name, lambda f, *xs: nx.tree.map(lambda y: y * 2, plain(f, *xs)))
    assert "wrong value" in failure(text, [x, n], Way("eager", through=(name,)), rounds)


def test_equal_elements_of_narrow_floats_have_no_derivative_to_be_judged():
    text = "def f(x):\n    v1 = jnp.sort(x, 0)\n    return v1,\n"
    x = values(Argument("x", (64,), "float8_e4m3fn", seed=3))
    assert len(np.unique(x.astype(np.float32))) < 60
    assert not failure(text, [x], Way("slopes"), {"v1": 0.06})
    pushed = "jax.jvp(lambda a: jnp.sort(a, 0), (x,), (jnp.cos(jnp.arange(64.).astype(x.dtype)),))[1]"
    inside = f"def f(x):\n    v1 = {pushed}\n    return v1,\n"
    assert not failure(inside, [x], Way("differences"), {"v1": 0.06})


@pytest.mark.parametrize("before", [False, True])
def test_programs_leave_the_settings_of_jax(before):
    jax = pytest.importorskip("jax")
    text = "def f(x):\n    v1 = lax.lgamma(x * x + 1)\n    return v1,\n"
    kept = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", before)
    try:
        # At -0.0 JAX is off, and is asked again in 64 bits; the other text raises.
        check(text, [np.array([-0.0, 0.5], np.float32)], Way("jax"), {"v1": 6e-8})
        failure("def f(x):\n    return x.nothing,\n", [np.ones(2, np.float32)], Way("jax"), x64=not before)
        assert jax.config.jax_enable_x64 is before
    finally:
        jax.config.update("jax_enable_x64", kept)


def test_narrow_floats_are_rounded_where_the_program_takes_no_wide_ones():
    text = """def f(x, n):
    v1 = x + x
    v2 = lax.scan(lambda c, _: (c * np.float32(0.5), v1.astype(jnp.float32)), n + np.float32(0.5), jnp.arange(1))
    v3 = lax.cond(n > 0, lambda a, b: a, lambda a, b: b, v2[0], v2[1][0])
    return v3,
"""
    args = [np.array(1.0).astype("float8_e4m3fn"), np.array(4, "int16")]
    assert not Bounds(text, args, {"v1": 0.0625, "v3": 6e-8})._wide
    check(text, args, Way("cpu"), {"v1": 0.0625, "v3": 6e-8})


def test_a_compiler_may_compute_a_value_twice():
    """And then what is the same may differ; ours does not."""
    text = "def f(x):\n    v1 = jnp.exp(x)\n    v2 = v1 > v1\n    return v2,\n"
    with quiet():
        bounds = Bounds(text, [np.linspace(0, 1, 64, dtype=np.float32)], {"v1": 6e-8})
        other = [np.arange(64) % 2 == 0]
        bounds.widen()
        assert "wrong value" in bounds.wrong(other)
        bounds.widen(several=True)
        assert not bounds.wrong(other)


def test_kinks_that_lie_around_one_another_have_no_differences():
    """Of the absolute values at -0.001, 0 and 0.001, by steps of 0.001 on one side and on both."""
    text = """def f(x):
    def g(p):
        return p / (jnp.abs(p).sum((0,), keepdims=True) + 1)
    v1 = jax.linearize(g, x)[1](jnp.cos(x))
    return v1,
"""
    x = np.array([100.0, 0.001, -0.001, 0.0])
    assert not failure(text, [x], Way("differences"), {"v1": 1.11e-16}, x64=True)


def test_floats_of_integers_beside_wide_ones_have_no_differences():
    text = "def f(x):\n    v1 = lax.pad(jnp.rint(x), jnp.zeros((), jnp.float32), [(0, 1, 0)])\n    return v1,\n"
    assert not failure(text, [np.array([6], np.uint8)], Way("differences"), {})
