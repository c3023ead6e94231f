"""Staging: run a Python function on tracers and keep what it did as a Program. Names no op."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

from nxjax.config import config
from nxjax.trace import dtypes, leaks
from nxjax.trace.array import DeviceArray, as_value, copied
from nxjax.trace.core import (
    AROUND,
    EVAL,
    Array,
    Arrays,
    Op,
    Trace,
    Tracer,
    current_trace,
    escaped_tracer_error,
    run_in_trace,
    use,
)
from nxjax.trace.depth import raise_recursion_limit
from nxjax.trace.program import Atom, Equation, Literal, Program, Var, axis_names
from nxjax.trace.scope import current_scope, current_source
from nxjax.trace.types import ArrayType


@final
class StageTracer(Tracer):
    """Stands for a variable of a program in the making."""

    __slots__ = ("name", "variable")

    def __init__(self, trace: StageTrace, var: Var, name: str = "") -> None:
        self.owner = trace
        self.variable = var
        self.type = var.type
        self.name = name

    def origin(self) -> str:
        trace = self.owner
        assert isinstance(trace, StageTrace)
        if self.name:
            return f"argument {self.name} of {trace.name or 'the traced function'}"
        for equation in trace.equations:
            if self.variable in equation.outputs:
                at = f" at {equation.source}" if equation.source else ""
                return f"made by {equation.op.name}{at} in {trace.name or 'the traced function'}"
        return f"of {trace.name or 'the traced function'}"


# Whether ops of concrete values are computed while a program is written, and not written into it.
_at_once: ContextVar[bool] = ContextVar("nxjax_at_once", default=False)
AROUND.append(_at_once)


@contextmanager
def evaluating_eagerly() -> Generator[None]:
    """Context manager: ops on concrete values run at once, even while a program is traced."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


class StageTrace(Trace):
    """Writes every op into a program. Values of other traces are captured as consts."""

    __slots__ = ("_captured", "consts", "equations", "inputs", "level", "name", "values")

    def __init__(self, parent: Trace, name: str = "") -> None:
        self.parent = parent
        self.name = name
        self.inputs: list[Var] = []
        self.equations: list[Equation] = []
        self.consts: list[Var] = []
        self.values: list[Array] = []
        self._captured: dict[int, Var] = {}
        above: Trace | None = parent
        while above is not None and not isinstance(above, StageTrace):
            above = above.parent
        self.level: int = 1 if above is None else above.level + 1
        raise_recursion_limit(self.level, name or "tracing")

    def input(self, type: ArrayType, name: str = "") -> StageTracer:
        """A new argument."""
        var = Var(type)
        self.inputs.append(var)
        return StageTracer(self, var, name)

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        if _at_once.get() and all(isinstance(x, DeviceArray) for x in args) and not axis_names(params):
            with use(EVAL):
                return EVAL.process(op, args, params)
        atoms = tuple([self.atom(x, op.name) for x in args])
        out = op.infer(*[a.type for a in atoms], **params)
        types: Sequence[ArrayType] = out if op.multi else (out,)
        for a in atoms:
            if a.type.vma and not op.infers_vma and not op.nested:
                vma = frozenset[Any]().union(*(b.type.vma for b in atoms))
                types = [t.with_vma(vma) for t in types]
                break
        outputs = tuple([Var(t) for t in types])
        self.equations.append(Equation(op, atoms, outputs, params, current_source(), current_scope()))
        if op.multi:
            return tuple(StageTracer(self, v) for v in outputs)
        return StageTracer(self, outputs[0])

    def atom(self, x: Array, where: str = "result") -> Atom:
        """The variable, literal or captured const for ``x``."""
        if isinstance(x, StageTracer) and x.owner is self:
            return x.variable
        if isinstance(x, DeviceArray) and not x.type.shape and x.type.dtype in dtypes.NUMERIC:
            return Literal(copied(x))
        var = self._captured.get(id(x))
        if var is None:
            if isinstance(x, Tracer):
                above: Trace | None = self
                while above is not x.owner:
                    if above is None:
                        raise escaped_tracer_error(x, where)
                    above = above.parent
            var = self._captured[id(x)] = Var(x.type)
            self.consts.append(var)
            self.values.append(x)  # also keeps id(x) from being reused
        return var

    def finish(self, outputs: Arrays) -> Program:
        """The program whose results are ``outputs``."""
        atoms = [self.atom(y) for y in outputs]
        program = Program(self.inputs, self.equations, atoms, self.consts, self.values, self.name)
        return program.check() if config.check else program


def stage(
    function: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str = "", arg_names: Sequence[str] = ()
) -> Program:
    """The program of ``function``, which takes and gives flat sequences of values.

    Values of enclosing traces that it closes over become consts of the program (see `Program.hoist_consts`).
    """
    trace = StageTrace(current_trace(), name)
    names = arg_names or [""] * len(types)
    tracers = [trace.input(t, n) for t, n in zip(types, names, strict=True)]
    outputs = run_in_trace(
        trace, lambda: [as_value(y, f"result of {name or 'the traced function'}") for y in function(*tracers)]
    )
    program = trace.finish(outputs)
    if config.check_tracer_leaks:
        del tracers, outputs
        where = name or "the traced function"  # before the call: an `or` among its arguments is a reference more
        leaks.check(trace, where)
    return program
