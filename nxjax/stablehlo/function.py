"""`from_stablehlo`: a StableHLO program as a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lower.stablehlo.module import Opaque, StablehloModule, TupleOf
from nxjax.ops.convert import convert_element_type
from nxjax.ops.random import random_unwrap
from nxjax.stablehlo import rules
from nxjax.stablehlo.walk import Importer
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, readonly, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.trace.program import Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.call import jit_call

assert rules.__all__  # the rules are registered by being imported


@final
class StablehloFunction:
    """A function of a StableHLO module, as a function of arrays.

    Called, it is one equation that holds the program: computed at once it is compiled as a whole, traced it becomes
    part of what traces it.

    Attributes:
        program: what it computes, in nxjax's ops.
        arg_names: the arguments' names, empty where the module has none.

    >>> f = from_stablehlo("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }", trusted=True)
    >>> isinstance(f, StablehloFunction), float(f(2.0)), f.program.in_types
    (True, 2.0, (f32[],))
    """

    def __init__(
        self, module: StablehloModule, name: str, seed: int | None, callbacks: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self._importer = Importer(module, seed, callbacks)
        function = self._importer.function(name)
        for v in (*function.body.arguments, *function.body.results):
            if isinstance(v.type, (TupleOf, Opaque)):
                raise DtypeError(
                    f"from_stablehlo: {name} takes or gives what is no array", got=v.type, expected="arrays"
                )
        self.__name__ = self.__qualname__ = module.name if name == "main" and module.name else name
        self.arg_names: tuple[str, ...] = function.names
        self.program: Program = self._importer.program(name)

    @property
    def in_types(self) -> tuple[ArrayType, ...]:
        """Shapes and dtypes of the arguments."""
        return self.program.in_types

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        """Shapes and dtypes of the results."""
        return self.program.out_types

    @api_boundary
    def __call__(self, *args: Any) -> Any:
        """The result, or a tuple of them where there are several or none."""
        ys = self.flat(args)
        return ys[0] if len(ys) == 1 else ys

    def flat(self, args: Sequence[Any]) -> tuple[Array, ...]:
        """All results as a tuple."""
        if len(args) != len(self.in_types):
            raise ParameterError(
                f"{self.__name__}: wrong number of arguments", got=len(args), expected=len(self.in_types)
            )
        values = [self._value(i, x) for i, x in enumerate(args)]
        program, consts = self.program.hoist_consts()
        return tuple(jit_call(*consts, *values, program=program, name=self.__name__))

    def _value(self, i: int, x: Any) -> Array:
        """Argument ``i`` as a value of exactly the type that the module says."""
        wanted = self.in_types[i]
        name = self.arg_names[i] or f"argument {i}"
        if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic) and not wanted.shape:
            if isinstance(x, complex) and wanted.dtype not in dtypes.COMPLEX:
                raise DtypeError(f"{self.__name__}: {name} is not complex", got=x, expected=wanted)
            return wrap(np.asarray(x).astype(wanted.dtype))
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype == wanted.dtype:
            value: Array = wrap(readonly(np.asarray(x)))
        else:
            value = as_value(x, f"{self.__name__}: {name}")
        if value.dtype == dtypes.key and wanted.dtype == dtypes.uint32 and value.shape == wanted.shape[:-1]:
            value = random_unwrap(value)
        if value.shape != wanted.shape:
            raise ShapeError(f"{self.__name__}: {name} has another shape", got=value.type, expected=wanted)
        if value.dtype != wanted.dtype:
            if not value.type.weak:
                raise DtypeError(
                    f"{self.__name__}: {name} has another dtype",
                    got=value.type,
                    expected=wanted,
                    fix=f"cast with .astype({wanted.dtype.name!r})",
                )
            value = convert_element_type(value, dtype=wanted.dtype)
        return value

    def __repr__(self) -> str:
        names = (f"{n or f'arg{i}'}: {t}" for i, (n, t) in enumerate(zip(self.arg_names, self.in_types, strict=True)))
        return f"{self.__name__}({', '.join(names)}) -> {', '.join(map(repr, self.out_types)) or '()'}"


@api_boundary
def from_stablehlo(
    data: bytes | str, *, function: str = "main", seed: int | None = None, trusted: bool = False
) -> StablehloFunction:
    """A function of a StableHLO module as a function of nxjax.

    It traces into ordinary nxjax ops: `jit`, `grad`, `vmap`, `quantize` and `compile` work on it. Dtypes are those of
    the module, exactly: 64-bit ones stay 64-bit, and nothing is promoted. Loops of a known number of steps become
    `scan`, so that they have a gradient; manual computations on several devices become `shard_map`, and other sharding
    annotations are dropped.

    Args:
        data: MLIR text, MLIR bytecode, or a portable artifact (what ``jax.export`` serializes, in
            ``Exported.mlir_module_serialized``); StableHLO up to version 1.17 with CHLO, as jaxlib reads it.
        function: which function of the module.
        seed: of what ``stablehlo.rng`` draws, the same numbers in every call; without it modules that use it are
            refused.
        trusted: the module is known to be sound. Others are read by a process of their own first, since MLIR's reader
            ends its process on damaged bytes; that takes half a second.

    Returns:
        a function of as many arrays as the module's takes, which gives one array, or a tuple of several.

    Raises:
        MissingExtraError: jaxlib, which reads modules, is not installed.
        InvalidFileError: not a module.
        LoweringError: the module has operations that no function of arrays on one device can do: collectives, feeds,
            callbacks. The message names the operation and where it came from.
        DtypeError, ShapeError: it has types that arrays here cannot have, dynamic shapes among them.
        ProgramError: an operation is not well formed.

    >>> f = from_stablehlo('''
    ... func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    ...   %0 = stablehlo.add %x, %x : tensor<3xf32>
    ...   return %0 : tensor<3xf32>
    ... }''', trusted=True)
    >>> f(nx.array([1.0, 2.0, 3.0])).tolist()
    [2.0, 4.0, 6.0]
    """
    given: Any = data
    if not isinstance(given, (bytes, str)):
        try:
            given = bytes(memoryview(given))
        except TypeError:
            raise ParameterError(
                "from_stablehlo: not a module", got=type(given).__name__, expected="text or bytes", fix="read the file"
            ) from None
    from nxjax.backends.xla.read import read

    return StablehloFunction(read(given, trusted), function, seed)
