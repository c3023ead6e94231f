"""What a device can run of a program, and the program compiled for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from nxjax.backends.iree import compiler
from nxjax.backends.iree.buffers import IreeBuffer, IreeExecutable, held
from nxjax.backends.iree.choose import Choice
from nxjax.backends.iree.rows import ROWS
from nxjax.backends.iree.session import IreeSession
from nxjax.errors import LoweringError, UnsupportedOpsError
from nxjax.lower.stablehlo import builder
from nxjax.lower.stablehlo.support import verdict
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Equation, Program
from nxjax.trace.types import ArrayType, Shape

# Operations of StableHLO that IREE's compiler has no code for (3.13).
_NO_CODE: Final = frozenset(("cholesky", "fft", "triangular_solve"))
# Turns after which llvmpipe leaves any loop of a shader, whatever it has still to do.
_TURNS: Final = 65535
_ELSEWHERE: Final = 'leave them to the CPU: nx.jit(f, device=nx.Hybrid("vulkan", "cpu"))'


def refusal(e: Equation, choice: Choice) -> str:
    """Why an equation cannot run on the device; empty where it can."""
    found = verdict(e)
    if not found.ok:
        return found.reason
    if e.op.name in _NO_CODE:
        return f"{e.op.name}: IREE's compiler has no code for it"
    if choice.device.is_software and (turns := _turns(e)) > _TURNS:
        return f"{e.op.name}: takes a loop of {turns} turns, and the software rasteriser leaves it after {_TURNS}"
    for t in dict.fromkeys((*(a.type.dtype for a in e.inputs), *(v.type.dtype for v in e.outputs))):
        reason = _dtype(t, choice)
        if reason:
            return reason
    for program in e.programs():
        for inner in program.equations:
            reason = refusal(inner, choice)
            if reason:
                return reason
    return ""


def _dtype(t: dtypes.DType, choice: Choice) -> str:
    reason = "" if t == dtypes.float0 else choice.refusal(t)
    return f"{dtypes.short_name(t)} does not work on this device ({reason})" if reason else ""


def _turns(e: Equation) -> int:
    """How often the longest loop of an operation's shader goes round: once an element of a sum, or a pair to sort."""
    x = e.inputs[0].type if e.inputs else None
    if x is None or not x.size:
        return 0
    own = _LOOPS.get(e.op.name)
    if own is not None:
        return own(x.shape, e.params)
    return x.size // max(e.outputs[0].type.size, 1) if e.op.name.startswith(("reduce_", "arg")) else 0


_LOOPS: Final[dict[str, Callable[[Shape, dict[str, Any]], int]]] = {
    "sort": lambda shape, params: shape[params["dimension"]] ** 2,
    "top_k": lambda shape, params: shape[params["axis"]] ** 2,
    "dot_general": lambda shape, params: math.prod(shape[d] for d in params["dimension_numbers"][0][0]),
}


def _check(program: Program, choice: Choice) -> None:
    """Raise where the device cannot run an equation: all of them in one message."""
    rows: list[tuple[Any, str]] = [(e, reason) for e in program.equations if (reason := refusal(e, choice))]
    if rows:
        listed = [f"{reason} ({e.source or e.op.name})" for e, reason in rows]
        error = UnsupportedOpsError(
            f"vulkan: {len(rows)} operations of the program cannot run on {choice.device.name}",
            got="\n            ".join(listed[:20]),
            fix=_ELSEWHERE,
            source=rows[0][0].source,
        )
        error.rows = tuple(rows)
        raise error
    for t in (*program.in_types, *program.out_types):
        check_dtype(t, choice)


def check_dtype(t: ArrayType, choice: Choice) -> None:
    """Raise where the device has no arrays of a type."""
    reason = _dtype(t.dtype, choice)
    if reason:
        raise LoweringError(f"vulkan: {reason}", got=t, fix=_ELSEWHERE)


def text_of(program: Program, located: bool = False) -> str:
    """StableHLO as the compiler takes it."""
    return builder.lower(program, rows=ROWS, devices=(None,), located=located)[0]


def compiled(program: Program, choice: Choice, session: IreeSession, name: str) -> IreeExecutable:
    """The program on the device of ``session``.

    Raises:
        UnsupportedOpsError, LoweringError: the device, or IREE's compiler, has no form of it.
    """
    _check(program, choice)
    text = text_of(program)
    try:
        module = compiler.compile_text(choice.spec.applied(text), choice.spec.flags)
    except compiler.CompilationFailed as error:
        raise compiler.refused(name, error, text_of(program, located=True)) from None
    return IreeExecutable(module, text, choice.spec.name, program.out_types, session, name)


def put(x: DeviceArray, choice: Choice, session: IreeSession, name: str) -> IreeBuffer:
    """An array in the device's memory."""
    check_dtype(x.type, choice)
    return held(x, session, name)
