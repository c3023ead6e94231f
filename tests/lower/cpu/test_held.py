"""Programs in two parts: what is made of held inputs alone is made once, and nothing else changes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import VerificationError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.held import parted
from nxjax.lower.cpu.lower import _lowered, lower, lower_parts
from nxjax.lower.cpu.memory_copies import onto_donated
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, Ref
from nxjax.lower.cpu.verify import trace, verify_parts
from nxjax.trace.types import ArrayType

BYTES = 8192
ROW = ArrayType((BYTES,), np.dtype("uint8"))


def temp() -> Buffer:
    return Buffer(BYTES, "temp")


def move(source: Buffer, target: Buffer, begin: int = 0, nbytes: int = BYTES) -> CallStep:
    n = nbytes // 4
    return CallStep(Move((n,), (4,), (4,), 4), (Ref(source, begin),), (Ref(target, begin),))


def program(steps, count=2, consts=(), outputs=None, donated=()):
    """``steps(inputs, out)`` as a program of ``count`` arguments, of which the first is held."""
    inputs, out = [Buffer(BYTES, "input", i) for i in range(count)], Buffer(BYTES, "output", 0)
    made = steps(*inputs, out)
    results = [out] if outputs is None else outputs(*inputs, out)
    return CpuProgram((ROW,) * count, (ROW,) * len(results), inputs, results, list(consts), made, donated=donated)


def kinds(p):
    return [(s.reads()[0].buffer.kind, s.writes()[0].buffer.kind) for s in p.steps]


def test_a_chain_of_what_is_held_is_prepared_and_the_rest_reads_it() -> None:
    a, b, c = temp(), temp(), temp()
    parts = parted(program(lambda w, x, y: [move(w, a), move(x, c), move(a, b), move(b, y), move(c, y)]), 1)
    assert parts is not None and parts.kept == ()
    assert kinds(parts.preparation) == [("input", "temp"), ("temp", "output")]
    assert [b.index for b in parts.main.inputs] == [0, 1]
    assert [s.reads()[0].buffer for s in parts.main.steps] == [parts.main.inputs[1], parts.main.inputs[0], c]
    assert parts.main.in_types[0] == ROW and "once:" in str(parts)


def test_inputs_that_the_rest_reads_are_kept_and_donated_ones_counted_again() -> None:
    a = temp()
    p = program(lambda w, v, x, y: [move(w, a), move(a, y), move(v, y), move(x, y)], 3, donated=(2,))
    parts = parted(p, 2)
    assert parts is not None and parts.kept == (1,) and parts.main.donated == (2,)
    p = program(lambda w, x, y: [move(w, a), move(a, y)], outputs=lambda w, x, y: [y, w, y])
    parts = parted(p, 1)
    assert parts is not None and parts.kept == (0,)
    assert parts.main.outputs == [parts.main.outputs[0], parts.main.inputs[0], parts.main.outputs[0]]
    assert parts.main.outputs[0].index == 0


def test_memory_that_others_write_too_is_not_prepared() -> None:
    a, half = temp(), BYTES // 2
    steps = lambda w, x, y: [move(w, a, 0, half), move(x, a, half, half), move(a, y)]
    assert parted(program(steps), 1) is None


def test_memory_that_is_read_before_it_is_complete_is_not_prepared() -> None:
    a, b = temp(), temp()
    steps = lambda w, x, y: [move(w, a), move(a, y, 0, 4), move(x, b), move(w, a, 4, 8), move(a, y)]
    assert parted(program(steps), 1) is None


def test_constants_are_prepared_only_for_what_is_held() -> None:
    a, zeros, const = temp(), temp(), Buffer(BYTES, "const", 1)
    values = [np.ones(3), np.zeros(BYTES, np.uint8)]
    steps = lambda w, x, y: [move(const, zeros), move(const, a), move(w, a, 0, 64), move(a, y), move(zeros, y)]
    parts = parted(program(steps, consts=values), 1)
    assert parts is not None
    assert kinds(parts.preparation) == [("const", "output"), ("input", "output")]
    assert kinds(parts.main) == [("const", "temp"), ("input", "output"), ("temp", "output")]
    for p in (parts.preparation, parts.main):
        assert len(p.consts) == 1 and p.consts[0] is values[1]
        assert p.steps[0].reads()[0].buffer.index == 0


def test_little_is_not_worth_it() -> None:
    a, b = temp(), Buffer(BYTES * 5, "temp")
    assert parted(program(lambda w, x, y: [move(w, a, 0, 4), move(x, y), CopyStep(Ref(a), Ref(y), 4)]), 1) is None
    grown = CallStep(Move((5, BYTES // 4), (0, 4), (BYTES, 4), 4), (Ref(Buffer(0, "input")),), (Ref(b),))

    def steps(w, x, y):
        grown.ins = (Ref(w),)
        return [grown, move(b, y)]

    assert parted(program(steps), 1) is None


def test_what_acts_is_not_prepared() -> None:
    w = jnp.ones(4096)

    def f(x):
        nx.debug.callback(lambda v: None, w * 2)
        return x + w

    p, consts = nx.jit(f).trace(w).program.hoist_consts()
    parts = lower_parts(p, len(consts))
    assert parts is None or not any("callback" in str(s) for s in parts.preparation.steps)


# --- whole functions ---


def check(f, params, x, *, prepared=True):
    """Five calls with ``params`` held, and one with them as arguments, give the same bits."""
    held = nx.jit(lambda x: f(params, x))
    wanted = nx.tree.leaves(nx.jit(f)(params, x))
    for _ in range(5):
        for y, z in zip(nx.tree.leaves(held(x)), wanted, strict=True):
            assert np.asarray(y).tobytes() == np.asarray(z).tobytes()
    p, consts = held.trace(x).program.hoist_consts()
    parts = lower_parts(p, len(consts))
    if prepared:
        assert parts is not None and len(parts.main.steps) <= len(lower(p).steps)
    return parts


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", isa.possible())
@settings(max_examples=6, deadline=None)
@given(
    rows=st.integers(1, 70),
    sizes=st.lists(st.integers(1, 300), min_size=3, max_size=3),
    turned=st.booleans(),
    dtype=st.sampled_from(["float32", "bfloat16", "float64"]),
)
def test_layers_give_the_same_bits(name, rows, sizes, turned, dtype) -> None:
    a, b, c = sizes
    shapes = [(b, a), (c, b)] if turned else [(a, b), (b, c)]
    params = [jnp.asarray(normal(i, *s)).astype(dtype) for i, s in enumerate(shapes)]

    def f(params, x):
        for w in params:
            x = jnp.tanh(x @ (w.T if turned else w) + w.sum())
        return x, params[0]

    with nx.config.using(cpu_isa=name):
        check(f, params, jnp.asarray(normal(9, rows, a)).astype(dtype), prepared=False)


@pytest.mark.parametrize("name", isa.possible())
@settings(max_examples=6, deadline=None)
@given(
    channels=st.lists(st.integers(1, 70), min_size=3, max_size=3),
    taps=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
    groups=st.booleans(),
    order=st.sampled_from([("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")]),
)
def test_convolutions_give_the_same_bits(name, channels, taps, stride, groups, order) -> None:
    sizes = [2 * c for c in channels] if groups else channels
    last = order[0] == "NHWC"
    params = []
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        m = m // 2 if groups else m
        params.append(jnp.asarray(normal(i, *((taps, taps, m, n) if last else (n, m, taps, taps)))))

    def f(params, x):
        for w in params:
            x = nx.lax.conv_general_dilated(
                x, w, (stride, stride), "SAME", dimension_numbers=order, feature_group_count=1 + groups
            )
            x = nx.nn.relu(x)
        return x

    x = normal(5, 1, 9, 9, sizes[0]) if last else normal(5, 1, sizes[0], 9, 9)
    with nx.config.using(cpu_isa=name):
        check(f, params, jnp.asarray(x), prepared=False)


@pytest.mark.parametrize("name", isa.possible())
def test_large_operands_are_packed_once(name) -> None:
    layers = [normal(0, 200, 330), normal(1, 330, 250)]
    with nx.config.using(cpu_isa=name):
        parts = check(lambda ws, x: jnp.tanh(x @ ws[0]) @ ws[1], layers, normal(2, 33, 200))
        assert parts.kept == () and sum("pack" in str(s) for s in parts.main.steps) == 0
        parts = check(
            lambda w, x: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            normal(0, 5, 5, 40, 144),
            normal(1, 1, 12, 12, 40),
        )
        assert parts.kept == () and len(parts.main.steps) == 1 and "packing" not in str(parts.main)


@pytest.mark.parametrize("name", isa.possible())
def test_int8_weights_are_quantized_once(name) -> None:
    params = {"c": normal(0, 3, 3, 5, 37), "g": normal(1, 3, 3, 1, 37), "w": normal(2, 37, 130)}
    x = normal(3, 2, 8, 8, 5)

    def f(p, x):
        numbers = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        x = nx.nn.relu(nx.lax.conv_general_dilated(x, p["c"], (1, 1), "SAME", **numbers))
        x = nx.nn.relu(nx.lax.conv_general_dilated(x, p["g"], (2, 2), "SAME", **numbers, feature_group_count=37))
        return x.mean((1, 2)) @ p["w"]

    with nx.config.using(cpu_isa=name):
        q = nx.quantize(f, "int8", calibrate=[(params, x)], progress=False)
        parts = check(q, nx.device_put(params), jnp.asarray(x))
    assert parts.kept == ()
    assert len(parts.main.steps) < len(parts.preparation.steps)
    made = str(parts.main)
    assert not any(name in made for name in ("stored_pair", "stored_single", "gemv")) and "gemm" in made


def test_weights_in_a_loop_are_packed_before_all_calls() -> None:
    w = jnp.asarray(normal(0, 290, 290) / 20)
    step = lambda w, x: nx.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=4)[0]
    parts = check(step, w, jnp.asarray(normal(1, 40, 290)))
    assert parts.kept == ()


# --- control flow ---

halved = lambda w, n: nx.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1]) * 0.5), (0, w))[1]
CONTROL = {
    "a loop of what is held": lambda w, x: (x + halved(w, 3),),
    "and one of an argument before it": lambda w, x: (halved(x, x[0, 0]), halved(w, 2)),
    "and one of an argument after it": lambda w, x: (halved(w, w[0, 0]), halved(x, x[0, 0]) * w),
    "loops of both in one another": lambda w, x: (halved(halved(w, 2) + x, 3), halved(halved(w, 1), 2)),
    "a loop in a branch": lambda w, x: (
        nx.lax.cond(w[0, 0] > 0, lambda v: halved(v, 3), lambda v: halved(v, 2) + 1, w) + x,
        nx.lax.cond(x[0, 0] > 0, lambda v: halved(v, 1), jnp.sin, x),
    ),
    "a loop in a scan": lambda w, x: (
        nx.lax.scan(lambda h, _: (halved(h, 2), h.sum()), w, None, length=3)[0] + x,
        nx.lax.scan(lambda h, _: (halved(h, 2) + w, h.sum()), x, None, length=3)[1],
    ),
    "all of it held": lambda w, x: (halved(w, 4), nx.lax.cond(w.sum() > 0, jnp.cos, lambda v: halved(v, 2), w)),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_of_what_is_held_gives_the_same_bits(name) -> None:
    check(CONTROL[name], jnp.asarray(normal(0, 64, 70)), jnp.asarray(normal(1, 64, 70)), prepared=False)


def test_what_is_kept_for_the_next_call_is_not_given_away() -> None:
    w = jnp.asarray(normal(0, 300, 300))
    tape = _lowered(nx.make_jaxpr(lambda w, x: (x @ w, jnp.sin(x) + w))(w, w), (), 1)
    whole = trace(tape)
    parts = parted(tape, 1)
    assert parts is not None and parts.kept == (0,)
    parts.main.donated = (0,)
    onto_donated(parts.main)
    with pytest.raises(VerificationError, match="verify: constant: "):
        verify_parts(parts.preparation, parts.main, parts.kept, whole, 1)
