"""The tape as text, and steps at any depth."""

import numpy as np

from nxjax.lower.cpu.tape import (
    BranchStep,
    Buffer,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    Ref,
    RepeatStep,
    WhileStep,
    walk,
)
from nxjax.trace.types import ArrayType
from tests.kernels.cpu.written import Written


def program():
    x, t, y = Buffer(64, "input", 0), Buffer(64, "temp", offset=128), Buffer(64, "output", 0)
    turn = Counter(4)
    kernel = Written(lambda *_: None, lambda x: [x], items=3, integers=(5,))
    call = CallStep(kernel, (Ref(x, 0, ((turn, 16),)),), (Ref(t),))
    copy = CopyStep(Ref(t), Ref(y, 8), 16)
    loop = RepeatStep(turn, [call, WhileStep([copy], Ref(t), [copy])])
    steps = [loop, BranchStep(Ref(t, 4), [[copy], [call]])]
    type = ArrayType((16,), np.dtype(np.float32))
    return CpuProgram((type,), (type,), [x], [y], [np.zeros(3, np.int8)], steps, arena=192)


def test_every_step_is_walked_once():
    p = program()
    names = [type(s).__name__ for s in walk(p.steps)]
    kinds = ["Repeat", "Call", "While", "Copy", "Copy", "Branch", "Copy", "Call"]
    assert names == [f"{kind}Step" for kind in kinds]
    assert len(list(p.calls())) == 2


def test_the_text_names_places_loops_and_constants():
    lines = str(program()).splitlines()
    assert lines[0] == "cpu program: input0 -> output0, arena 192 bytes"
    assert lines[1] == "  const0 = int8[3]"
    assert lines[2] == "  repeat 4"
    assert lines[3].startswith("    temp@128 = written(")
    assert "(3 items) [5] input0[0+16*turn]" in str(program())
    assert any(line == "      output0[8] = copy temp@128 (16 bytes)" for line in lines)
    assert sum(line.strip() == "or" for line in lines) == 2
    assert any("branch on temp@128[4]" in line for line in lines)


def test_steps_say_what_they_read_and_write():
    loop, branch = program().steps
    call, repeated = loop.body
    assert [r.buffer.kind for r in call.reads()] == ["input"]
    assert [r.buffer.kind for r in call.writes()] == ["temp"]
    assert repeated.reads() == (repeated.flag,)
    assert branch.reads() == (branch.index,)
    assert not branch.writes()
