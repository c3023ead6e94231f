"""Loops of optimized programs: their turns, and a compiler's counts with them."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.backends.tpu.hlo import HloModule
from nxjax.backends.tpu.loops import HloLoops
from nxjax.lower.placement import TIMES

# Two loops, the inner one's limit carried by the outer one, its counter added to inside of a fusion.
TEXT = """HloModule nested, is_scheduled=true, entry_computation_layout={(f32[64,64]{1,0})->f32[64,64]{1,0}}

%counted (p0: s32[], p1: s32[]) -> s32[] {
  %p0 = s32[] parameter(0)
  %p1 = s32[] parameter(1)
  ROOT %sum = s32[] add(%p0, %p1)
}

%less (q0: s32[], q1: s32[]) -> pred[] {
  %q0 = s32[] parameter(0)
  %q1 = s32[] parameter(1)
  ROOT %c = pred[] compare(%q0, %q1), direction=LT
}

%inner_body (s: (s32[], f32[64,64], s32[])) -> (s32[], f32[64,64], s32[]) {
  %s = (s32[], f32[64,64]{1,0}, s32[]) parameter(0)
  %one = s32[] constant(1)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[64,64]{1,0} get-tuple-element(%s), index=1
  %n = s32[] get-tuple-element(%s), index=2
  %next = s32[] fusion(%i, %one), kind=kLoop, calls=%counted
  %y = f32[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[64,64]{1,0}, s32[]) tuple(%next, %y, %n)
}

%inner_test (s1: (s32[], f32[64,64], s32[])) -> pred[] {
  %s1 = (s32[], f32[64,64]{1,0}, s32[]) parameter(0)
  %i1 = s32[] get-tuple-element(%s1), index=0
  %n1 = s32[] get-tuple-element(%s1), index=2
  ROOT %f = pred[] fusion(%i1, %n1), kind=kLoop, calls=%less
}

%outer_body (s2: (s32[], f32[64,64], s32[])) -> (s32[], f32[64,64], s32[]) {
  %s2 = (s32[], f32[64,64]{1,0}, s32[]) parameter(0)
  %zero = s32[] constant(0)
  %two = s32[] constant(2)
  %i2 = s32[] get-tuple-element(%s2), index=0
  %x2 = f32[64,64]{1,0} get-tuple-element(%s2), index=1
  %n2 = s32[] get-tuple-element(%s2), index=2
  %start = (s32[], f32[64,64]{1,0}, s32[]) tuple(%zero, %x2, %n2)
  %inner = (s32[], f32[64,64]{1,0}, s32[]) while(%start), condition=%inner_test, body=%inner_body
  %y2 = f32[64,64]{1,0} get-tuple-element(%inner), index=1
  %next2 = s32[] subtract(%i2, %two)
  ROOT %t2 = (s32[], f32[64,64]{1,0}, s32[]) tuple(%next2, %y2, %n2)
}

%outer_test (s3: (s32[], f32[64,64], s32[])) -> pred[] {
  %s3 = (s32[], f32[64,64]{1,0}, s32[]) parameter(0)
  %i3 = s32[] get-tuple-element(%s3), index=0
  %end = s32[] constant(LIMIT)
  ROOT %f3 = pred[] compare(%end, %i3), direction=LE
}

