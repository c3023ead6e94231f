"""`nx.kernel`: another way to compute a custom op on one target, tested against its meaning before it is used.

Targets are the executors of the CPU and the file formats of NPUs:

| target | the decorated function | used by |
|---|---|---|
| ``cpu`` | ``f(*operands, **settings)`` on NumPy arrays | eager execution, the reference executor |
| ``xla`` | ``f(b, out, *operands, **settings)`` writes StableHLO | `jit` on XLA |
| a format | ``f(b, *operands, out, **settings)`` appends graph nodes | `nx.compile` for its targets |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.backends import registry
from nxjax.errors import KernelError, ParameterError
from nxjax.extend.custom_operator import DEFINING, forget_results, raised
from nxjax.lower.npu import custom as npu
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Unsupported
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.rules.table import RULES
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.testing.comparison import first_difference, many, tolerance
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import EVAL, OPS, Array, use
from nxjax.trace.types import ArrayType
from nxjax.transforms.custom_op import CustomKernel, CustomOp
from nxjax.transforms.jit import jit

NDArray = np.ndarray[Any, Any]
EXECUTORS: Final = ("cpu", "xla")
TARGETS: Final = (*EXECUTORS, *npu.FORMATS)


def kernel(
    op: type[Any] | str, target: str = "cpu", *, supports: Callable[..., bool] | None = None
) -> Callable[..., Any]:
    """A decorator that gives a custom op a kernel for one target. Other targets compute the op as before.

    Args:
        op: made by `custom_op`.
        target: ``"cpu"``, ``"xla"``, or a file format: ``"tflite"``, ``"onnx"``, ``"openvino"``, ``"coreml"``.
        supports: a function that says when the kernel applies, of types and settings (executors) or of the values of
            the graph, ``out`` and settings (formats); by default always.

    Returns:
        The decorator; it returns the function.

    Raises:
        KernelError: the kernel differs from the op. It is not registered.
        ParameterError: not an op made by `nx.custom_op`, or another target.

    >>> import numpy as np
    >>> @nx.custom_op
    ... def third_power(x):
    ...     return x * x * x
    >>> @nx.kernel(third_power, target="cpu")
    ... def third_power_on_cpu(x):
    ...     return np.power(x, 3)
    >>> float(third_power(2.0))
    8.0
    """
    if not isinstance(op, CustomOp) or OPS.get(op.name) is not op:
        raise ParameterError("kernel: needs an op made by nx.custom_op", got=repr(op)[:60])
    if target not in TARGETS:
        raise ParameterError(f"kernel of {op.name}: target", got=repr(target), expected=", ".join(TARGETS))

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        with DEFINING, use(EVAL):
            if target in EXECUTORS:
                _give(op, target, CustomKernel(function, supports))
            else:
                found = npu.NpuKernel(function, supports)
                _examine_nodes(op, target, found)
                npu.register(op.name, target, found)
        forget_results()
        return function

    return register


# --- kernels of executors ---


def _give(op: CustomOp, target: str, kernel: CustomKernel) -> None:
    before = op.kernels.get(target)
    op.kernels[target] = kernel
    try:
        _examine(op, target, kernel)
    except BaseException:
        del op.kernels[target]
        if before is not None:
            op.kernels[target] = before
        raise


def _examine(op: CustomOp, target: str, kernel: CustomKernel) -> None:
    """The op as the executor runs it, with the kernel, against its meaning."""
    if target == "xla" and not registry.get("xla").available()[0]:
        return  # nothing here would use it
    taken = 0
    for s in op.samples:
        types = [ArrayType(a.shape, a.dtype) for a in s.args]
        try:
            if not kernel.applies_to(types, s.params):
                continue
        except Exception as error:
            raise _refused(op, target, error) from error
        with np.errstate(all="ignore"):
            expected = many(op.meaning(*s.args, **s.params))
            try:
                got = _run(op, target, kernel, s.args, s.params)
            except Exception as error:
                raise _refused(op, target, error) from error
        if got is None:
            continue
        taken += 1
        compare(op, target, got, expected, s.args)
    if not taken:
        raise _untested(op, target)


def _run(
    op: CustomOp, target: str, kernel: CustomKernel, args: Sequence[NDArray], settings: dict[str, Any]
) -> tuple[Any, ...] | None:
    """The kernel's results; None where it writes nothing."""
    if target == "cpu":
        return many(kernel.run(*args, **settings))
    wrote: list[bool] = []

    def noted(*xs: Any, **params: Any) -> Any:
        found = kernel.run(*xs, **params)
        wrote.append(found is not None)
        return found

    op.kernels["xla"] = CustomKernel(noted, kernel.supports)
    try:
        forget_results()
        found = many(jit(lambda *xs: op(*xs, **settings), device="xla")(*map(wrap, args)))
    finally:
        op.kernels["xla"] = kernel
    return found if any(wrote) else None


