"""Tapes with a fault of each kind are refused, with its name; so are faults planted in the tapes of random programs."""

import itertools
from collections import Counter as Tally

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import VerificationError
from nxjax.kernels.cpu.base import Box, Touches, dense
from nxjax.kernels.cpu.base import OutputEffect as Stored
from nxjax.kernels.cpu.expression import Constant, ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output, Reduction
from nxjax.kernels.cpu.nest_plan import NestPlan, Pass, SavedValue
from nxjax.lower.cpu.lower import _lowered, lower, lower_parts
from nxjax.lower.cpu.memory import placed
from nxjax.lower.cpu.tape import (
    BranchStep,
    Buffer,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    Ref,
    RepeatStep,
    TapeStep,
    WhileStep,
)
from nxjax.lower.cpu.verify import trace, verify
from nxjax.lower.cpu.verify_operands import interleaved
from nxjax.trace import dtypes
from nxjax.trace.core import get_op
from tests.kernels.cpu.written import Written
from tests.lower.cpu.planted import FAULTS, planted

pytestmark = pytest.mark.unguarded  # tapes are followed, not run


class Does(Written):
    """A kernel that only says what it does."""

    def __init__(self, ins, outs, inplace=(), flaw=""):
        super().__init__(lambda *_: None, lambda *xs: xs)
        self.said = Touches(tuple((b,) for b in ins), tuple(o if isinstance(o, Stored) else Stored((o,)) for o in outs))
        self.inplace = inplace
        self.said_flaw = flaw

    def touches(self):
        return self.said

    def flaw(self):
        return self.said_flaw


WHOLE = Does(dense(64), dense(64))
ROW = Does(dense(16), dense(16))


def argument(i=0, nbytes=64):
    return Buffer(nbytes, "input", i)


def result(i=0, nbytes=64):
    return Buffer(nbytes, "output", i)


def temp(offset=0, nbytes=64):
    return Buffer(nbytes, "temp", offset=offset)


def call(kernel, ins, outs):
    ref = lambda b: b if isinstance(b, Ref) else Ref(b)
    return CallStep(kernel, tuple(map(ref, ins)), tuple(map(ref, outs)))


def tape(inputs, outputs, steps, consts=(), arena=1024, donated=()):
    return CpuProgram((), (), list(inputs), list(outputs), list(consts), list(steps), arena, donated)


def refused(kind, program, before=None):
    with pytest.raises(VerificationError, match=f"verify: {kind}: ") as caught:
        verify(program, before)
    return str(caught.value)


X, Y = argument(), result()


def test_a_sound_tape():
    t, u = temp(), temp(64)
    verify(tape([X], [Y], [call(WHOLE, [X], [t]), call(WHOLE, [t], [u]), CopyStep(Ref(u), Ref(Y), 64)]))


def test_what_nobody_wrote_is_not_read():
    t = temp()
    text = refused("unwritten", tape([X], [Y], [call(WHOLE, [t], [Y])]))
    assert "bytes 0 to 64" in text and "temp@0" in text and "written(" in text


def test_every_byte_counts():
    t = temp()
    steps = [call(ROW, [X], [t]), call(ROW, [X], [Ref(t, 32)]), call(WHOLE, [t], [Y])]
    assert "bytes 16 to 32" in refused("unwritten", tape([X], [Y], steps))


@pytest.mark.parametrize("rows", [8, 500])
def test_strided_parts_are_known_to_the_byte(rows):
    t, y = temp(nbytes=8 * rows), result(nbytes=8 * rows)
    left = Does([Box(4)], [Box(4, (rows,), (8,))])
    whole = Does([Box(8 * rows)], [Box(8 * rows)])
    parts = [call(left, [X], [t]), call(left, [X], [Ref(t, 4)])]
    verify(tape([X], [y], [*parts, call(whole, [t], [y])], arena=8 * rows + 64))
    text = refused("unwritten", tape([X], [y], [parts[0], call(whole, [t], [y])], arena=8 * rows + 64))
    assert "bytes 4 to 8" in text


