"""Faults planted in the tapes of random programs, and what becomes of them: refused, without effect, or missed."""

from collections import Counter as Tally
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.errors import VerificationError
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu import memory
from nxjax.lower.cpu.lower import _lowered
from nxjax.lower.cpu.tape import BranchStep, CallStep, CopyStep, HostStep, RepeatStep, WhileStep, walk
from nxjax.lower.cpu.verify import trace, verify
from nxjax.testing.programs import random_program


def _slope(f):
    def slope(*xs):
        floats = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]
        of = lambda *ys: f(*(ys[floats.index(i)] if i in floats else x for i, x in enumerate(xs))).sum()
        return nx.grad(of)(*(xs[i] for i in floats))

    return slope


def _chosen(f):
    return lambda *xs: nx.lax.cond((xs[0] > 0).all(), f, lambda *ys: f(*ys) * f(*ys), *xs)


def _counted(f):
    def counted(*xs):
        step = lambda c: (c[0] + 1, f(*xs) + c[1])
        return nx.lax.while_loop(lambda c: c[0] < 3, step, (0, f(*xs)))[1]

    return counted


def _in_turn(f):
    """Carries that begin as equal values, and hand on what they have."""

    def in_turn(*xs):
        zeros = jnp.zeros_like(f(*xs))
        turn = lambda c, _: ((f(*xs) - c[0], c[0], c[1], c[2]), None)
        return nx.lax.scan(turn, (zeros,) * 4, None, length=7)[0][3]

    return in_turn


WAYS = (
    lambda f: f,
    _slope,
    _chosen,
    _counted,
    lambda f: lambda *xs: nx.lax.scan(lambda c, _: (c, f(*c)), tuple(xs), None, length=5)[1],
    lambda f: lambda *xs: nx.vmap(f)(*(jnp.stack([x, x]) for x in xs)),
    _in_turn,
)


def random_tape(seed):
    """A program, its arguments, and its tape with what it computed before memory was planned."""
    rng = np.random.default_rng(seed)
    choose = lambda n: int(rng.integers(n))
    made = random_program(rng, 2 + choose(10), differentiable=True)
    f = made
    with np.errstate(all="ignore"):
        for _ in range(choose(3)):
            way = WAYS[choose(len(WAYS))]
            if way is not _slope or (f is made and made(*made.args).dtype.kind == "f"):
                f = way(f)
        program = nx.make_jaxpr(f)(*made.args)
    donate = tuple(i for i in range(len(program.in_types)) if choose(2))
    tape = _lowered(program, donate)
    before = trace(tape)
    memory.placed(tape)
    verify(tape, before)
    return tape, before, made.args, rng


def lists(steps):
    """Every list of steps, those of bodies included."""
    yield steps
    for step in steps:
        for body in step.bodies():
            yield from lists(body)


def steps_of(tape, *kinds):
    return [s for s in walk(tape.steps) if isinstance(s, kinds or object)]


def _refs(step):
    """The places that a step names, as (attribute, index or None)."""
    if isinstance(step, CallStep | HostStep):
        return [(name, i) for name in ("ins", "outs") for i in range(len(getattr(step, name)))]
    return {
        CopyStep: [("source_ref", None), ("target", None)],
        WhileStep: [("flag", None)],
        BranchStep: [("index", None)],
    }.get(type(step), [])


@contextmanager
def changed(thing, name, value):
    """``thing.name`` is ``value`` for a while."""
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)


@contextmanager
def rearranged(steps, new):
    before = list(steps)
    steps[:] = new
    try:
        yield
    finally:
        steps[:] = before


def _place(step, where, ref):
    name, i = where
    if i is None:
        return changed(step, name, ref)
    refs = list(getattr(step, name))
    refs[i] = ref
    return changed(step, name, tuple(refs))


def _ref(step, where):
    name, i = where
    return getattr(step, name) if i is None else getattr(step, name)[i]


def drop(tape, pick):
    steps = pick([x for x in lists(tape.steps) if x])
    i = pick(range(len(steps)))
    return rearranged(steps, [*steps[:i], *steps[i + 1 :]])


def swap(tape, pick):
    steps = pick([x for x in lists(tape.steps) if len(x) > 1])
    i = pick(range(len(steps) - 1))
    return rearranged(steps, [*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]])


def reorder(tape, pick):
    """Two steps of one list, however far apart, in each other's place."""
    steps = pick([x for x in lists(tape.steps) if len(x) > 2])
    i, k = pick(range(len(steps))), pick(range(len(steps)))
    new = list(steps)
    new[i], new[k] = new[k], new[i]
    return rearranged(steps, new)


