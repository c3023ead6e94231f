"""Copies that need not be are not; those that must be are."""

from nxjax.kernels.cpu.base import Box, dense, plain
from nxjax.lower.cpu.memory_copies import onto_donated, without_copies
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, Ref
from tests.kernels.cpu.written import Written


class Pure(Written):
    """A kernel of one input and one output, which may be one place or not."""

    def __init__(self, inplace=False, nbytes=64):
        super().__init__(lambda *_: None, lambda x: [x])
        self.inplace = ((0, 0),) if inplace else ()
        self.nbytes = nbytes

    def touches(self):
        return plain(dense(self.nbytes), dense(self.nbytes))


class Double(Pure):
    """A kernel of one input and two outputs, of which each may lie where the input does."""

    def __init__(self):
        super().__init__()
        self.inplace = ((0, 0), (1, 0))

    def touches(self):
        return plain(dense(64), dense(64, 64))


class Columns(Written):
    """Columns of two operands of four rows of 16 bytes: those of the first as they are, and ``beside`` them."""

    def __init__(self, nbytes, beside):
        super().__init__(lambda *_: None, lambda x, y: [x])
        self.inplace = ((0, 0),)
        self.columns = Box(nbytes, (4,), (16,))
        self.beside = Box(4, (4,), (16,), beside)

    def touches(self):
        return plain((self.columns, self.beside), (self.columns,))


def buffers():
    return Buffer(64, "input", 0), Buffer(64, "temp"), Buffer(64, "temp"), Buffer(64, "output", 0)


def call(source, target, inplace=False, nbytes=64):
    return CallStep(Pure(inplace, nbytes), (Ref(source),), (Ref(target),))


def copy(source, target):
    return CopyStep(Ref(source), Ref(target), 64)


def test_a_value_is_made_where_its_copy_goes():
    x, t, _, y = buffers()
    steps = [call(x, t), copy(t, y)]
    without_copies(steps)
    assert len(steps) == 1
    assert steps[0].outs == (Ref(y),)


def test_an_argument_is_not_overwritten():
    x, t, _, y = buffers()
    steps = [copy(x, t), call(t, t, inplace=True), copy(t, y)]
    without_copies(steps)
    assert all(ref.buffer is not x for s in steps for ref in s.writes())
    assert sum(isinstance(s, CopyStep) for s in steps) == 1


def test_a_copy_that_is_read_after_a_write_to_its_source_stays():
    x, t, u, y = buffers()
    steps = [call(x, t), copy(t, u), call(x, t), call(u, y), call(t, t, inplace=True)]
    without_copies(steps)
    assert any(isinstance(s, CopyStep) for s in steps)


def test_a_value_and_its_copy_are_one_as_long_as_nobody_writes_to_either():
    x, t, u, y = buffers()
    z = Buffer(64, "output", 1)
    steps = [call(x, t), copy(t, u), call(u, y), call(t, z)]
    without_copies(steps)
    assert len(steps) == 3
    assert steps[0].outs == steps[1].ins == steps[2].ins
    x, t, u, y = buffers()
    steps = [call(x, t), copy(t, u), call(x, u), call(t, y), call(u, z)]
    without_copies(steps)
    made, written = steps[0].outs[0], next(s for s in reversed(steps[:-2]) if s.reads() == (Ref(x),)).outs[0]
    assert made != written and steps[-2].ins == (made,) and steps[-1].ins == (written,)


def test_kernels_that_may_work_in_place():
    x, t, u, y = buffers()
    steps = [call(x, t), call(t, u, inplace=True), call(u, y, inplace=True)]
    without_copies(steps)
    assert [s.outs[0].buffer for s in steps] == [y, y, y]
    x, t, u, y = buffers()
    steps = [call(x, t), call(t, u), call(u, y)]
    without_copies(steps)
    assert [s.outs[0].buffer for s in steps] == [t, u, y]


def test_two_outputs_are_never_one_place():
    """Also where nobody reads one of them."""
    x, t, u, y = buffers()
    steps = [call(x, t), CallStep(Double(), (Ref(t),), (Ref(u), Ref(Buffer(64, "temp")))), call(u, y)]
    without_copies(steps)
    assert steps[1].outs[0] != steps[1].outs[1]
    x, t, u, y = buffers()
    steps = [call(x, t), CallStep(Double(), (Ref(t),), (Ref(Buffer(64, "temp")), Ref(u))), call(u, y)]
    without_copies(steps)
    assert steps[1].outs[0] != steps[1].outs[1]


def test_parts_are_updated_in_place_while_no_part_reads_what_another_has_made():
    def copies(at):
        """The second part, bytes 12 to 16 of each row, reads those at ``at`` of the old value."""
        carry, other, t = Buffer(64, "temp"), Buffer(64, "temp"), Buffer(64, "temp")
        steps = [
            CallStep(Columns(12, 0), (Ref(carry), Ref(other)), (Ref(t),)),
            CallStep(Columns(4, at - 12), (Ref(carry, 12), Ref(carry, 12)), (Ref(t, 12),)),
            copy(t, carry),
        ]
        without_copies(steps)
        return sum(isinstance(s, CopyStep) for s in steps)

    assert copies(12) == 1  # it may be read after it is written
    assert copies(0) == copies(8) == 1
    carry, t, x = Buffer(64, "temp"), Buffer(64, "temp"), Buffer(64, "input", 0)
    steps = [
        CallStep(Columns(12, 0), (Ref(carry), Ref(x)), (Ref(t),)),
        CallStep(Columns(4, 0), (Ref(carry, 12), Ref(x)), (Ref(t, 12),)),
        call(x, Buffer(64, "output", 0)),
        copy(t, carry),
    ]
    without_copies(steps)
    assert [s.outs[0] for s in steps[:2]] == [Ref(steps[0].ins[0].buffer), Ref(steps[0].ins[0].buffer, 12)]
    assert len(steps) == 3


def test_what_lies_around_a_partial_output_stays():
    """``y`` is filled, and every second element of it is then written: the operand may not be made there."""
    x, t, _, y = buffers()
    steps = [call(x, y), call(x, t), call(t, y, inplace=True, nbytes=32)]
    without_copies(steps)
    assert [s.outs[0].buffer for s in steps] == [y, t, y]


def test_the_bytes_of_an_output_are_those_that_its_kernel_says():
    for nbytes, place in ((64, "output"), (60, "temp")):
        x, t, _, y = buffers()
        steps = [call(x, t), CallStep(Pure(True, nbytes), (Ref(t),), (Ref(y),))]
        without_copies(steps)
        assert [s.outs[0].buffer.kind for s in steps] == [place, "output"]


def test_results_lie_in_donated_arguments():
    def program(donated):
        x, _, _, y = buffers()
        return CpuProgram((), (), [x], [y], [], [call(x, y, inplace=True)], donated=donated)

    given, kept = program((0,)), program(())
    onto_donated(given)
    onto_donated(kept)
    assert given.outputs == given.inputs
    assert kept.outputs != kept.inputs