@pytest.mark.parametrize("parts", [1, 2])
def test_a_second_tape_reads_strided_parts_of_the_first(parts):
    rows = 5000
    y, z = result(nbytes=8 * rows), result(nbytes=8 * rows)
    left = Does([Box(4)], [Box(4, (rows,), (8,))])
    first = tape([X], [y], [call(left, [X], [Ref(y, 4 * i)]) for i in range(parts)])
    made = verify(first, complete=False)
    # They are not spread: a result of two million parts would take longer than the compiler.
    assert len(made.contents[0]) <= parts
    given = argument(nbytes=8 * rows)
    whole = Does([Box(8 * rows)], [Box(8 * rows)])
    second = tape([given], [z], [call(whole, [given], [z])])
    if parts == 2:
        verify(second, arguments=made.contents)
    else:
        with pytest.raises(VerificationError, match=r"unwritten.*bytes 4 to 8"):
            verify(second, arguments=made.contents)


def test_results_are_complete():
    refused("unwritten", tape([X], [Y], [call(ROW, [X], [Y])]))


def test_what_is_written_in_part_is_not_complete():
    some = Does(dense(64), [Stored(dense(64), "some")])
    refused("unwritten", tape([X], [Y], [call(some, [X], [Y])]))
    verify(tape([X], [Y], [call(WHOLE, [X], [Y]), call(some, [X], [Y])]))


def test_live_temporaries_lie_apart():
    t, u = temp(0), temp(0)
    steps = [call(WHOLE, [X], [t]), call(WHOLE, [X], [u]), call(Does(dense(64, 64), dense(64)), [t, u], [Y])]
    assert "temp@0" in refused("overwritten", tape([X], [Y], steps))
    u.offset = 32
    refused("overlap", tape([X], [Y], steps))  # not at a whole line
    u.offset = 64
    verify(tape([X], [Y], steps))


@pytest.mark.parametrize("offset", [64, -1, -64])
def test_temporaries_lie_in_the_arena(offset):
    t = temp(offset)
    refused("overlap", tape([X], [Y], [call(WHOLE, [X], [t]), call(WHOLE, [t], [Y])], arena=64))
    refused("overlap", tape([X], [Y], [CopyStep(Ref(X), Ref(t), 64), CopyStep(Ref(t), Ref(Y), 64)], arena=64))


def test_places_are_inside_of_buffers():
    refused("outside", tape([X], [Y], [call(WHOLE, [Ref(X, 4)], [Y])]))
    refused("outside", tape([X], [Y], [call(WHOLE, [X], [Ref(Y, -4)])]))
    row = RepeatStep(Counter(5), [])
    row.body.append(call(ROW, [Ref(X, 0, ((row.counter, 16),))], [Y]))
    refused("outside", tape([X], [Y], [row]))
    idle = Touches(((Box(64), Box(4, offset=64, idle=True)),), (Stored(dense(64)),))
    kernel = Does(dense(64), dense(64))
    kernel.said = idle
    refused("outside", tape([X], [Y], [call(kernel, [X], [Y])]))


def test_constants_and_arguments_are_not_written():
    c = Buffer(64, "const", 0)
    refused("constant", tape([X], [Y], [call(WHOLE, [X], [c])], [np.zeros(64, np.uint8)]))
    refused("constant", tape([X], [Y], [call(WHOLE, [X], [argument(1)])]))


def test_operands_lie_apart_but_where_the_kernel_allows_it():
    t = temp(nbytes=128)
    steps = lambda kernel, at: [call(WHOLE, [X], [t]), call(WHOLE, [X], [Ref(t, 64)]), call(kernel, [t], [Ref(t, at)])]
    ending = CopyStep(Ref(t, 64), Ref(Y), 64)
    refused("overlap", tape([X], [Y], [*steps(WHOLE, 16), ending]))
    refused("overlap", tape([X], [Y], [*steps(WHOLE, 0), ending]))
    verify(tape([X], [Y], [*steps(WHOLE, 64), ending]))
    verify(tape([X], [Y], [*steps(Does(dense(64), dense(64), ((0, 0),)), 0), ending]))
    refused("overlap", tape([X], [Y], [*steps(Does(dense(64), dense(64), ((0, 0),)), 16), ending]))
    every_other = Does([Box(4, (8,), (8,))], [Box(4, (8,), (8,))])
    verify(tape([X], [Y], [*steps(every_other, 4), ending]))
    refused("overlap", tape([X], [Y], [*steps(every_other, 8), ending]))
    refused("overlap", tape([X], [Y], [call(WHOLE, [X], [t]), CopyStep(Ref(t), Ref(t, 32), 64), ending]))


