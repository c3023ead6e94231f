"""One op through the CPU compiler, against its NumPy meaning, bit by bit."""

import numpy as np

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import HostStep, walk

ISAS = isa.possible()


def tape(op, *xs, **params):
    """The `CpuProgram` of one equation."""
    types = [nx.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in xs]
    return lower(nx.make_jaxpr(lambda *values: op(*values, **params))(*types))


def hosted(program):
    """The names of the ops that run by their NumPy meaning."""
    return [s.equation.op.name for s in walk(program.steps) if isinstance(s, HostStep)]


def results(op, *xs, name=None, **params):
    """What machine code gives; no step of ``op`` may run on the host."""
    program = tape(op, *xs, **params)
    assert op.name not in hosted(program), str(program)
    return TapeInterpreter(program, engine(isa.named(name) if name else isa.current()))(xs)


def meant(op, *xs, **params):
    """What the op's own NumPy gives."""
    with np.errstate(all="ignore"):
        ys = op.eval(*xs, **params)
    return list(ys) if op.multi else [ys]


def same(op, *xs, name=None, **params):
    """Equal to the meaning in every bit."""
    ys = results(op, *xs, name=name, **params)
    for y, wanted in zip(ys, meant(op, *xs, **params), strict=True):
        assert y.shape == wanted.shape
        assert y.dtype == wanted.dtype
        assert y.tobytes() == np.ascontiguousarray(wanted).tobytes(), (op.name, params, y, wanted)
    return ys


def numbers(shape, dtype, seed=0):
    """Bits of every kind for moving; numbers of both signs for the rest."""
    from nxjax.trace import dtypes

    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == dtypes.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == dtypes.key or (dtype.kind == "V" and dtype.names):
        return rng.integers(0, 2**32, 2 * count, np.uint32).view(dtype).reshape(shape)
    if dtype in dtypes.COMPLEX:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        return rng.integers(max(int(info.min), -100), min(int(info.max), 100), count).astype(dtype).reshape(shape)
    return (rng.normal(size=shape) * 3).astype(dtype)
