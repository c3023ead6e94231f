"""What a rule writes an IPU program with: variables, compute sets, copies, loop bodies.

Knows no op: a rule gets a `VariableView` for each operand and gives some. Running a whole program on views is
`lower`'s, which hands itself in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.errors import Source
from nxjax.kernels.ipu.chip import IpuChip, IpuSystem
from nxjax.kernels.ipu.spec import CTYPES
from nxjax.lower.ipu.mapping import linear
from nxjax.lower.ipu.program import (
    Boxes,
    Copy,
    Execute,
    Group,
    MappedRegion,
    NDArray,
    Role,
    Shape,
    Step,
    Variable,
    VariableView,
    row_major,
)
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

# Constants of at most so many elements are looked up by their bytes, so that equal ones lie in memory once.
SHARED_CONSTANT: Final = 1 << 16


@final
class UnsupportedEquation(Exception):
    """Raised by a rule that cannot serve an equation; `lower` gathers them into one error."""

    def __init__(self, reason: str, fix: str = "compute it outside of the compiled function") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@final
@dataclass(frozen=True)
class IpuOptions:
    """What the user chooses.

    Attributes:
        precision: "float32", "float16", or "mixed": half operands of products, everything else float.
        partials: what products of halves are summed up in.
        available_memory_proportion: how much of a tile's memory one product may take for its temporaries.
        stochastic_rounding: whether float to half rounds at random.
    """

    precision: Literal["float32", "float16", "mixed"] = "float32"
    partials: Literal["float32", "float16"] = "float32"
    available_memory_proportion: float = 0.6
    stochastic_rounding: bool = False


Run = Callable[["Builder", Program, Sequence[VariableView]], list[VariableView]]


@final
class Builder:
    """Writes steps, in order, into the innermost open block.

    Attributes:
        system, options: what the program is for, and the user's choices.
        first, tiles: where variables go that nobody places: tiles ``first`` to ``first + tiles``.
        steps: the block that the next step is put in.
        fixed: ids of the variables that some step has touched; the others may still be placed elsewhere.
        functions: name -> steps, for `Call`.
        source, scope: of the equation that is being lowered.
    """

    def __init__(self, system: IpuSystem, options: IpuOptions | None = None, run: Run | None = None) -> None:
        self.system = system
        self.options = options or IpuOptions()
        self.first = 0
        self.tiles = system.chip.tiles
        self.steps: list[Step] = []
        self.functions: dict[str, tuple[Step, ...]] = {}
        self.source: Source | None = None
        self.scope = ""
        self.op = ""
        self.fixed: set[int] = set()
        self._run = run
        self._constants: dict[Any, Variable] = {}
        self._names: dict[str, int] = {}

    @property
    def chip(self) -> IpuChip:
        return self.system.chip

    # --- variables ---

    def variable(
        self,
        shape: Sequence[int],
        dtype: Any,
        pieces: Sequence[MappedRegion] | None = None,
        name: str = "",
        role: Role = "temporary",
        value: NDArray | None = None,
        grain: int = 128,
    ) -> Variable:
        """A new variable; without ``pieces`` it is spread in order over the tiles, at least ``grain`` bytes on each.

        Raises:
            UnsupportedEquation: tiles have no such dtype.
        """
        dtype, shape = np.dtype(dtype), tuple(shape)
        if dtype.name not in CTYPES:
            raise UnsupportedEquation(*no_dtype(dtype))
        if pieces is None:
            pieces = linear(math.prod(shape), dtype.itemsize, self.tiles, self.first, grain)
        return Variable(name or self.fresh(), shape, dtype, tuple(pieces), role, value, self.source)

    def fresh(self, name: str = "") -> str:
        """A name that no variable has: the op's, numbered."""
        base = name or self.op or "t"
        n = self._names[base] = self._names.get(base, 0) + 1
        return f"{base}.{n}"

    def constant(self, value: Any, dtype: Any = None) -> VariableView:
        """A constant. What repeats along a dimension is kept once; equal constants are one variable."""
        data = np.asarray(value, dtype)
        strides: list[int] = []
        kept = data
        for d in range(data.ndim):
            one = kept[(slice(None),) * d + (slice(0, 1),)]
            if kept.shape[d] > 1 and kept.size and bool(_same(kept, one)):
                kept = one
        for n, step, whole in zip(kept.shape, row_major(kept.shape), data.shape, strict=True):
            strides.append(0 if n != whole else step)
        # Every IPU has its own.
        key = (self.first, kept.dtype, kept.shape, kept.tobytes()) if kept.size <= SHARED_CONSTANT else None
        found = self._constants.get(key) if key else None
        if found is None:
            name = self.fresh("constant")
            # A copy: kept may be a view of memory that its owner writes again.
            found = self.variable(kept.shape, kept.dtype, None, name, "constant", kept.copy())
            if key:
                self._constants[key] = found
        return VariableView(found, 0, data.shape, tuple(strides))

    def known(self, view: VariableView) -> NDArray | None:
        """The elements of a view of a constant, else None."""
        value = view.variable.value
        if view.variable.role != "constant" or value is None:
            return None
        places = Boxes(np.asarray([view.offset], np.int64), view.shape, view.strides).elements()[0]
        return value.reshape(-1)[places] if view.size else np.zeros(view.shape, view.dtype)

    def uniform(self, view: VariableView) -> Any:
        """The one value of a view that repeats a constant's element, as a NumPy scalar; else None."""
        value = view.variable.value
        if view.variable.role != "constant" or value is None or not view.size:
            return None
        if any(s and n > 1 for n, s in zip(view.shape, view.strides, strict=True)):
            return None
        return value.reshape(-1)[view.offset]

    def place(self, variable: Variable, pieces: Sequence[MappedRegion]) -> bool:
        """Put a variable elsewhere, if no step has touched it yet: inputs and constants go where they are first used.

        Returns:
            Whether it lies there now.
        """
        if id(variable) in self.fixed:
            return False
        variable.pieces = tuple(pieces)
        variable._tiles = None  # pyright: ignore[reportPrivateUsage]
        return True

    # --- steps ---

    def execute(self, groups: Sequence[Group], name: str = "") -> None:
        """A compute set. Groups without vertices are left out."""
        kept = tuple(g for g in groups if len(g.tiles))
        if kept:
            self.fixed.update(id(e.variable) for g in kept for e in g.edges.values())
            self.steps.append(Execute(name or self.op, kept, self.source, self.scope))

    def copy(self, pairs: Sequence[tuple[VariableView, VariableView]], name: str = "") -> None:
        """One exchange phase of (source, target) pairs of equal shapes. Empty pairs are left out."""
        kept = tuple((s, t) for s, t in pairs if t.size)
        for s, t in kept:
            assert s.shape == t.shape and s.dtype == t.dtype, (self.op, s, t)
        if kept:
            self.fixed.update(id(v.variable) for pair in kept for v in pair)
            self.steps.append(Copy(kept, name or self.op, self.source, self.scope))

    def materialize(
        self, view: VariableView, pieces: Sequence[MappedRegion] | None = None, name: str = ""
    ) -> VariableView:
        """``view`` as a variable of its own, in row-major order; the same view if it is one already.

        With ``pieces`` it is always a new variable that lies there.
        """
        if view.whole and pieces is None:
            return (
                view if view.variable.shape == view.shape else VariableView(view.variable, 0, view.shape, view.strides)
            )
        target = self.variable(view.shape, view.dtype, pieces, name).view()
        self.copy([(view, target)], name)
        return target

    def reshaped(self, view: VariableView, shape: Sequence[int]) -> VariableView:
        """``view`` in another shape: free where its strides allow it, else copied."""
        shape = tuple(shape)
        strides = regrouped(view.shape, view.strides, shape)
        if strides is None:
            view = self.materialize(view)
            strides = row_major(shape)
        return VariableView(view.variable, view.offset, shape, strides)

    @contextmanager
    def block(self) -> Generator[list[Step]]:
        """A new innermost block: the body of a loop or a branch."""
        outer, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = outer

    @contextmanager
    def at(self, op: str, source: Source | None, scope: str) -> Generator[None]:
        """Steps written meanwhile come from this equation."""
        before = self.op, self.source, self.scope
        self.op, self.source, self.scope = op, source or self.source, scope or self.scope
        try:
            yield
        finally:
            self.op, self.source, self.scope = before

    # --- programs ---

    def program(self, program: Program, xs: Sequence[VariableView]) -> list[VariableView]:
        """The steps of ``program``, written in place."""
        assert self._run is not None
        return self._run(self, program, xs)

    def inline(self, function: Callable[..., Any], xs: Sequence[VariableView], **params: Any) -> Any:
        """The steps of a function of values: what a rule uses to say itself in smaller ops."""
        many: list[bool] = []

        def flat(*values: Any) -> Sequence[Any]:
            y = function(*values, **params)
            many.append(isinstance(y, (tuple, list)))
            return y if many[-1] else [y]

        program = stage(flat, [ArrayType(x.shape, x.dtype) for x in xs])
        ys = self.program(program, xs)
        return tuple(ys) if many[0] else ys[0]