@pytest.mark.parametrize("n", [4, 1500])
def test_operands_that_take_turns_lie_apart_however_many_pieces_they_have(n):
    # As the parts of complex numbers, and as rows beside them, 9 million pieces in the larger one.
    part, whole = Box(4, (n, n), (16 * n, 8)), result(nbytes=16 * n * n)
    kernel = Does([Box(64)], [part] * 4)
    parts = lambda *places: tape([X], [whole], [call(kernel, [X], [Ref(whole, at) for at in places])])
    verify(parts(0, 4, 8 * n, 8 * n + 4))
    refused("overlap", parts(0, 4, 8 * n, 8 * n + 2))
    refused("overlap", parts(0, 4, 8 * n - 8, 8 * n + 4))


def test_parts_of_a_period_have_no_byte_in_common():
    r, apart = np.random.default_rng(0), 0
    box = lambda: (int(r.integers(1, 5)), tuple((int(r.integers(2, 5)), 4 * int(r.integers(1, 9))) for _ in range(2)))
    for _ in range(3000):
        (length, repeats), (other, again), shift = box(), box(), int(r.integers(-40, 41))
        if interleaved(length, repeats, other, again, shift):
            (n, s), (m, t) = repeats
            x = {p + i * s + j * t for p in range(length) for i in range(n) for j in range(m)}
            (n, s), (m, t) = again
            y = {p + i * s + j * t + shift for p in range(other) for i in range(n) for j in range(m)}
            assert x.isdisjoint(y), (length, repeats, other, again, shift)
            apart += 1
    assert apart > 99


def test_in_place_means_the_same_bytes_in_the_same_order():
    turned = Does([Box(4, (4, 4), (4, 16))], [Box(4, (4, 4), (16, 4))], ((0, 0),))
    assert "other bytes" in refused("kernel", tape([X], [Y], [call(turned, [X], [Y])]))


def test_a_loop_finds_in_its_first_turn_what_it_reads():
    t = temp()
    loop = RepeatStep(Counter(3), [call(WHOLE, [t], [Y]), call(WHOLE, [X], [t])])
    refused("unwritten", tape([X], [Y], [loop]))
    verify(tape([X], [Y], [call(WHOLE, [X], [t]), loop]))


def test_a_loop_finds_in_its_second_turn_what_it_reads():
    t, u = temp(), temp()
    loop = RepeatStep(Counter(2), [call(WHOLE, [t], [Y]), call(WHOLE, [X], [u])])
    refused("overwritten", tape([X], [Y], [call(WHOLE, [X], [t]), loop]))


@pytest.mark.parametrize("count", [1, 2, 3, 50, 100_000])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_all_turns_make_a_result(count, reverse):
    y = result(nbytes=16 * count)
    loop = RepeatStep(Counter(count), [])
    start, step = (16 * (count - 1), -16) if reverse else (0, 16)
    loop.body.append(call(ROW, [X], [Ref(y, start, ((loop.counter, step),))]))
    verify(tape([X], [y], [loop]))
    if count > 1:
        loop.counter.count -= 1
        start = 0 if not reverse else 16
        refused("unwritten", tape([X], [y], [loop]))


@pytest.mark.parametrize("count", [2, 3, 50])
@pytest.mark.parametrize("pieces", [(0, 16, 32), (32, 16, 0), (0, 32, 16)])
def test_rows_in_pieces_make_a_result(count, pieces):
    y = result(nbytes=48 * count)
    loop = RepeatStep(Counter(count), [])
    loop.body += [call(ROW, [X], [Ref(y, at, ((loop.counter, 48),))]) for at in pieces]
    verify(tape([X], [y], [loop]))
    for k in range(3):
        less = RepeatStep(loop.counter, loop.body[:k] + loop.body[k + 1 :])
        refused("unwritten", tape([X], [y], [less]))


