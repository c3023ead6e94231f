"""The op `call_exported`: a StableHLO module inside a program, as one equation.

Compiled by XLA, its functions become functions of the module around it; one that says what each of several devices
computes is read into `shard_map`, which has a meaning on any number of them. Everybody else (vmap, other devices,
quantize) gets what `interop` reads out of the module, in nxjax's own ops; where that cannot be read, such as LAPACK's
routines, a batch is done element by element. Its derivative is not here, `exported` gives the call a rule. It needs
jaxlib.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends import registry
from nxjax.config.forks import cached_property
from nxjax.errors import InvalidFileError, LoweringError
from nxjax.lower.stablehlo import types as mlir
from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.random import random_unwrap, random_wrap
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Equation, Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.call import jit_call
from nxjax.transforms.control.scan import per_element
from nxjax.transforms.vmap import batch_program


def physical(type: ArrayType) -> ArrayType:
    """The type that stands for ``type`` in a module of JAX's: keys are two words, float0 is a bool."""
    if type.dtype == dtypes.key:
        return ArrayType((*type.shape, 2), dtypes.uint32)
    return ArrayType(type.shape, dtypes.bool_) if type.dtype == dtypes.float0 else type.strong()


@final
class ExportedBody:
    """A module with what a call of it must know. Equal bodies are equal by content.

    Attributes:
        data: the portable artifact.
        kept: which of the arguments the module takes.
        in_dims: per argument, its shape as the file says it: sizes, or expressions of dimension variables.
        out_dtypes: per result.
        out_dims: as ``in_dims``.
        platform: value of the platform index, the module's first argument; None where it has none.
    """

    def __init__(
        self,
        data: bytes,
        kept: tuple[int, ...],
        in_types: Sequence[Any],
        out_types: Sequence[Any],
        platform: int | None,
        name: str = "function",
    ) -> None:
        self.name = name
        self.data = data
        self.kept = kept
        self.in_types = tuple(in_types)
        self.out_types = tuple(out_types)
        self.platform = platform
        digest = hashlib.sha256(repr((kept, self.in_types, self.out_types, platform)).encode() + data)
        self.key: Final = digest.hexdigest()
        self.__qualname__ = f"exported {self.key[:16]}"
        self._results: dict[tuple[ArrayType, ...], tuple[ArrayType, ...]] = {}
        self._compiled: dict[tuple[ArrayType, ...], Any] = {}
        self._programs: dict[tuple[ArrayType, ...], Program | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExportedBody) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def dynamic(self) -> bool:
        """Whether some dimension is known at a call only."""
        return not all(isinstance(t, ArrayType) for t in (*self.in_types, *self.out_types))

    @cached_property
    def spread(self) -> bool:
        """Whether the module says what each of several devices computes, which one device's module cannot hold."""
        from nxjax.backends.xla import foreign, guard

        guard.checked(self.data)
        return foreign.is_spread(self.data)

    def functions(self, prefix: str, types: Sequence[ArrayType]) -> Any:
        """The module's functions for arguments of ``types``."""
        from nxjax.backends.xla import foreign, guard

        guard.checked(self.data)
        found = foreign.functions(self.data, prefix, [physical(types[i]) for i in self.kept], self.platform)
        wanted = tuple(mlir.tensor(physical(t)) for t in self.results(types, found.out_types))
        takes = tuple(mlir.tensor(physical(types[i])) for i in self.kept)
        if found.in_types != takes or found.out_types != wanted:
            raise InvalidFileError(
                "exported function: its module has another signature than the file says",
                got=f"({', '.join(found.in_types)}) -> ({', '.join(found.out_types)})",
                expected=f"({', '.join(takes)}) -> ({', '.join(wanted)})",
            )
        return found

    def program(self, types: Sequence[ArrayType]) -> Program | None:
        """The module in nxjax's ops, for arguments of ``types``; None where it has what is known to XLA alone."""
        key = tuple(t.strong() for t in types)
        if key not in self._programs:
            try:
                self._programs[key] = self._imported(key)
            except LoweringError:
                self._programs[key] = None
        return self._programs[key]

    def _imported(self, types: tuple[ArrayType, ...]) -> Program:
        from nxjax.stablehlo.function import from_stablehlo

        if self.spread and not self.dynamic and self.platform is None:
            read = from_stablehlo(self.data, trusted=True)
        else:
            found = self.functions("body", types)
            read = from_stablehlo(f"module {{\n{found.text}\n}}", function=found.main, trusted=True)

        def flat(*xs: Array) -> list[Array]:
            given = [random_unwrap(xs[i]) if types[i].dtype == dtypes.key else xs[i] for i in self.kept]
            ys = run(
                read.program, [wrap(np.zeros(x.shape, np.bool_)) if x.dtype == dtypes.float0 else x for x in given]
            )
            return [_typed(y, t) for y, t in zip(ys, self.results(types), strict=True)]

        return stage(flat, types, self.name)

    def results(self, types: Sequence[ArrayType], tensors: Sequence[str] | None = None) -> tuple[ArrayType, ...]:
        """Result types of a call; ``tensors`` are the module's own, where they are known already."""
        if not self.dynamic:
            return self.out_types
        key = tuple(t.strong() for t in types)
        if key not in self._results:
            if tensors is None:
                from nxjax.backends.xla import foreign, guard

                guard.checked(self.data)
                kept = [physical(types[i]) for i in self.kept]
                tensors = foreign.functions(self.data, "shapes", kept, self.platform).out_types
            if len(tensors) != len(self.out_types):
                raise InvalidFileError(
                    "exported function: its module has another number of results than the file says",
                    got=len(tensors),
                    expected=len(self.out_types),
                )
            found: list[ArrayType] = []
            for text, said in zip(tensors, self.out_types, strict=True):
                shape = tuple(int(n) for n in re.findall(r"(\d+)x", text))
                found.append(ArrayType(shape[:-1] if said.dtype == dtypes.key else shape, said.dtype))
            self._results[key] = tuple(found)
        return self._results[key]


