"""Runs codelets on this machine: compiled by its C++ compiler, or by their NumPy meanings, behind one interface.

A `Launch` runs all vertices of a group with one call. Contiguous boxes are read and written in place; others are packed
around each vertex. Knows codelets and arrays, no program.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu import host_compiler
from nxjax.kernels.ipu.host_source import entry, translation_unit
from nxjax.kernels.ipu.spec import Codelet, NDArray

Shape = tuple[int, ...]
Launch = Callable[[], None]
Copies = Sequence[tuple["Strided", "Strided"]]

MAX_RANK: Final = 8
# Codelets of one program that share a translation unit; others have one of their own. More units compile side by side,
# but each reads the shim again.
UNIT: Final = 8
# A launch that took longer than this, in seconds, is cut for several threads from then on.
WORTH_A_THREAD: Final = 400e-6
_ALIGN: Final = 64


@final
@dataclass(frozen=True, eq=False)
class VertexBoxes:
    """Equal boxes of a variable's memory, one per vertex.

    Element (i0, i1, ...) of box v is ``memory[offsets[v] + i0 * strides[0] + i1 * strides[1] + ...]``.

    Attributes:
        memory: the whole variable, flat and contiguous.
        offsets: int64 [n], in elements.
        sizes: of a box.
        strides: one per dimension, in elements.
    """

    memory: NDArray
    offsets: NDArray
    sizes: Shape
    strides: Shape

    def elements(self) -> NDArray:
        """Element numbers, int64 [n, *sizes]."""
        places = np.zeros((), np.int64)
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = places[..., None] + np.arange(size, dtype=np.int64) * stride
        return self.offsets.reshape(-1, *(1,) * len(self.sizes)) + places


@final
@dataclass(frozen=True, eq=False)
class Strided:
    """A strided array in a variable's memory: element (i0, ...) is ``memory[offset + i0 * strides[0] + ...]``."""

    memory: NDArray
    offset: int
    shape: Shape
    strides: Shape

    def array(self) -> NDArray:
        """The array itself, a view."""
        item = self.memory.itemsize
        return np.lib.stride_tricks.as_strided(
            self.memory[self.offset :] if self.offset < len(self.memory) else self.memory,
            self.shape,
            tuple(s * item for s in self.strides),
        )


class CodeletRunner(ABC):
    """What runs codelets and copies: `Library` or `MeaningLibrary`."""

    @abstractmethod
    def prepare(
        self, codelet: Codelet, count: int, fields: Mapping[str, VertexBoxes], attributes: Mapping[str, Any]
    ) -> Launch:
        """A function that runs ``count`` vertices.

        Args:
            codelet: one of those that the runner was made for.
            count: vertices.
            fields: per field, its boxes. What is written must not be read or written by another vertex, nor through
                another field.
            attributes: per attribute a number, or an array [count].
        """

    @abstractmethod
    def copies(self, pairs: Copies) -> Launch:
        """A function that copies each (source, target); no target overlaps another one, or a source."""


def available() -> tuple[bool, str]:
    """Whether codelets can be compiled on this machine, and by which compiler or why not."""
    path, version = host_compiler.compiler()
    return bool(path), version


# --- compiled ---