def registers(count=None):
    """Four carries that begin as one value; each turn makes the first anew, the others take what was before them."""
    a, b, c, d = (result(i) for i in range(4))
    t, u, v, flag = temp(0), temp(64), temp(128), temp(192, 1)
    start = [call(WHOLE, [X], [a]), *(CopyStep(Ref(a), Ref(x), 64) for x in (b, c, d))]
    body = [
        call(WHOLE, [a], [t]),
        CopyStep(Ref(a), Ref(u), 64),
        CopyStep(Ref(b), Ref(v), 64),
        CopyStep(Ref(c), Ref(d), 64),
        CopyStep(Ref(t), Ref(a), 64),
        CopyStep(Ref(u), Ref(b), 64),
        CopyStep(Ref(v), Ref(c), 64),
    ]
    ask = call(Does(dense(64), dense(1)), [a], [flag])
    loop = WhileStep([ask], Ref(flag), body) if count is None else RepeatStep(Counter(count), body)
    return tape([X], [a, b, c, d], [*start, loop]), body


@pytest.mark.parametrize("count", [4, 9, None])
def test_equal_carries_hide_no_fault(count):
    program, body = registers(count)
    before = trace(program)
    verify(program, before)
    body[3], body[6] = body[6], body[3]  # the last carry gets what the third one has become
    refused("changed", program, before)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
def test_how_often_a_loop_runs_is_compared(count):
    loop = RepeatStep(Counter(count), [call(Does(dense(64), dense(64), ((0, 0),)), [Y], [Y])])
    program = tape([X], [Y], [call(WHOLE, [X], [Y]), loop])
    before = trace(program)
    verify(program, before)
    loop.counter.count += 1
    refused("changed", program, before)


def test_how_often_a_loop_acts_is_compared():
    act = lambda c, _: (nx.experimental.io_callback(lambda: np.int32(1), jnp.int32(0)), None)
    program = _lowered(nx.make_jaxpr(lambda x: nx.lax.scan(act, x, None, length=4)[0])(jnp.int32(0)), ())
    before = trace(program)
    verify(placed(program), before)
    (loop,) = (s for s in program.steps if isinstance(s, RepeatStep))
    loop.counter.count = 5
    refused("changed", program, before)


def test_what_one_turn_of_a_while_leaves_is_compared():
    flag, t, constant = temp(128, 1), temp(), np.zeros(64, np.uint8)
    ask = call(Does(dense(64), dense(1)), [X], [flag])
    value = Buffer(64, "const", 0)
    body = [CopyStep(Ref(t), Ref(Y), 64), CopyStep(Ref(value), Ref(t), 64)]
    program = tape(
        [X], [Y], [CopyStep(Ref(X), Ref(Y), 64), CopyStep(Ref(X), Ref(t), 64), WhileStep([ask], Ref(flag), body)]
    )
    program.consts.append(constant)
    before = trace(program)
    verify(program, before)
    body.reverse()  # no other value from the second turn on
    refused("changed", program, before)


def rows_read(size):
    """A loop over rows of ``size`` bytes of a temporary, and what writes them before."""
    t = temp(nbytes=16 * 5)
    loop = RepeatStep(Counter(5), [])
    loop.body.append(call(Does(dense(size, 64), dense(64), ((0, 1),)), [Ref(t, 0, ((loop.counter, 16),)), Y], [Y]))
    return [call(WHOLE, [X], [Y]), *(call(ROW, [X], [Ref(t, 16 * i)]) for i in range(5))], loop


def test_the_turns_between_find_what_they_read():
    steps, loop = rows_read(16)
    verify(tape([X], [Y], [*steps, loop]))
    for missing in (2, 3, 4):
        refused("unwritten", tape([X], [Y], [*steps[:missing], *steps[missing + 1 :], loop]))
    other = temp(0)
    loop.body.append(call(Does(dense(16), dense(16)), [X], [Ref(other, 32)]))
    refused("overwritten", tape([X], [Y], [*steps, loop]))