def again(tape, pick):
    """A loop of another number of turns, wherever it stands."""
    step = pick(steps_of(tape, RepeatStep))
    return changed(step.counter, "count", step.counter.count + pick([-1, 1, 2]))


def shift(tape, pick):
    step = pick([s for s in steps_of(tape) if _refs(s)])
    where = pick(_refs(step))
    ref = _ref(step, where)
    return _place(step, where, replace(ref, offset=ref.offset + pick([-64, -8, -4, 4, 8, 64])))


def overlap(tape, pick):
    """A temporary where another one is."""
    temps = list({r.buffer: 0 for s in steps_of(tape) for r in (*s.reads(), *s.writes()) if r.buffer.kind == "temp"})
    mine, other = pick(temps), pick(temps)
    return changed(mine, "offset", other.offset)


def elsewhere(tape, pick):
    """An operand that is another buffer of the same size."""
    step = pick([s for s in steps_of(tape) if _refs(s)])
    where = pick(_refs(step))
    ref = _ref(step, where)
    others = {r.buffer: 0 for s in steps_of(tape) for r in (*s.reads(), *s.writes())}
    return _place(step, where, replace(ref, buffer=pick([b for b in others if b.nbytes == ref.buffer.nbytes])))


def shorter(tape, pick):
    """A loop of another number of turns, a copy of other bytes, a place that moves in other steps."""
    found = steps_of(tape, RepeatStep, CopyStep)
    moving = [(s, w) for s in steps_of(tape) for w in _refs(s) if _ref(s, w).moves]
    step = pick([*found, *moving])
    if isinstance(step, tuple):
        ref = _ref(*step)
        (counter, stride), *rest = ref.moves
        return _place(*step, replace(ref, moves=((counter, pick([0, -stride, 2 * stride])), *rest)))
    if isinstance(step, RepeatStep):
        return changed(step.counter, "count", step.counter.count + pick([-1, 1]))
    return changed(step, "nbytes", step.nbytes - pick([1, 4]))


def exchange(tape, pick):
    """Two operands of a call, or two branches, in each other's place."""
    calls = [s for s in steps_of(tape, CallStep, HostStep) if len(s.ins) > 1]
    step = pick([*calls, *(s for s in steps_of(tape, BranchStep) if len(s.branches) > 1)])
    if isinstance(step, BranchStep):
        return changed(step, "branches", step.branches[::-1])
    i, k = pick(range(len(step.ins))), pick(range(len(step.ins)))
    refs = list(step.ins)
    refs[i], refs[k] = refs[k], refs[i]
    return changed(step, "ins", tuple(refs))


def result(tape, pick):
    """Another buffer as a result."""
    i = pick(range(len(tape.outputs)))
    others = [b for b in (*tape.inputs, *tape.outputs) if b.nbytes == tape.outputs[i].nbytes]
    return changed(tape, "outputs", [pick(others) if k == i else b for k, b in enumerate(tape.outputs)])


FAULTS = (drop, swap, reorder, again, shift, overlap, elsewhere, shorter, exchange, result)


def _run(tape, args):
    with np.errstate(all="ignore"):
        return [y.tobytes() for y in TapeInterpreter(tape, engine(isa.current()))(args)]


def planted(seed, count):
    """What became of ``count`` faults in one tape, by kind; and those that were missed."""
    tape, before, args, rng = random_tape(seed)
    given = [np.array(x, t.dtype) for x, t in zip(args, tape.in_types, strict=False)]
    if len(given) != len(tape.in_types):
        return Tally(), []
    tally, missed, wanted = Tally(), [], None
    for _ in range(count):
        fault = FAULTS[rng.integers(len(FAULTS))]
        try:
            pick = lambda xs: xs[int(rng.integers(len(xs)))]
            change = fault(tape, pick)
        except (ValueError, IndexError):
            continue  # nothing of the kind is there
        if wanted is None:
            wanted = _run(tape, [x.copy() for x in given])
        with change:
            try:
                verify(tape, before)
            except VerificationError:
                tally[fault.__name__, "refused"] += 1
                continue
            same = _run(tape, [x.copy() for x in given]) == wanted
            tally[fault.__name__, "without effect" if same else "missed"] += 1
            if not same:
                missed.append((seed, fault.__name__, str(tape)))
    return tally, missed
