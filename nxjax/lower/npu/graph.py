"""NpuGraph: what every NPU format is written from. Static shapes, channels last, one node per NPU instruction.

Holds no rule and knows no format: `rules` make graphs from programs, `formats` write them, `interpret` says what they
mean. A tensor is constant (has ``data``), a graph input, or the output of one node. A tensor with a ``grid`` holds
integers of ``grid.dtype``; one without holds ``dtype`` itself. Constants hold their stored form.

Ops are named after TFLite's operators in lower case; `nxjax.lower.npu.ops` has one class for each. Images are
[n,h,w,c]; ``padding`` is ((low, high), ...) per axis, explicit, never a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from nxjax.errors import ProgramError, Source
from nxjax.lower.npu.attributes import completed
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace.dtypes import DType, bit_width, short_name
from nxjax.trace.types import Shape

# What a tensor is made with: the dtype that it holds, or the grid that its integers lie on.
TensorKind = DType | Grid


@final
@dataclass(eq=False)
class Tensor:
    """A tensor of a graph: identity, name, shape, storage dtype, and its grid if it is quantized."""

    name: str
    shape: Shape
    dtype: DType
    grid: Grid | None = None
    data: NDArray | None = None

    def __post_init__(self) -> None:
        self.shape = tuple(int(n) for n in self.shape)
        self.dtype = np.dtype(self.dtype)

    @property
    def constant(self) -> bool:
        return self.data is not None

    @property
    def kind(self) -> TensorKind:
        """What another tensor of the same meaning would be made with."""
        return self.grid or self.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return (self.size * bit_width(self.dtype) + 7) // 8

    @property
    def reach(self) -> float:
        """The greatest finite magnitude that its real values are known to have; 0 where that is not known.

        Of a constant, its own values; of others, what a grid of up to 16 bits spans. An accumulator of 32 bits has
        room for far more than is ever in it, and indices are no real values.
        """
        if self.data is not None:
            if self.grid is None and not (self.dtype.kind in "fc" or "float" in self.dtype.name):
                return 0.0
            real = np.asarray(self.data) if self.grid is None else self.grid.dequantize(self.data)
            found = np.abs(real.astype(np.float64))
            return float(found[np.isfinite(found)].max(initial=0.0))
        if self.grid is None or self.grid.axis is not None or self.grid.dtype.itemsize > 2:
            return 0.0
        return max(map(abs, self.grid.bounds))


@final
@dataclass(eq=False)
class Node:
    """One instruction: an op of the vocabulary, its operands, and the user's line it came from."""

    op: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    source: Source | None = None
    scope: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse ops and attributes that there are not; complete the others."""
        rank = len(self.inputs[0].shape) if self.inputs and self.inputs[0] is not None else 0
        self.attrs = completed(self.op, self.attrs, rank, self.source)

    @property
    def output(self) -> Tensor:
        return self.outputs[0]

    @property
    def operands(self) -> list[Tensor]:
        """Inputs that are there."""
        return [t for t in self.inputs if t is not None]

    def operand(self, i: int = 0) -> Tensor:
        """The ``i``-th input, which must be there."""
        t = self.inputs[i]
        assert t is not None
        return t


@final
@dataclass(eq=False)
class NpuGraph:
    """Nodes in an order in which every tensor is made before it is used.

    ``notes`` are what a user should know of how the program became this graph.
    """

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    nodes: list[Node]
    rounding: Rounding = "double"
    notes: list[str] = field(default_factory=list[str])

    def constants(self) -> list[Tensor]:
        """Every constant, once, in order of use."""
        seen = dict.fromkeys(t for n in self.nodes for t in n.operands if t.constant)
        return [*seen, *(t for t in dict.fromkeys(self.outputs) if t.constant and t not in seen)]

    def all_graphs(self) -> list[NpuGraph]:
        """This graph, and those that its nodes hold, and so on."""
        held = [inner for n in self.nodes for inner in held_graphs(n).values()]
        return [self, *(g for inner in held for g in inner.all_graphs())]

    @property
    def weights(self) -> int:
        """Bytes of all constants, those of the graphs that nodes hold too."""
        return sum(t.nbytes for g in self.all_graphs() for t in g.constants())

    def tensors(self) -> list[Tensor]:
        """Every tensor, once: inputs, constants, then results in order."""
        made = [t for n in self.nodes for t in n.outputs]
        return list(dict.fromkeys([*self.inputs, *self.constants(), *made]))

    def producers(self) -> dict[Tensor, Node]:
        return {t: n for n in self.nodes for t in n.outputs}

    def uses(self) -> dict[Tensor, list[Node]]:
        """The nodes that read each tensor."""
        found: dict[Tensor, list[Node]] = {}
        for n in self.nodes:
            for t in dict.fromkeys(n.operands):
                found.setdefault(t, []).append(n)
        return found

    def check(self) -> NpuGraph:
        """Raise `ProgramError` unless every tensor is made once and before it is used; gives the graph back."""
        known = set(self.inputs)
        if len(known) < len(self.inputs) or any(t.constant for t in self.inputs):
            raise ProgramError("graph: an input is given twice or is a constant", got=[t.name for t in self.inputs])
        if not self.outputs:
            raise ProgramError("graph: it has no results", got=self.name)
        for n in self.nodes:
            for t in n.operands:
                if not t.constant and t not in known:
                    raise ProgramError(f"{n.op}: an operand is not made before it is used", got=t.name, source=n.source)
            for t in n.outputs:
                if t in known:
                    raise ProgramError(f"{n.op}: a tensor is made twice", got=t.name, source=n.source)
                known.add(t)
        for t in self.outputs:
            if t not in known and not t.constant:
                raise ProgramError("graph: a result is not made by any node", got=t.name)
        for t in self.tensors():
            if t.grid is not None and t.dtype != t.grid.dtype:
                raise ProgramError("graph: a tensor's dtype is not its grid's", got=t)
            if t.data is not None and (t.data.shape != t.shape or t.data.dtype != t.dtype):
                raise ProgramError("graph: a constant is not of its tensor's type", got=f"{t.data.dtype}{t.data.shape}")
        return self

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __str__(self) -> str:
        def of(t: Tensor) -> str:
            shape = ",".join(map(str, t.shape))
            grid = ""
            if t.grid is not None:
                scale = "per axis " + str(t.grid.axis) if t.grid.axis is not None else f"{t.grid.scale:.6g}"
                grid = f" * {scale}, zero {t.grid.zero_point}"
            return f"{t.name}: {short_name(t.dtype)}[{shape}]{grid}"

        rows = [f"graph {self.name}", *(f"  in   {of(t)}" for t in self.inputs)]
        for n in self.nodes:
            ins = ", ".join("-" if t is None else t.name for t in n.inputs)
            attrs = " ".join(f"{k}={v}" for k, v in n.attrs.items() if k != "values")
            rows.append(f"  {', '.join(map(of, n.outputs))} = {n.op}({ins}) {attrs}".rstrip())
        return "\n".join([*rows, *(f"  out  {t.name}" for t in self.outputs)])


def held_graphs(node: Node) -> dict[str, NpuGraph]:
    """The graphs that a node holds, by attribute; of most there are none."""
    return {name: value for name, value in node.attrs.items() if isinstance(value, NpuGraph)}


def unique(base: str, taken: dict[str, int], joint: str = "_") -> str:
    """``base``, or with a number behind it; ``taken`` has the last number of each: thousands may have one name.

    >>> taken = {}
    >>> [unique("x", taken) for _ in range(3)]
    ['x', 'x_1', 'x_2']
    """
    name = base
    while name in taken:
        taken[base] += 1
        name = f"{base}{joint}{taken[base]}"
    taken[name] = 0
    return name
