"""Walks a StableHLO module and does what it says with nxjax's ops, one rule per operation.

A rule gets the `Scope` it stands in, the operation and its operands, and gives the result or a tuple of them. Rules are
in the files beside this one, which `rules` imports; this file names no operation but those of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError, NxError, ProgramError
from nxjax.lower.stablehlo.module import (
    Block,
    FunctionDef,
    Opaque,
    Operation,
    Splat,
    StablehloModule,
    TupleOf,
    Value,
)
from nxjax.ops.base import constant
from nxjax.stablehlo.recover import recovered
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.core import EVAL, Array, use
from nxjax.trace.mesh import AbstractMesh
from nxjax.trace.program import Program, run
from nxjax.trace.scope import current_source, replaying
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.call import jit_call

Rule = Callable[..., Any]
RULES: Final[dict[str, Rule]] = {}
# How deep functions and regions may be nested: far more than any compiler writes, far less than Python's stack.
DEPTH: Final = 120
# Functions of at most so many equations are written in place, such as JAX's `where` and `clip`.
SMALL: Final = 8


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the rule of the operations of these names."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


# The target of calls of what is given beside the module, as `Importer.callbacks`.
CALLBACK: Final = "nxjax.callback"


class _Token:
    """The one token."""


TOKEN: Final = _Token()


@final
class Importer:
    """One module being imported: its functions as programs, made when they are first called.

    Attributes:
        seed: of what `stablehlo.rng` draws; None refuses it.
        callbacks: what custom calls of `CALLBACK` do to their operands, by the index that they name.
        around: the mesh of the manual computation that is being walked.
    """

    def __init__(
        self, module: StablehloModule, seed: int | None = None, callbacks: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self.module = module
        self.callbacks = callbacks
        self.seed = seed
        self.draws = 0
        self.depth = 0
        self.around: AbstractMesh | None = None
        self._programs: dict[tuple[str, Any], Program] = {}
        self._open: set[str] = set()

    def function(self, name: str) -> FunctionDef:
        found = self.module.functions.get(name)
        if found is None:
            raise ProgramError(f"stablehlo: there is no function {name!r}", got=", ".join(self.module.functions))
        return found

    def program(self, name: str) -> Program:
        """The program of a function of arrays."""
        # Collectives in it mean the axes that are in scope where it is called.
        key = (name, axes_in_scope() if self.around is not None else None)
        found = self._programs.get(key)
        if found is None:
            function = self.function(name)
            types = [v.type for v in function.body.arguments]
            self.enter(name)
            with use(EVAL):
                flat: Any = lambda *xs: self.run(function, xs)
                plain = stage(flat, types, name, function.names)  # pyright: ignore[reportArgumentType]
            found = self._programs[key] = recovered(plain, name)
            self.leave(name)
        return found

    def mesh(self, name: str) -> AbstractMesh:
        """A mesh of the module."""
        found = self.module.meshes.get(name)
        if not found:
            raise ProgramError(f"stablehlo: there is no mesh {name!r}", got=", ".join(self.module.meshes))
        names, sizes = zip(*found, strict=True)
        return AbstractMesh(sizes, names)

    @contextmanager
    def spread(self, mesh: AbstractMesh) -> Iterator[None]:
        """``with importer.spread(mesh):`` what is walked is one device's part."""
        before, self.around = self.around, mesh
        try:
            yield
        finally:
            self.around = before

    def enter(self, name: str) -> None:
        if name in self._open:
            raise ProgramError(f"stablehlo: function {name!r} calls itself", expected="functions without recursion")
        self._open.add(name)

    def leave(self, name: str) -> None:
        self._open.discard(name)

    def run(self, function: FunctionDef, xs: Sequence[Any]) -> list[Any]:
        return Scope(self, function.body, xs, None).results()

    def call(self, name: str, xs: Sequence[Any]) -> Sequence[Any]:
        """A call of a function: one equation, unless tuples or tokens go through it."""
        function = self.function(name)
        values = [*function.body.arguments, *function.body.results]
        if any(not isinstance(v.type, ArrayType) for v in values):
            self.enter(name)
            results = self.run(function, xs)
            self.leave(name)
            return results
        program, consts = self.program(name).hoist_consts()
        if len(program.equations) <= SMALL and not any(e.op.nested or e.op.effect for e in program.equations):
            return run(program, [*consts, *xs])
        return jit_call(*consts, *xs, program=program, name=name)