def test_no_more_than_the_bytes_that_turns_read_has_to_be_written():
    steps, loop = rows_read(4)
    for step in steps[1:]:
        step.kernel = Does(dense(16), dense(4))
    verify(tape([X], [Y], [*steps, loop]))


def test_the_second_turn_reads_its_own_row():
    y = result(nbytes=64)
    t = temp(nbytes=64)
    loop = RepeatStep(Counter(4), [])
    at = ((loop.counter, 16),)
    loop.body.append(call(ROW, [Ref(t, 0, at)], [Ref(y, 0, at)]))
    program = tape([X], [y], [call(ROW, [Ref(X, 16 * i)], [Ref(t, 16 * i)]) for i in range(4)])
    program.steps.append(loop)
    before = trace(program)
    verify(program, before)
    program.steps[1].ins = (Ref(X, 32),)
    refused("changed", program, before)


def test_places_move_with_loops_that_are_around_them():
    row = RepeatStep(Counter(4), [])
    other = Counter(4)
    row.body.append(call(ROW, [X], [Ref(Y, 0, ((other, 16),))]))
    refused("outside", tape([X], [Y], [row]))


def test_what_the_next_call_gets_again_is_not_written():
    inplace = Does(dense(64), dense(64), ((0, 0),))
    program = tape([X], [X], [call(inplace, [X], [X])], donated=(0,))
    verify(program)
    with pytest.raises(VerificationError, match="verify: constant: "):
        verify(program, lent=1)


# What planning memory may do: steps that write what is there already go, and results lie in arguments.
MAY = {
    "carries that stay": lambda x, w: nx.lax.scan(lambda c, _: (c, None), x, None, length=3)[0],
    "rows of carries": lambda x, w: nx.lax.scan(lambda c, r: (jnp.tanh(c * r), (c, r.sum())), x[0], w),
    "carries in one another's place": lambda x, w: nx.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[2], c[1]), (0, x, x)
    ),
    "values of one turn": lambda x, w: nx.lax.fori_loop(0, 5, lambda i, c: (w * 2, c[0], c[1]), (x, x, x)),
    "weights in a loop": lambda x, w: nx.lax.fori_loop(0, 5, lambda i, c: jnp.tanh(c @ w), x),
    "every third row": lambda x, w: nx.lax.scan(lambda c, i: (c + 1, c[i]), x, jnp.arange(70)[::3]),
    "loops in a loop": lambda x, w: nx.lax.scan(
        lambda c, r: (nx.lax.scan(lambda d, s: (d * r, d + s), c, w)[0], c), x[0], x
    ),
}


@pytest.mark.parametrize("name", MAY)
@pytest.mark.parametrize("donate", [(), (0,), (1,), (0, 1)])
def test_what_planning_may_do(name, donate):
    x = jnp.asarray(np.linspace(-1, 1, 4900, dtype=np.float32).reshape(70, 70))
    program = nx.make_jaxpr(MAY[name])(x, x.T)
    lower(program, donate)
    lower_parts(program, 1, tuple(i for i in donate if i))


def test_more_pieces_than_are_followed_are_no_change():
    """Indices lie in pairs, where an odd number of bytes lay before: four million cells of one byte."""
    with nx.config.using(enable_x64=True):
        x = np.zeros((4099, 65), np.int8)
        program = nx.make_jaxpr(lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1))(x)
        lower(program, (0,))


def test_rows_of_loops_in_one_another():
    y = result(nbytes=4 * 200 * 16)
    outer, inner = RepeatStep(Counter(4), []), RepeatStep(Counter(200), [])
    outer.body.append(inner)
    inner.body.append(call(ROW, [X], [Ref(y, 0, ((outer.counter, 3200), (inner.counter, 16)))]))
    verify(tape([X], [y], [outer]))


def loops_in_one_another(depth):
    """Loops of five turns around one call that changes the result, and the lists of steps, the outermost first."""
    steps = [call(Does(dense(64), dense(64), ((0, 0),)), [Y], [Y])]
    bodies = [steps]
    for _ in range(depth):
        steps = [RepeatStep(Counter(5), steps)]
        bodies.insert(0, steps)
    return tape([X], [Y], [call(WHOLE, [X], [Y]), *steps]), bodies


