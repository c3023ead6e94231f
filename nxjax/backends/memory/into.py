"""Functions whose results are written into unified buffers: by the CPU's compiled code at once, by others copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.memory.unified import UnifiedBuffer
from nxjax.errors import ExecutionError, ParameterError, ShapeError
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.types import ArrayType
from nxjax.transforms.jit import jit

# Programs that are kept for other types of arguments.
_KEPT: Final = 64


@final
class WriteInto:
    """See `write_into`.

    Attributes:
        out: the buffers.
    """

    def __init__(self, fun: Callable[..., Any], out: PyTree) -> None:
        self.out = out
        self._buffers, self._tree = tree.flatten(out, is_leaf=lambda x: isinstance(x, UnifiedBuffer))
        for b in self._buffers:
            if not isinstance(b, UnifiedBuffer):
                raise ParameterError("write_into: out", got=type(b).__name__, expected="unified buffers")
        if len({id(b) for b in self._buffers}) < len(self._buffers):
            raise ParameterError("write_into: a buffer is twice in out", got=f"{len(self._buffers)} buffers")
        self._jitted: Any = fun if hasattr(fun, "lower") else jit(fun)
        self._made: dict[Any, tuple[Any, list[DeviceArray]]] = {}

    def __call__(self, *args: Any) -> Any:
        """Compute; gives the buffers.

        Raises:
            ShapeError: results of other shapes or dtypes than the buffers.
            ImmutableArrayError: arrays of a buffer exist.
            ExecutionError: an argument lies in a buffer that is written to.
        """
        leaves, treedef = tree.flatten(args)
        values: list[Any] = [as_value(x, "write_into") for x in leaves]
        key = (treedef, tuple([x.type for x in values]))
        known = self._made.get(key)
        if known is None:
            known = self._compiled(args)
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = known
        executable, leading = known
        given = [*leading, *values]
        for b in self._buffers:
            b._check_free()
        if isinstance(executable, CpuExecutable) and all(x.place is None for x in given):
            self._check_apart(given)
            blocks: list[PoolBlock | None] = [b._open() for b in self._buffers]
            results = executable(given, blocks)
        else:
            results = executable(given)
        for b, y in zip(self._buffers, results, strict=True):
            b.write(y)
        return self.out

    def _compiled(self, args: tuple[Any, ...]) -> tuple[Any, list[DeviceArray]]:
        made = self._jitted.lower(*args).compile()
        wanted = [b.type for b in self._buffers]
        types: list[ArrayType] = [ArrayType(t.shape, t.dtype) for t in tree.leaves(made.out_info)]
        if made.out_tree != self._tree or types != wanted:
            raise ShapeError("write_into: the function's results do not fit the buffers", got=types, expected=wanted)
        executable = made.executable
        return getattr(executable, "compiled", executable), list(made._leading)

    def _check_apart(self, given: list[Any]) -> None:
        """Nothing that is read lies where results are written."""
        ranges = [(b.address, b.address + b.nbytes) for b in self._buffers]
        for i, x in enumerate(given):
            start = int(x.numpy().__array_interface__["data"][0])
            stop = start + x.type.size * x.type.dtype.itemsize
            if any(start < high and low < stop for low, high in ranges):
                raise ExecutionError(
                    "write_into: an argument is in a buffer for results",
                    got=f"flat argument {i}",
                    fix="use two buffers in turn: DoubleBuffer(...)",
                )


def write_into(fun: Callable[..., Any], out: PyTree) -> WriteInto:
    """``fun``, compiled to write its results into ``out``. Calls allocate no memory.

    Args:
        fun: a function of arrays, jitted or not. Nothing is donated.
        out: a tree of unified buffers with the structure, shapes and dtypes of the results.

    Raises:
        ParameterError: ``out`` has leaves that are not buffers, or one buffer twice.

    >>> out = nx.unified_buffer(3)
    >>> step = write_into(lambda x: x * 2, out)
    >>> step(nx.ones(3)).numpy().tolist()
    [2.0, 2.0, 2.0]
    """
    return WriteInto(fun, out)