ENTRY %main (a: f32[64,64]) -> f32[64,64] {
  %a = f32[64,64]{1,0} parameter(0)
  %first = s32[] constant(8)
  %five = s32[] constant(5)
  %begin = (s32[], f32[64,64]{1,0}, s32[]) tuple(%first, %a, %five)
  %outer = (s32[], f32[64,64]{1,0}, s32[]) while(%begin), condition=%outer_test, body=%outer_body
  %r = f32[64,64]{1,0} get-tuple-element(%outer), index=1
  ROOT %e = f32[64,64]{1,0} add(%r, %a)
}
"""
SAID = {"flops": 2.0 * 64**3 + 64**2 + 4, "bytes accessed": 1e5, "optimal_seconds": 1e-6, "utilization": 0.5}


def test_nested_loops_multiply():
    loops = HloLoops(HloModule(TEXT.replace("LIMIT", "0")))
    assert [(x.instruction.name, x.turns) for x in loops.found] == [("outer", 5), ("inner", 5)] and loops.known
    assert loops.times["inner_body"] == 25 and loops.times["outer_body"] == 5 and loops.times["main"] == 1
    found = loops.totals(SAID, 1e12, 1e12)
    assert found["flops"] == pytest.approx(25 * 2 * 64**3, rel=0.01)
    assert 10 * SAID["bytes accessed"] < found["bytes accessed"] < 25 * SAID["bytes accessed"]
    assert 10e-6 < found["optimal_seconds"] < 25e-6 and found["utilization"] == 0.5


def test_a_loop_of_unknown_length_counts_once():
    unknown = TEXT.replace("LIMIT", "0").replace("subtract(%i2, %two)", "multiply(%i2, %two)")
    loops = HloLoops(HloModule(unknown))
    assert [x.turns for x in loops.found] == [None, 5] and not loops.known
    assert loops.times["inner_body"] == 5
    none = HloLoops(HloModule(unknown.replace("constant(5)", "custom-call()")))
    assert [x.turns for x in none.found] == [None, None] and none.totals(SAID) == SAID
    said = unknown.replace("body=%outer_body", 'body=%outer_body, backend_config={"known_trip_count":{"n":"3"}}')
    assert [x.turns for x in HloLoops(HloModule(said)).found] == [3, 5]
    assert HloLoops(HloModule("")).totals(SAID) == SAID
    # What the compiler has no estimate for stays below 0.
    assert HloLoops(HloModule(said)).totals({"optimal_seconds": -2.0}) == {"optimal_seconds": -2.0}


def test_a_slice_of_an_array_moves_the_slice():
    text = """HloModule m, entry_computation_layout={(f32[100,64]{1,0}, s32[])->f32[1,64]{1,0}}

%taken (p: f32[100,64], i: s32[]) -> f32[1,64] {
  %p = f32[100,64]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  ROOT %d = f32[1,64]{1,0} dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,64}
}

%put (p2: f32[100,64], u: f32[1,64], i2: s32[]) -> f32[100,64] {
  %p2 = f32[100,64]{1,0} parameter(0)
  %u = f32[1,64]{1,0} parameter(1)
  %i2 = s32[] parameter(2)
  %z2 = s32[] constant(0)
  ROOT %d2 = f32[100,64]{1,0} dynamic-update-slice(%p2, %u, %i2, %z2)
}