@final
class _Column(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("count", ctypes.c_longlong),
        ("sizes", ctypes.c_longlong * MAX_RANK),
        ("strides", ctypes.c_longlong * MAX_RANK),
        ("scratch", ctypes.c_longlong),
        ("rank", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("reads", ctypes.c_int),
        ("writes", ctypes.c_int),
    )


@final
class _Number(ctypes.Structure):
    _fields_ = (("words", ctypes.c_void_p), ("step", ctypes.c_longlong))


@final
class _Launch(ctypes.Structure):
    _fields_ = (("columns", ctypes.c_void_p), ("numbers", ctypes.c_void_p), ("seed", ctypes.c_ulonglong))


@final
class _Pair(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("sizes", ctypes.c_longlong * MAX_RANK),
        ("steps_in", ctypes.c_longlong * MAX_RANK),
        ("steps_out", ctypes.c_longlong * MAX_RANK),
        ("rank", ctypes.c_int),
        ("itemsize", ctypes.c_int),
    )


_pool: ThreadPoolExecutor | None = None


def _helpers(threads: int) -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(threads, "nxjax-ipu-model")
    return _pool


@final
class Library(CodeletRunner):
    """Codelets compiled by the host's C++ compiler.

    Args:
        codelets: all that launches will be prepared of.
        stochastic: whether float to half rounds at random, as tiles do with $FP_CTL.ESR set.
        seed: of that rounding. Each launch of a run draws other numbers; `reset` starts the sequence again.
        threads: how many run a launch's vertices at most; results do not depend on it.
        workers: in how many parts a vertex does its work: a tile has six workers, but the parts change no result, and
            in one go is faster.

    Raises:
        ExecutionError: there is no compiler.
        KernelError: it refuses a source.
    """

    def __init__(
        self,
        codelets: Sequence[Codelet],
        *,
        stochastic: bool = False,
        seed: int = 0,
        threads: int | None = None,
        workers: int = 1,
    ) -> None:
        distinct = list(dict.fromkeys(codelets))
        own = [c for c in distinct if not c.common]
        units = [own[i : i + UNIT] for i in range(0, len(own), UNIT)] + [[c] for c in distinct if c.common]
        copy_text = (host_compiler.SHIM / "host" / "copy.cpp").read_text()
        defines = (f"NX_WORKERS={workers}", *(("NX_STOCHASTIC",) if stochastic else ()))
        loaded = [
            # The copies' text is the same for all programs, and its library too.
            *host_compiler.libraries([copy_text]),
            *host_compiler.libraries([translation_unit(unit) for unit in units], defines),
        ]
        self._copy = loaded[0].nx_copy
        self._copy.argtypes = (ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)
        self._copy.restype = None
        self._functions: dict[Codelet, Any] = {}
        for unit, library in zip(units, loaded[1:], strict=True):
            for number, codelet in enumerate(unit):
                function = library[entry(number)]
                function.argtypes = (ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p)
                function.restype = None
                self._functions[codelet] = function
        self.threads = max(1, threads if threads is not None else min(4, os.cpu_count() or 1))
        self.stochastic = stochastic
        self.seed = seed
        self._runs = 0

    def reset(self, seed: int | None = None) -> None:
        """Start the random numbers of stochastic rounding again."""
        self.seed = self.seed if seed is None else seed
        self._runs = 0

    def prepare(
        self, codelet: Codelet, count: int, fields: Mapping[str, VertexBoxes], attributes: Mapping[str, Any]
    ) -> Launch:
        function = self._functions[codelet]
        columns = (_Column * max(1, len(codelet.fields)))()
        scratch = 0
        kept: list[Any] = []
        for column, field in zip(columns, codelet.fields, strict=False):
            place = fields[field.name]
            memory = place.memory
            assert memory.dtype.name == field.dtype and memory.flags.c_contiguous, (codelet, field, memory.dtype)
            assert len(place.offsets) == count, (codelet, field.name, len(place.offsets), count)
            offsets = np.ascontiguousarray(place.offsets, np.int64)
            dims = simplified(place.sizes, [place.strides])
            kept += [memory, offsets]
            column.base = memory.ctypes.data
            column.offsets = offsets.ctypes.data
            column.count = math.prod(place.sizes)
            column.itemsize = memory.itemsize
            column.reads, column.writes = field.io != "out", field.io != "in"
            if not dims or (len(dims) == 1 and dims[0][1][0] == 1) or not column.count:
                column.scratch = -1
                continue
            assert len(dims) <= MAX_RANK, (codelet, field.name, place.sizes)
            column.rank = len(dims)
            for d, (size, (stride,)) in enumerate(dims):
                column.sizes[d], column.strides[d] = size, stride
            column.scratch = scratch
            scratch += -(-column.count * memory.itemsize // _ALIGN) * _ALIGN
        numbers = (_Number * max(1, len(codelet.attributes)))()
        for number, attribute in zip(numbers, codelet.attributes, strict=False):
            value = np.asarray(attributes[attribute.name])
            words = np.ascontiguousarray(_words(value, attribute.ctype))
            assert words.shape in ((), (1,), (count,)), (codelet, attribute.name, words.shape)
            kept.append(words)
            number.words, number.step = words.ctypes.data, int(words.ndim == 1 and len(words) == count and count > 1)
        info = _Launch(ctypes.addressof(columns), ctypes.addressof(numbers), 0)
        blocks = [np.empty(scratch, np.uint8) for _ in range(self.threads if scratch else 0)]
        kept += [columns, numbers, *blocks]
        at = [b.ctypes.data for b in blocks] or [0] * self.threads
        return self._launch(function, info, count, at, kept)

    def _launch(self, function: Any, info: _Launch, count: int, scratch: Sequence[int], kept: list[Any]) -> Launch:
        address, first = ctypes.addressof(info), scratch[0]
        threads = min(self.threads, count)
        kept.append(info)
        slow = False
        ends = [count * (i + 1) // max(1, threads) for i in range(threads)]
        ranges = list(zip([0, *ends[:-1]], ends, scratch, strict=False))

        def launch() -> None:
            nonlocal slow
            assert kept
            if self.stochastic:
                self._runs += 1
                info.seed = _mixed(self.seed, self._runs)
            if slow and threads > 1:
                pool = _helpers(self.threads)
                others = [pool.submit(function, address, a, b, s) for a, b, s in ranges[1:]]
                function(address, 0, ranges[0][1], first)
                for other in others:
                    other.result()
                return
            start = time.perf_counter()
            function(address, 0, count, first)
            slow = time.perf_counter() - start > WORTH_A_THREAD

        return launch

    def copies(self, pairs: Copies) -> Launch:
        kept_pairs = [(s, t) for s, t in pairs if math.prod(t.shape)]
        table = (_Pair * max(1, len(kept_pairs)))()
        memories: list[Any] = [table]
        for row, (source, target) in zip(table, kept_pairs, strict=False):
            assert source.shape == target.shape and source.memory.dtype == target.memory.dtype, (source, target)
            dims = simplified(target.shape, [source.strides, target.strides]) or [(1, (1, 1))]
            assert len(dims) <= MAX_RANK, target.shape
            item = target.memory.itemsize
            assert item in (1, 2, 4), target.memory.dtype
            row.source = source.memory.ctypes.data + source.offset * item
            row.target = target.memory.ctypes.data + target.offset * item
            row.rank, row.itemsize = len(dims), item
            for d, (size, (i, o)) in enumerate(dims):
                row.sizes[d], row.steps_in[d], row.steps_out[d] = size, i, o
            memories += [source.memory, target.memory]
        function, address, count = self._copy, ctypes.addressof(table), len(kept_pairs)

        def launch() -> None:
            assert memories
            function(address, 0, count)

        return launch


def _mixed(seed: int, run: int) -> int:
    """A 64-bit number for each launch of a seed (Knuth's multiplicative hash of both)."""
    return ((seed + 1) * 0x9E3779B97F4A7C15 ^ run * 0xD1B54A32D192ED03) & (2**64 - 1)


def _words(value: NDArray, ctype: str) -> NDArray:
    if ctype == "float":
        return value.astype(np.float32)
    return value.astype(np.int64).astype(np.uint32)


def simplified(shape: Shape, strides: Sequence[Shape]) -> list[tuple[int, tuple[int, ...]]]:
    """(size, strides) of dimensions, those of size 1 dropped, and neighbours joined that are one run in every array.

    >>> simplified((2, 3, 4), [(12, 4, 1)])
    [(24, (1,))]
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    for d, size in enumerate(shape):
        here = tuple(s[d] for s in strides)
        if size == 1:
            continue
        if found and all(before == size * now for before, now in zip(found[-1][1], here, strict=True)):
            found[-1] = (found[-1][0] * size, here)
        else:
            found.append((size, here))
    return found


# --- by meaning ---


@final
class MeaningLibrary(CodeletRunner):
    """Codelets run by their NumPy meanings, all vertices of a launch at once: needs no compiler."""

    def prepare(
        self, codelet: Codelet, count: int, fields: Mapping[str, VertexBoxes], attributes: Mapping[str, Any]
    ) -> Launch:
        reads: list[tuple[str, NDArray, NDArray]] = []
        writes: list[tuple[str, NDArray, NDArray]] = []
        shapes: dict[str, NDArray] = {}
        for field in codelet.fields:
            place = fields[field.name]
            assert len(place.offsets) == count, (codelet, field.name, len(place.offsets), count)
            elements = place.elements()
            if field.io == "out":
                shapes[field.name] = np.empty(elements.shape, place.memory.dtype)
            else:
                reads.append((field.name, place.memory, elements))
            if field.io != "in":
                writes.append((field.name, place.memory, elements))

        def launch() -> None:
            arrays = dict(shapes)
            for name, memory, elements in reads:
                arrays[name] = memory[elements]
            with np.errstate(all="ignore"):
                found = codelet.meaning(arrays, attributes)
            for name, memory, elements in writes:
                memory[elements] = np.asarray(found[name]).reshape(elements.shape)

        return launch

    def copies(self, pairs: Copies) -> Launch:
        views = [(s.array(), t.array()) for s, t in pairs if math.prod(t.shape)]

        def launch() -> None:
            for source, target in views:
                target[...] = source

        return launch


def runner(codelets: Sequence[Codelet], *, stochastic: bool = False, seed: int = 0) -> CodeletRunner:
    """A `Library` where there is a compiler, else a `MeaningLibrary` (which always rounds to nearest)."""
    if available()[0]:
        return Library(codelets, stochastic=stochastic, seed=seed)
    return MeaningLibrary()


def shim_files() -> dict[str, Path]:
    """The headers of the vertex interface, by the name that codelets include them by."""
    return {f"poplar/{name}": host_compiler.SHIM / "poplar" / name for name in host_compiler.VERTEX_HEADERS}
