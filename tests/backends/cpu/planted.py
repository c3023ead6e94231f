"""Programs with one fault each; ``python planted.py <faults>`` runs each in a process of its own. See `test_guard`."""

import ctypes
import gc
import json
import os
import sys
import tempfile
import traceback

import numpy as np

import nxjax as nx
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.kernels.cpu.base import Kernel, KernelCost, pointer
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, Counter, CpuProgram, Ref, RepeatStep
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType

N = 12
F32 = np.dtype("float32")
TYPE = ArrayType((N,), F32)


class Planted(Kernel):
    """``y = x``; item i reads element ``i + read`` and writes element ``i + written``, by way of ``scratch`` bytes."""

    grain = 1

    def __init__(self, read=0, written=0, items=N, scratch=0, place=0, backwards=False, address=0):
        self.read, self.written, self.items, self.scratch, self.place = read, written, items, scratch, place
        self.backwards, self.address = backwards, address

    @property
    def key(self):
        return f"planted({self.read}, {self.written}, {self.scratch}, {self.place}, {self.backwards}, {self.address})"

    def meaning(self, *xs):
        return [x.copy() for x in xs]

    def touches(self):
        return None

    def cost(self):
        return KernelCost(1, 4, 4)

    def emit(self, module, isa):
        f, words, lo, hi, scratch = self.function(module)
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        if self.backwards:
            x, y = y, x
        if self.address:
            x = f.cast("inttoptr", f.constant("i64", self.address), "ptr")
        with f.loop(lo, hi) as turn:
            value = f.load("float", f.at(f.at(x, turn.index + self.read, 4), 0))
            if self.scratch:
                f.store(value, f.at(scratch, self.place))
                value = f.load("float", f.at(scratch, self.place))
            f.store(value, f.at(y, turn.index + self.written, 4))
        f.ret()


def executable(steps, arena=0, donated=()):
    """Of one argument and one result."""
    return CpuExecutable(CpuProgram((TYPE,), (TYPE,), [x], [y], [], steps, arena, donated), hurry=False)


def run(*steps, arena=0):
    given = np.arange(N, dtype=F32)
    (result,) = executable(list(steps), arena)([DeviceArray(given, TYPE)])
    return np.asarray(result)


x, y = Buffer(TYPE.size * 4, "input", 0), Buffer(TYPE.size * 4, "output", 0)
X, Y = (Ref(x),), (Ref(y),)


def temporaries(*offsets):
    return [Buffer(4 * N, "temp", offset=o) for o in offsets]


def reads_after():
    *_, equation = nx.make_jaxpr(lambda x: x + 1)(np.zeros(N, F32)).equations
    run(CallStep(Planted(read=1), X, Y, equation=equation))


def reads_before():
    run(CallStep(Planted(read=-1), X, Y))


def writes_after():
    run(CallStep(Planted(written=1), X, Y))


def writes_before():
    run(CallStep(Planted(written=-1), X, Y))


def writes_argument():
    run(CallStep(Planted(), X, Y), CallStep(Planted(backwards=True), X, Y))


def reads_what_is_beside_nothing():
    """An address that is an offset alone; there is no scratch memory, and none of 0 bytes at 0."""
    run(CallStep(Planted(address=64), X, Y))


def reads_after_on_threads():
    nx.config.update("num_threads", 2)
    run(CallStep(Planted(items=N + 1), X, Y))


def copies_too_much():
    run(CopyStep(Ref(x), Ref(y), 4 * N + 4))


def moves_too_far():
    counter = Counter(4)
    run(RepeatStep(counter, [CopyStep(Ref(x, 0, ((counter, 16),)), Ref(y, 0, ((counter, 12),)), 12)]))


def writes_after_scratch():
    run(CallStep(Planted(scratch=64, place=64), X, Y))


def writes_into_slack_of_scratch():
    run(CallStep(Planted(scratch=60, place=60), X, Y))


def uses_after_free():
    f = nx.jit(lambda x: x + 1)
    z = f(np.arange(N, dtype=F32))
    place = np.asarray(z).ctypes.data
    held = np.asarray(z)[2:4]
    del z
    gc.collect()
    assert held.tolist() == [3, 4], "a view holds the memory"
    del held
    gc.collect()
    ctypes.c_float.from_address(place).value  # noqa: B018


def reads_temporary_before_it_is_written():
    (a,) = temporaries(0)
    print(run(CallStep(Planted(), (Ref(a),), Y), CallStep(Planted(), X, (Ref(a),)), arena=64))


def reads_temporary_of_the_turn_before():
    """What lives in a body only is nobody's at the beginning of the next turn."""
    (a,) = temporaries(0)
    first = CallStep(Planted(items=6), X, (Ref(a),))  # the other six are left from before
    print(run(RepeatStep(Counter(2), [first, CallStep(Planted(), (Ref(a),), Y)]), arena=64))


def temporaries_overlap():
    """Both are needed at once, and lie at one place of the arena."""
    a, b = temporaries(0, 0)
    print(run(CallStep(Planted(), X, (Ref(a),)), CallStep(Planted(), X, (Ref(b),)), CallStep(Planted(), (Ref(a),), Y),
              CopyStep(Ref(b), Ref(y), 4), arena=64))  # fmt: skip


def none():
    a, b = temporaries(0, 64)
    kernels = CallStep(Planted(), X, (Ref(a),)), CallStep(Planted(scratch=60), (Ref(a),), (Ref(b),))
    print(run(*kernels, CopyStep(Ref(b), Ref(y), 4 * N), arena=128))


def apart(name):
    """How the process of one fault ended, and what it said."""
    with tempfile.TemporaryFile() as said:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                globals()[name]()
                sys.stdout.flush()
                os._exit(0)
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode()


if __name__ == "__main__":
    none()  # what all of them need is made once
    print(json.dumps({name: apart(name) for name in sys.argv[1:]}))
