"""Kernels that programs give for their own ops, per file format: kept here, and laid over the rule table.

A kernel is a rule written by a user: ``run(b, *operands, out=..., **settings)`` appends nodes through the builder ``b``
and gives the value of the result. ``out`` is what the result is made of: a `Grid` in a quantized program, a dtype in a
float one. Where a kernel does not take the operands it gives None, and the op is lowered as it would be without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.errors import LoweringError, NxError
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.trace.types import ArrayType

FORMATS: Final = ("tflite", "onnx", "openvino", "coreml")


@final
@dataclass(frozen=True)
class NpuKernel:
    """How one op is written in one format; ``supports(*operands, out, **settings)`` says when."""

    run: Callable[..., Any]
    supports: Callable[..., bool] | None = None

    def __call__(self, b: GraphBuilder, xs: Sequence[LogicalTensor], out: Any, settings: dict[str, Any]) -> Any:
        """The value of the result, or None where the kernel does not apply."""
        if self.supports is not None and not self.supports(*xs, out=out, **settings):
            return None
        return self.run(b, *xs, out=out, **settings)


_kernels: dict[tuple[str, str], NpuKernel] = {}


def register(op: str, format: str, kernel: NpuKernel) -> None:
    """Take ``kernel`` for the op of that name; one that was there before is replaced."""
    _kernels[op, format] = kernel


def forget(op: str) -> None:
    """Drop the kernels of an op, which is no more."""
    for key in [k for k in _kernels if k[0] == op]:
        del _kernels[key]


def rules_for(format: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    """``rules`` with the kernels of ``format`` before them: on the op itself, and on ``qunary`` of its function.

    >>> rules_for("tflite", {}) if not _kernels else {}
    {}
    """
    own = {op: k for (op, kind), k in _kernels.items() if kind == format}
    if not own:
        return rules
    laid = {**rules, **{op: _float_rule(f"{op} for {format!r}", k, rules.get(op)) for op, k in own.items()}}
    if "qunary" in rules:
        laid["qunary"] = _quantized_rule(own, rules["qunary"], format)
    return laid


def _written(
    what: str, kernel: NpuKernel, b: GraphBuilder, xs: Sequence[LogicalTensor], out: Any, settings: dict[str, Any]
) -> Any:
    """What the kernel gives; an error of its own says whose it is."""
    try:
        return kernel(b, xs, out, settings)
    except (Unsupported, NxError):
        raise
    except Exception as error:
        raise LoweringError(
            f"kernel of {what}: fails on what it is asked to write here",
            got=f"{type(error).__name__}: {error}",
            expected=f"nodes for {', '.join(f'{x.dtype}{list(x.shape)}' for x in xs)} with a result of {out}",
            fix="give None for operands that the kernel does not take, or say so with supports=",
        ) from error


def _float_rule(what: str, kernel: NpuKernel, otherwise: Rule | None) -> Rule:
    def rule(b: GraphBuilder, out: Any, *xs: LogicalTensor, **settings: Any) -> Any:
        kind = tuple(t.dtype for t in out) if isinstance(out, tuple) else out.dtype  # pyright: ignore[reportUnknownVariableType]
        # In a quantized program that leaves this op in float its operands may come from ops on grids.
        found = _written(what, kernel, b, [b.real(x) for x in xs], kind, settings)
        if found is None and otherwise is not None:
            return otherwise(b, out, *xs, **settings)
        return found

    return rule


def _quantized_rule(own: dict[str, NpuKernel], otherwise: Rule, format: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, *, function: str, **params: Any) -> Any:
        kernel = own.get(function)
        if kernel is not None:
            on_grid = b.on(x, params["x_grid"])
            settings = dict(params.get("parameters", ()))
            found = _written(f"{function} for {format!r}", kernel, b, [on_grid], params["y_grid"], settings)
            if found is not None:
                return found
        return otherwise(b, out, x, function=function, **params)

    return rule