def test_the_time_for_loops_in_one_another_grows_slowly_but_under_check():
    follow = lambda *depths: [len(trace(loops_in_one_another(depth)[0]).reads) for depth in depths]
    with nx.config.using(check=True):
        many = follow(2, 3, 4)
    with nx.config.using(check=False):
        few = follow(2, 3, 4, 5, 6, 7)
    assert few[:2] == many[:2] and few[2] < many[2]
    assert max(b - a for a, b in itertools.pairwise(few[2:])) <= 2, few


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("depth", [3, 4, 6])
def test_all_loops_in_one_another_are_followed(check, depth):
    program, bodies = loops_in_one_another(depth)
    with nx.config.using(check=check):
        before = trace(program)
        verify(program, before)
        for steps in bodies[:-1]:
            steps[0].counter.count += 1
            refused("changed", program, before)
            steps[0].counter.count -= 1
        t = temp()
        (inner,) = bodies[-1]
        bodies[-1][:] = [call(WHOLE, [t], [Y]), call(WHOLE, [inner.ins[0]], [t])]
        refused("unwritten", program)


def test_a_while_may_not_run():
    flag, t = temp(128, 1), temp()
    ask = call(Does(dense(64), dense(1)), [X], [flag])
    loop = WhileStep([ask], Ref(flag), [call(WHOLE, [X], [t])])
    refused("unwritten", tape([X], [Y], [loop, call(WHOLE, [t], [Y])]))
    verify(tape([X], [Y], [call(WHOLE, [X], [t]), loop, call(WHOLE, [t], [Y])]))
    refused("unwritten", tape([X], [Y], [call(WHOLE, [X], [Y]), WhileStep([], Ref(flag), [])]))


def test_a_while_that_may_not_end_is_not_left_out():
    flag, other = temp(128, 1), temp(192, 1)
    ask = lambda at: call(Does(dense(64), dense(1)), [X], [at])
    one, two = WhileStep([ask(flag)], Ref(flag), []), WhileStep([ask(other)], Ref(other), [])
    last, index = call(WHOLE, [X], [Y]), Buffer(4, "input", 1)
    before = trace(tape([X], [Y], [one, two, last]))
    verify(tape([X], [Y], [two, one, last]), before)  # none says when the other runs
    assert "an effect" in refused("changed", tape([X], [Y], [one, last]), before)
    chosen = [BranchStep(Ref(index), [[one], [two]]), last]
    before = trace(tape([X, index], [Y], chosen))
    refused("changed", tape([X, index], [Y], [BranchStep(Ref(index), [[two], [one]]), last]), before)


def test_all_branches_write():
    t = temp()
    write = call(WHOLE, [X], [t])
    index = Buffer(4, "input", 1)
    refused("unwritten", tape([X, index], [Y], [BranchStep(Ref(index), [[write], []]), call(WHOLE, [t], [Y])]))
    verify(tape([X, index], [Y], [BranchStep(Ref(index), [[write], [write]]), call(WHOLE, [t], [Y])]))


def test_a_kernel_has_its_operands():
    refused("size", tape([X], [Y], [call(WHOLE, [X, X], [Y])]))