def no_dtype(dtype: np.dtype[Any]) -> tuple[str, str]:
    """Why tiles do not hold ``dtype``, and what to do."""
    name = dtype.name
    if name in ("float64", "bfloat16") or name.startswith("float8"):
        return f"tiles have no {name}", "compute in float32 or float16"
    if name.startswith("complex"):
        return "tiles have no complex numbers", "keep real and imaginary parts apart"
    if name in ("int64", "uint64"):
        return f"tiles have no arithmetic of {name}", f"use {name.replace('64', '32')}"
    if name in ("int4", "uint4"):
        return f"tiles have no {name}", "store it as int8"
    return f"tiles have no dtype {name}", "use " + ", ".join(CTYPES)


def _same(x: NDArray, one: NDArray) -> bool:
    """Whether ``x`` repeats ``one``, bit for bit."""
    wide = np.broadcast_to(one, x.shape)
    if x.dtype.kind == "f":
        bits = np.dtype(f"u{x.dtype.itemsize}")
        return bool(np.array_equal(np.ascontiguousarray(x).view(bits), np.ascontiguousarray(wide).view(bits)))
    return bool(np.array_equal(x, wide))


def regrouped(shape: Shape, strides: Shape, to: Shape) -> Shape | None:
    """Strides of a strided array of ``shape`` seen in shape ``to``, or None if no strides give that.

    >>> regrouped((2, 3, 4), (24, 8, 2), (6, 4)), regrouped((2, 3), (1, 2), (6,))
    ((8, 2), None)
    """
    if math.prod(to) == 0:
        return row_major(to)
    source = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    found: list[int] = []
    i = 0
    targets = list(to)
    position = 0
    while position < len(targets):
        want = targets[position]
        if want == 1:
            found.append(0)
            position += 1
            continue
        # Join source dimensions until they hold whole targets, then split them.
        group_source: list[tuple[int, int]] = []
        group_target: list[int] = []
        have = need = 1
        while not group_source or have != need:
            if not group_source or have < need:
                group_source.append(source[i])
                have *= source[i][0]
                i += 1
            else:
                group_target.append(targets[position])
                need *= targets[position]
                position += 1
        while position < len(targets) and targets[position] == 1:
            group_target.append(1)
            position += 1
        merged = _merged(group_source)
        steps = _split(merged, group_target)
        if steps is None:
            return None
        found.extend(steps)
    return tuple(found)