ENTRY %main (a: f32[100,64], n: s32[]) -> f32[1,64] {
  %a = f32[100,64]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %f = f32[1,64]{1,0} fusion(%a, %n), kind=kLoop, calls=%taken
  %g = f32[100,64]{1,0} fusion(%a, %f, %n), kind=kLoop, calls=%put
  ROOT %h = f32[100,64]{1,0} negate(%g)
}
"""
    module = HloModule(text)
    loops, named = HloLoops(module), {i.name: i for i in module.main()}
    assert [loops.traffic(named[n], "main") for n in "fgh"] == [256 + 256 + 4, 256 + 4 + 256, 2 * 25600]


@pytest.mark.usefixtures("libtpu")
def test_the_compilers_counts_of_a_loop_are_those_of_its_turns_written_out():
    x = np.ones((256, 256), np.float32)
    rows = np.ones((12, 256, 256), np.float32)
    body = lambda c, r: (jnp.tanh(c @ r), c.sum(0))
    loop = nx.compile(lambda x, rows: lax.scan(body, x, rows), target="tpu-v4")(x, rows)
    flat = nx.compile(lambda x, rows: lax.scan(body, x, rows, unroll=12), target="tpu-v4")(x, rows)
    assert flat.analysis.turns.found == [] and [t.turns for t in loop.analysis.turns.found] == [12]
    assert loop.cost["flops"].value == pytest.approx(flat.cost["flops"].value, rel=0.05)
    # A loop moves more: what it carries goes through memory, and each turn reads its own slice of what is scanned.
    said = loop.analysis.compiled.cost
    assert 2 * said["bytes accessed"] < loop.cost["bytes accessed"].value < 5 * said["bytes accessed"]
    assert flat.cost["chip time"].value < loop.cost["chip time"].value < 12 * said["optimal_seconds"]
    assert loop.cost["chip time"].basis == "model" and flat.cost["chip time"].basis == "vendor-estimate"
    assert loop.analysis.roofline.flops == loop.cost["flops"].value > 10 * loop.analysis.compiled.cost["flops"]
    assert any("its counts times the turns: scan" in n and ": 12" in n for n in loop.notes)
    assert "in 12 turns" in str(loop.report)
    grown = lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: jnp.tanh(c @ c), x)
    unknown = nx.compile(grown, target="tpu-v4")(x)
    assert any("unknown length are counted once: while" in n for n in unknown.notes)
    assert not {*TIMES, "flops", "bytes accessed", "roofline"} & {*unknown.cost} and "peak memory" in unknown.cost
    assert unknown.cost.why.startswith("unknown: loop (while")


@pytest.mark.usefixtures("libtpu")
def test_of_branches_the_dearest_counts_with_its_turns():
    """As the compiler counts branches without loops."""
    x, w = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    layer = lambda c: jnp.tanh(c @ w)
    turns = lambda n: lambda x: lax.fori_loop(0, n, lambda i, c: layer(c), x)
    for f, g in ((turns(7), layer), (layer, turns(7)), (turns(7), turns(5))):
        made = nx.compile(lambda x, f=f, g=g: lax.cond(x.sum() > 0, f, g, x), target="tpu-v4", verify=False)(x)
        assert made.cost["flops"].value == pytest.approx(7 * 2 * 64**3, rel=0.05)
    grown = lambda x: lax.while_loop(lambda c: c.sum() < 9, layer, x)
    for f, g in ((grown, turns(7)), (turns(7), grown)):
        made = nx.compile(lambda x, f=f, g=g: lax.cond(x.sum() > 0, f, g, x), target="tpu-v4", verify=False)(x)
        assert made.cost.time is None and made.cost.why.startswith("unknown: loop")


def test_memory_that_is_only_given_is_not_moved():
    """A stacked array outside of a loop would outweigh what the loop does."""
    big = '  %big = f32[1000,64,64]{2,1,0} custom-call(), custom_call_target="AllocateBuffer"\n'
    copies = """  %there = (f32[64,64]{1,0}, f32[64,64]{1,0}, u32[]) copy-start(%a)
  %back = f32[64,64]{1,0} copy-done(%there)
"""
    text = TEXT.replace("LIMIT", "0")
    module = HloModule(text.replace("  %first", f"{big}{copies}  %first"))
    loops, named = HloLoops(module), {i.name: i for i in module.main()}
    assert [loops.traffic(named[n], "main") for n in ("big", "there", "back")] == [0, 2 * 16384, 2 * 16384]
    more = HloLoops(HloModule(text.replace("  %first", f"{big}  %first")))
    assert more.totals(SAID, 1e12, 1e12) == HloLoops(HloModule(text)).totals(SAID, 1e12, 1e12)


def _layers(x, w):
    return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0].sum()


def _with_row(a, i, x):
    return lax.dynamic_update_index_in_dim(a, jnp.tanh(a[i] @ x), i, 0)


STACKED = {
    "read and written": (lambda x, w: lax.map(lambda r: jnp.tanh(x @ r[0]), w), 0.98),
    "read back in the slope": (nx.grad(_layers, argnums=1), 0.9),
    "updated": (lambda x, w: lax.fori_loop(0, len(w), lambda i, a: _with_row(a, i, x), w), 0.9),
}


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("how", STACKED)
def test_slices_of_stacked_arrays_in_a_loop_count_for_every_turn(how):
    f, inside = STACKED[how]
    x, w = np.ones((128, 128), np.float32), np.random.default_rng(0).normal(size=(200, 128, 128)).astype(np.float32)
    long, short = (nx.compile(f, target="tpu-v4", verify=False)(x, w[:n]) for n in (200, 20))
    for figure in ("flops", "bytes accessed", "chip time"):
        assert 9 * inside < long.cost[figure].value / short.cost[figure].value < 11.5, figure
    # All that the compiler counts is found again, once through the loop.
    turns, module = long.analysis.turns, long.analysis.module
    once = sum(turns.traffic(i, c) for c, body in module.computations.items() if c not in module.inside for i in body)
    assert once == pytest.approx(long.analysis.compiled.cost["bytes accessed"], rel=0.05)