def _typed(y: Array, type: ArrayType) -> Array:
    """A result of the module as what stands for it outside."""
    if type.dtype == dtypes.key:
        return random_wrap(y)
    return wrap(np.zeros(type.shape, dtypes.float0)) if type.dtype == dtypes.float0 else y


@final
class CallExported(Op):
    """Call of an `ExportedBody`."""

    name = "call_exported"
    multi = True
    nested = True
    call_for_transforms = True

    def infer(self, *types: ArrayType, body: ExportedBody) -> tuple[ArrayType, ...]:
        return body.results(types)

    def eval(self, *xs: NDArray, body: ExportedBody) -> tuple[NDArray, ...]:
        # Only XLA reads the module, whatever executes the program around it.
        types = tuple(wrap(x).type for x in xs)
        compiled = body._compiled.get(types)
        if compiled is None:
            inputs = [Var(t) for t in types]
            outputs = tuple(Var(t) for t in body.results(types))
            program = Program(inputs, [Equation(self, tuple(inputs), outputs, {"body": body})], outputs)
            compiled = body._compiled[types] = registry.get("xla").compile(program)
        return tuple(y.numpy() for y in compiled([wrap(np.ascontiguousarray(x).reshape(x.shape)) for x in xs]))

    def batch(
        self, size: int, args: Sequence[Array], dims: Sequence[int | None], *, body: ExportedBody
    ) -> tuple[Any, Any]:
        types = [x.type if d is None else _without(x.type, d) for x, d in zip(args, dims, strict=True)]
        program = body.program(types)
        if program is not None:
            mask = tuple(d is not None for d in dims)
            mapped, out = batch_program(program, size, mask)
            moved = [x if d is None else move_batch(x, d, size) for x, d in zip(args, dims, strict=True)]
            hoisted, consts = mapped.hoist_consts()
            ys = jit_call(*consts, *moved, program=hoisted, name=f"vmap({body.name})")
            return ys, tuple(0 if b else None for b in out)
        return per_element(self, size, args, dims, {"body": body})

    def expand(self, *xs: Array, body: ExportedBody) -> tuple[Array, ...]:
        program = body.program([x.type for x in xs])
        if program is None:
            raise LoweringError(
                f"{body.name}: this exported function is known to XLA alone",
                got="custom calls, or operations that nxjax does not read",
                fix="export it for several platforms, which leaves LAPACK's routines out",
            )
        return tuple(run(program, xs))

    def called(self, *args: Any, body: ExportedBody) -> tuple[Program, Sequence[Any]] | None:
        # What is known to XLA alone, nobody looks into.
        program = None if body.dynamic else body.program(body.in_types)
        return None if program is None else (program, args)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array | None], *, body: ExportedBody) -> tuple[Any, Any]:
        raise LoweringError("call_exported: has no derivative of its own", fix="call it by exported.call(...)")

    def stablehlo(self, b: Any, out: tuple[ArrayType, ...], *xs: Any, body: ExportedBody) -> Any:
        if body.spread:
            return b.inline(self.expand, xs, {"body": body})
        types = tuple(x.type for x in xs)

        def make(prefix: str) -> tuple[str, Any]:
            found = body.functions(prefix, types)
            return found.text, found

        found = b.module.adopt((body.key, types), "exported", make)
        given: list[Any] = []
        for i in body.kept:
            inner = physical(types[i])
            given.append(b.op("stablehlo.bitcast_convert", (xs[i],), inner) if types[i].dtype == dtypes.key else xs[i])
        results = b.call_symbol(found.main, given, [physical(t) if t.dtype == dtypes.key else t for t in out])
        return tuple(
            b.op("stablehlo.bitcast_convert", (r,), t) if t.dtype == dtypes.key else r
            for r, t in zip(results, out, strict=True)
        )


def _without(type: ArrayType, dim: int) -> ArrayType:
    return type.with_shape(type.shape[:dim] + type.shape[dim + 1 :])


call_exported = CallExported()