def test_an_argument_is_read_before_it_is_overwritten():
    other = result(1)
    first, last = call(WHOLE, [X], [Y]), call(Does(dense(64, 64), dense(64)), [X, Y], [other])
    before = trace(tape([X], [Y, other], [first, last]))
    verify(tape([X], [Y, other], [first, last], donated=(0,)), before)
    first.kernel.inplace = ((0, 0),)
    first.outs, last.ins = (Ref(X),), (Ref(X), Ref(X))
    text = refused("changed", tape([X], [X, other], [first, last], donated=(0,)), before)
    WHOLE.inplace = ()
    assert "reads other values" in text


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("count", [8, 61])
@pytest.mark.parametrize(("reads", "writes"), [(-1, 1), (2, 1), (1, 0), (-1, 0)])
def test_a_turn_in_the_middle_overwrites_what_a_later_one_reads(reads, writes, count, inner):
    """Rows of a donated argument are read by one stride and written by another: the first turns and the last are right.

    Turn i reads row ``first + reads * i``, and writes row ``begin + writes * i``.
    """
    first = count if reads < 0 else 0
    begin = {(-1, 1): 2, (2, 1): count - 2}.get((reads, writes), first + reads * (count // 2))
    at, wide = Counter(count), 16 * 2 * count
    x, y, other = argument(nbytes=wide), result(nbytes=wide), result(1, 16 * count)
    take = call(ROW, [Ref(x, 16 * first, ((at, 16 * reads),))], [Ref(other, 0, ((at, 16),))])
    put = call(ROW, [Ref(x, wide - 16)], [Ref(y, 16 * begin, ((at, 16 * writes),))])
    loop: TapeStep = RepeatStep(at, [take, put])
    loop = RepeatStep(Counter(2), [loop]) if inner else loop
    before = trace(tape([x], [y, other], [CopyStep(Ref(x), Ref(y), wide), loop], donated=(0,)))
    put.outs = (Ref(x, 16 * begin, ((at, 16 * writes),)),)
    refused("changed", tape([x], [x, other], [loop], donated=(0,)), before)


@pytest.mark.parametrize("reads", [-1, 1, 2])
def test_rows_that_are_read_before_they_are_overwritten(reads):
    at, wide = Counter(9), 16 * 32
    x, y, other = argument(nbytes=wide), result(nbytes=wide), result(1, 16 * 9)
    take = call(ROW, [Ref(x, 16 * 10, ((at, 16 * reads),))], [Ref(other, 0, ((at, 16),))])
    put = call(ROW, [Ref(x, wide - 16)], [Ref(y, 16 * {-1: 11, 1: 0, 2: 1}[reads], ((at, 16),))])
    loop = RepeatStep(at, [take, put])
    before = trace(tape([x], [y, other], [CopyStep(Ref(x), Ref(y), wide), loop], donated=(0,)))
    put.outs = (Ref(x, *[getattr(put.outs[0], a) for a in ("offset", "moves")]),)
    verify(tape([x], [x, other], [loop], donated=(0,)), before)


# --- the tape that was wrong ---


def summed_twice(plan=None):
    """``(sum(x) * cos(x)).sum()`` of 16 rows of 64 floats, with its passes as ``plan`` says."""
    op = lambda name: get_op(name)
    nodes = (
        ExpressionNode(op("cos"), (), (0,), dtypes.float32),
        Reduction("add", 0, bytes(4), dtypes.float32),
        ExpressionNode(op("mul"), (), (1, 2), dtypes.float32),
        Reduction("add", 3, bytes(4), dtypes.float32),
    )
    nest = Nest((16, 64), 1, True, (Input(dtypes.float32, (256, 4)),), nodes, (Output(4, (4, 0)),))
    if plan is not None:
        nest.plan, nest.scratch = plan, sum(s.nbytes for s in plan.slots)
    x, y = argument(nbytes=4096), result()
    return tape([x], [y], [call(nest, [x], [y])])


# As it was planned: the second pass takes ``cos(x)`` (value 1) from scratch memory, where the first one, which did not
# need it, has put nothing.
SLOT = SavedValue(1, 0, 256, (0, 4))
WRONG = NestPlan((Pass([0], frozenset()), Pass([1, 3], frozenset({1})), Pass([], frozenset())), (SLOT,))


def test_the_nest_that_read_what_no_pass_had_saved():
    assert "which no pass before has saved" in refused("kernel", summed_twice(WRONG))
    verify(summed_twice())


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (NestPlan((Pass([0, 1], frozenset()), Pass([1, 3], frozenset({1})), Pass([], frozenset())), (SLOT,)), ""),
        (
            NestPlan((Pass([0], frozenset()), Pass([1, 3], frozenset()), Pass([], frozenset())), (SLOT,)),
            "of value 0",
        ),
        (
            NestPlan((Pass([0], frozenset()), Pass([0, 1], frozenset()), Pass([], frozenset())), ()),
            "does not have value 3",
        ),
        (
            NestPlan((Pass([], frozenset()), Pass([0, 1, 3], frozenset()), Pass([], frozenset())), ()),
            "not have value 0",
        ),
        (NestPlan((Pass([0, 1, 3], frozenset()), Pass([], frozenset()), Pass([], frozenset())), (SLOT,)), "of value 2"),
        (NestPlan((Pass([0], frozenset()),), ()), "made after them"),
        (
            NestPlan((Pass([0, 1], frozenset()), Pass([1, 3], frozenset({1})), Pass([], frozenset())), ()),
            "has saved there",
        ),
    ],
)
def test_passes_have_what_they_take(plan, why):
    if why:
        assert why in refused("kernel", summed_twice(plan))
    else:
        verify(summed_twice(plan))