@final
class Scope:
    """A block being walked: its values so far, and the scope around it."""

    def __init__(self, importer: Importer, block: Block, xs: Sequence[Any], outer: Scope | None) -> None:
        if len(xs) != len(block.arguments):
            raise ProgramError("stablehlo: wrong number of arguments", got=len(xs), expected=len(block.arguments))
        self.importer = importer
        self.block = block
        self.outer = outer
        self.values: dict[Value, Any] = dict(zip(block.arguments, xs, strict=True))
        self.makers: dict[Value, Operation] = {}
        # Results of operations that are known already and not computed.
        self.given: dict[Operation, Array] = {}

    def results(self) -> list[Any]:
        """Walk the block."""
        self.importer.depth += 1
        if self.importer.depth > DEPTH:
            raise ProgramError("stablehlo: functions and regions are nested too deeply", expected=f"at most {DEPTH}")
        try:
            source = current_source()
            for op in self.block.operations:
                with replaying(op.scope, source):
                    self._apply(op)
            return [self[v] for v in self.block.results]
        finally:
            self.importer.depth -= 1

    def _apply(self, op: Operation) -> None:
        if op in self.given:
            self.values[op.results[0]] = self.given[op]
            return
        found = RULES.get(op.name)
        if found is None:
            raise refused(op, "it is not an operation that nxjax knows")
        try:
            out = found(self, op, *[self[v] for v in op.operands])
        except NxError:
            raise
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError, AssertionError) as error:
            raise ProgramError(
                f"stablehlo: {op.name} is not well formed",
                got=f"{at(op)}: {type(error).__name__}: {error}",
            ) from error
        ys = out if isinstance(out, (tuple, list)) and not self._one_tuple(op) else [out]
        if len(ys) != len(op.results):
            raise ProgramError(f"stablehlo: {op.name} gives {len(ys)} results", got=at(op), expected=len(op.results))
        for v, y in zip(op.results, ys, strict=True):
            if isinstance(v.type, ArrayType) and not (isinstance(y, Array) and v.type.typematch(y.type)):
                raise ProgramError(
                    f"stablehlo: {op.name} gives another type than it says",
                    got=f"{y.type if isinstance(y, Array) else type(y).__name__} {at(op)}",
                    expected=v.type,
                )
            self.values[v] = y
            self.makers[v] = op

    @staticmethod
    def _one_tuple(op: Operation) -> bool:
        return len(op.results) == 1 and isinstance(op.results[0].type, TupleOf)

    def __getitem__(self, v: Value) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if v in scope.values:
                return scope.values[v]
            scope = scope.outer
        raise ProgramError("stablehlo: a value is used before it is made", got=v.type)

    def maker(self, v: Value) -> Operation | None:
        """The operation that made a value, None for arguments."""
        scope: Scope | None = self
        while scope is not None:
            if v in scope.makers:
                return scope.makers[v]
            scope = scope.outer
        return None

    def known(self, v: Value) -> np.ndarray[Any, Any] | None:
        """The elements of a value that does not depend on arguments and is a constant as it stands."""
        value = self[v]
        if isinstance(value, DeviceArray):
            return value.numpy()
        made = self.maker(v)
        if made is not None and made.name.endswith(".constant"):
            data = made.attributes["value"]
            return np.broadcast_to(data.value, data.shape) if isinstance(data, Splat) else data
        if made is not None and made.name in ("stablehlo.reshape", "stablehlo.convert", "stablehlo.broadcast_in_dim"):
            inner = self.known(made.operands[0])
            t = made.results[0].type
            if inner is not None and isinstance(t, ArrayType) and (inner.size in (1, t.size)):
                if made.name == "stablehlo.reshape":
                    return inner.reshape(t.shape)
                if made.name == "stablehlo.convert":
                    return inner.astype(t.dtype)
                if inner.size == 1:
                    return np.broadcast_to(inner.reshape(()), t.shape)
        return None

    def function(self, block: Block) -> Callable[..., list[Any]]:
        """A region as a Python function of values; what it takes from outside stays captured."""
        return lambda *xs: Scope(self.importer, block, xs, self).results()

    def staged(self, block: Block, name: str) -> Program:
        """A region as a program. Values from outside are its consts."""
        types: Any = [v.type for v in block.arguments]
        return recovered(stage(self.function(block), types, name))


def literal(data: np.ndarray[Any, Any] | Splat) -> Array:
    """A constant of the module as a value."""
    if isinstance(data, Splat):
        return constant(data.value, data.value.dtype, data.shape)
    data.flags.writeable = False
    return wrap(data)


def at(op: Operation) -> str:
    """The operation for messages: its types and where it came from."""
    types = ", ".join(_type_text(v.type) for v in op.operands)
    where = f" at {op.location}" if op.location else ""
    return f"{op.name}({types}){where}"


def _type_text(t: Any) -> str:
    return t.text if isinstance(t, Opaque) else repr(t)


def refused(op: Operation, why: str, fix: str | None = None) -> LoweringError:
    """The error for an operation that cannot be imported."""
    return LoweringError(f"stablehlo: {op.name} cannot be imported: {why}", got=at(op), fix=fix)


def array_type(v: Value) -> ArrayType:
    """The type of a value that has to be an array."""
    if not isinstance(v.type, ArrayType):
        raise ProgramError("stablehlo: not an array", got=_type_text(v.type))
    return v.type


def result(op: Operation, i: int = 0) -> ArrayType:
    return array_type(op.results[i])