def _merged(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions joined where they are one run."""
    found = [dims[0]]
    for size, stride in dims[1:]:
        last, step = found[-1]
        if step == size * stride:
            found[-1] = (last * size, stride)
        else:
            found.append((size, stride))
    return found


def _split(source: Sequence[tuple[int, int]], targets: Sequence[int]) -> list[int] | None:
    """Strides of ``targets``, each of which must lie in one run of ``source``."""
    runs = list(source)
    found: list[int] = []
    at = 0
    room, stride = runs[0]
    for want in targets:
        if want == 1:
            found.append(0)
            continue
        if room == 1:
            at += 1
            room, stride = runs[at]
        if room % want:
            return None
        room //= want
        found.append(stride * room)
    return found


@final
@dataclass(frozen=True, eq=False)
class Dims:
    """A shape with strides of several views of it, with dimensions joined wherever they are one run in all of them."""

    shape: Shape
    strides: tuple[Shape, ...]


def collapsed(shape: Shape, strides: Sequence[Shape]) -> Dims:
    """Dimensions of size 1 dropped, and neighbours joined that are one run in every view.

    >>> collapsed((2, 3, 4), [(12, 4, 1), (0, 0, 1)])
    Dims(shape=(6, 4), strides=((4, 1), (0, 1)))
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[d] for s in strides]
        if sizes and all(column[-1] == size * step for column, step in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for column, step in zip(steps, here, strict=True):
                column[-1] = step
        else:
            sizes.append(size)
            for column, step in zip(steps, here, strict=True):
                column.append(step)
    return Dims(tuple(sizes), tuple(tuple(column) for column in steps))