@pytest.mark.parametrize(
    ("slots", "scratch", "why"),
    [
        ([SavedValue(1, 0, 192, (0, 4))], 192, "takes 256 bytes"),
        ([SavedValue(1, 0, 256, (0, 2))], 256, "saved in the same place"),
        ([SLOT], 128, "of which there are 128"),
        ([SLOT, SavedValue(3, 192, 256, (0, 4))], 448, "where another is"),
    ],
)
def test_saved_values_lie_apart(slots, scratch, why):
    passes = (Pass([0, 1], frozenset()), Pass([1, 3], frozenset({1})), Pass([], frozenset()))
    program = summed_twice(NestPlan(passes, tuple(slots)))
    program.steps[0].kernel.scratch = scratch
    assert why in refused("kernel", program)


def test_a_part_that_is_changed_in_place_keeps_what_lies_around_it():
    """``y = 1; y[::2] = -s``: the nest writes eight of the sixteen floats of ``y``, and ``s`` was made there whole."""
    negative = (ExpressionNode(get_op("neg"), (), (0,), dtypes.float32),)
    kernel = Nest((8,), 1, False, (Input(dtypes.float32, (8,)),), negative, (Output(1, (8,)),))
    one = (Constant(np.float32(1).tobytes(), np.dtype(np.float32)),)
    ones = Nest((16,), 1, False, (), one, (Output(0, (4,)),))
    s = temp()
    fill, make, change = call(ones, [], [Y]), call(WHOLE, [X], [s]), call(kernel, [s], [Y])
    program = tape([X], [Y], [fill, make, change])
    before = trace(program)
    verify(program, before)
    make.outs = change.ins = (Ref(Y),)
    refused("changed", program, before)


def test_what_a_step_writes_in_part_it_keeps_of_the_same_values():
    """``u`` is changed in part and read; in the plan ``t`` is, which holds other values."""
    t, u = temp(0), temp(64)
    change = call(Does(dense(64), [Stored(dense(64), "some")]), [X], [u])
    last = call(WHOLE, [u], [Y])
    program = tape([X], [Y], [call(WHOLE, [X], [t]), call(WHOLE, [t], [u]), change, last])
    before = trace(program)
    verify(program, before)
    change.outs = last.ins = (Ref(t),)
    refused("changed", program, before)


# --- faults in real tapes ---


def test_faults_that_change_a_result_are_refused():
    tally, missed = Tally(), []
    for seed in range(40):
        found, wrong = planted(seed, 12)
        tally += found
        missed += wrong
    assert not missed, missed[0]
    for fault in FAULTS:
        assert tally[fault.__name__, "refused"] >= 3, tally


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_arguments_and_results_are_those_that_a_call_passes(kind):
    x = np.arange(3, dtype=np.float32)

    def made():
        tape = _lowered(nx.make_jaxpr(lambda x, y: (x - y, x * 2 + y))(x, x), ())
        before = trace(tape)
        placed(tape)
        verify(tape, before)
        return tape, before, getattr(tape, kind)

    tape, before, buffers = made()
    buffers[0].index, buffers[1].index = 1, 0
    with pytest.raises(VerificationError, match="not what a call passes"):
        verify(tape, before)
    tape, before, buffers = made()
    buffers[0].nbytes += 4096
    with pytest.raises(VerificationError, match="4108 bytes"):
        verify(tape, before)