def compare(
    op: CustomOp, target: str, got: Sequence[Any], expected: Sequence[NDArray], args: Sequence[NDArray], off: float = 0
) -> None:
    """Refuse results that differ; the error names the first element. ``off`` is allowed besides the dtype's usual."""
    of = ", ".join(f"{a.dtype}{list(a.shape)}" for a in args)
    if len(got) != len(expected):
        raise _wrong(op, target, f"{len(got)} results of {of}", f"{len(expected)}")
    for y, want in zip(got, expected, strict=True):
        a = y.numpy() if isinstance(y, Array) else np.asarray(y)
        if a.shape != want.shape or (a.dtype != want.dtype and not np.can_cast(a.dtype, want.dtype, "same_kind")):
            raise _wrong(op, target, f"{a.dtype}{list(a.shape)} of {of}", f"{want.dtype}{list(want.shape)}")
        wide = np.complex128 if want.dtype in dtypes.COMPLEX else np.float64
        limit = max(tolerance(want.dtype), off)
        place = first_difference(a.astype(wide), want.astype(wide), limit if not off else 0, limit)
        if place:
            element, _, values = place.partition(": ")
            found, _, wanted = values.partition(", expected ")
            raise _wrong(op, target, f"{found.removeprefix('got ')} at {element} of {of}", wanted)


def _wrong(op: CustomOp, target: str, got: object, expected: object) -> KernelError:
    return KernelError(
        f"kernel of {op.name} for {target!r}: differs from the op's meaning and is not registered",
        got=got,
        expected=expected,
        fix="correct the kernel, or say with supports= what it is for",
    )


def _refused(op: CustomOp, target: str, error: Exception) -> KernelError:
    return raised(f"kernel of {op.name} for {target!r}: fails on the op's samples", error)


def _untested(op: CustomOp, target: str) -> KernelError:
    return KernelError(
        f"kernel of {op.name} for {target!r}: supports none of the op's samples, so it cannot be tested",
        got=", ".join(f"{a.dtype}{list(a.shape)}" for s in op.samples for a in s.args),
        fix="define the op with samples=[...] that the kernel takes",
    )


# --- kernels of file formats ---


def _examine_nodes(op: CustomOp, target: str, kernel: npu.NpuKernel) -> None:
    """The graph that a kernel makes, as graphs are defined, against the op's meaning, in integers and in float."""
    taken = 0
    for s in op.samples:
        if len(s.args) == 1 and op.quantized == "table":
            taken += _on_grids(op, target, kernel, s.args[0], s.params)
        found = _graph(kernel, s.args, [None] * len(s.args), dtypes.float32, s.params, op, target)
        if found is not None:
            taken += 1
            expected = many(op.meaning(*s.args, **s.params))
            compare(op, target, interpret(found, [a.astype(np.float32) for a in s.args]), expected, s.args)
    if not taken:
        raise _untested(op, target)


def _on_grids(op: CustomOp, target: str, kernel: npu.NpuKernel, x: NDArray, settings: dict[str, Any]) -> int:
    """Every int8 value of a grid that covers the sample; one step of the result's grid is allowed."""
    x_grid = asymmetric(float(np.min(x, initial=0)), float(np.max(x, initial=0)))
    stored = np.arange(-128, 128).astype(np.int8)
    real = x_grid.dequantize(stored)
    (want,) = many(op.meaning(real, **settings))
    known = want[np.isfinite(want)]
    out = asymmetric(float(np.min(known, initial=0)), float(np.max(known, initial=0)))
    graph = _graph(kernel, [stored], [x_grid], out, settings, op, target)
    if graph is None:
        return 0
    (got,) = interpret(graph, [stored])
    expected = out.quantize(np.nan_to_num(want, nan=0.0))
    compare(op, target, [got.astype(np.int32)], [expected.astype(np.int32)], [stored], off=1)
    return 1


def _graph(
    kernel: npu.NpuKernel,
    args: Sequence[NDArray],
    grids: Sequence[Grid | None],
    out: Any,
    settings: dict[str, Any],
    op: CustomOp,
    target: str,
) -> NpuGraph | None:
    """The kernel's nodes as a graph, or None where it does not apply."""
    tensors = [
        Tensor(f"x{i}", a.shape, g.dtype if g else np.float32 if a.dtype in dtypes.FLOAT else a.dtype, g)
        for i, (a, g) in enumerate(zip(args, grids, strict=True))
    ]
    b = GraphBuilder(RULES)
    try:
        found = kernel(b, [LogicalTensor(t.shape, t) for t in tensors], out, settings)
        if found is None:
            return None
        results = [b.tensor(b.full(v)) for v in many(found)]
        return NpuGraph(op.name, tensors, results, b.nodes).check()
    except Unsupported:
        return None
    except Exception as error:
        raise _refused(op, target, error) from error
