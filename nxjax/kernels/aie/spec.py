"""The contract of a kernel on an AI Engine core: its arguments, its meaning in NumPy, its C++ source and its cycles.

A kernel is a C function that a core calls on buffers in its memory. Its name holds every parameter, so that a design
that was read back from text finds the same kernel (`named`). Knows no design.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import ml_dtypes
import numpy as np

from nxjax.errors import ProgramError
from nxjax.kernels.aie.chip import AieArray

NDArray = np.ndarray[Any, Any]

# MLIR element type -> NumPy dtype, of what streams and kernels move.
DTYPES: Final = {
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
}
# MLIR element type -> C++ type of the AIE API.
CTYPES: Final = {"i8": "int8", "i16": "int16", "i32": "int32", "bf16": "bfloat16", "f32": "float"}


@final
@dataclass(frozen=True)
class MemRef:
    """The type of a buffer: ``memref<64x32xi8>``.

    >>> str(MemRef((64, 32), "i8")), MemRef((64, 32), "i8").nbytes
    ('memref<64x32xi8>', 2048)
    """

    shape: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.element]

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"memref<{'x'.join(map(str, self.shape))}x{self.element}>"


class CoreKernel(ABC):
    """One function of a core. Abstract; implementations are final and equal if their names are."""

    @property
    @abstractmethod
    def writes(self) -> tuple[int, ...]:
        """Positions of the arguments that it writes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The C symbol, with every parameter."""

    @property
    @abstractmethod
    def arguments(self) -> tuple[MemRef, ...]: ...

    @abstractmethod
    def meaning(self, arrays: Sequence[NDArray]) -> None:
        """Compute on buffers of the arguments' shapes, in place."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The function in C++ against the AIE API, without headers; helpers are in `PRELUDE`."""

    @abstractmethod
    def cycles(self, array: AieArray) -> int:
        """Estimated cycles of one call."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoreKernel) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def signature(self, parameters: Sequence[str]) -> str:
        """The C declaration."""
        words: list[str] = []
        for i, (m, p) in enumerate(zip(self.arguments, parameters, strict=True)):
            constant = "" if i in self.writes else "const "
            words.append(f"{constant}{CTYPES[m.element]} *__restrict {p}")
        return f'extern "C" void {self.name}({", ".join(words)})'


# Cycles of a call: arguments, return, and the loops' set-up.
CALL: Final = 24

PRELUDE: Final = """\
#include <aie_api/aie.hpp>
"""


def words_of(name: str, pattern: str) -> tuple[int, ...] | None:
    """The numbers in a kernel's name, or None where it is another kernel's."""
    found = re.fullmatch(pattern, name)
    return tuple(map(int, found.groups())) if found else None


@lru_cache(1024)
def named(name: str) -> CoreKernel:
    """The kernel of that C symbol; `ProgramError` where there is none.

    >>> named("nx_zero_i32_256").arguments[0].size
    256
    """
    from nxjax.kernels.aie import elementwise, matmul

    for read in (*matmul.READERS, *elementwise.READERS):
        found = read(name)
        if found is not None:
            return found
    raise ProgramError("AIE kernels: no kernel has this symbol", got=name, fix="write designs with nxjax.lower.aie")


def source_file(kernels: Sequence[CoreKernel]) -> str:
    """One C++ file with the kernels, for one object file that the cores link.

    >>> from nxjax.kernels.aie.matmul import ZeroFill
    >>> source_file([ZeroFill("i32", 64)]).splitlines()[0]
    '#include <aie_api/aie.hpp>'
    """
    parts = [PRELUDE, *dict.fromkeys(k.source for k in sorted(set(kernels), key=lambda k: k.name))]
    return "\n".join(parts)
