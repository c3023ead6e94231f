"""The elementwise codelet: a graph of ops over operands and constants as one vertex, several results allowed.

Operands that repeat along a box are read once: an operand is "full", a "row" (repeats along the outer part of the box),
a "column" (along the inner part) or "one" element. Bit for bit the ops' NumPy meaning, but for transcendental functions
of single precision, where the C library's rounding may differ in the last places (bounds: ``tests/kernels/ipu``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.config.forks import cached_property
from nxjax.kernels.ipu import expression_cycles as cost
from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.expression_helpers import closure
from nxjax.kernels.ipu.expression_ops import Emitter, held, number, supported, written
from nxjax.kernels.ipu.spec import CTYPES, Attribute, Codelet, Field, NDArray
from nxjax.ops import arithmetic, bitwise, compare, convert, elementary, incomplete, power, rounding, select, special
from nxjax.trace.core import get_op

__all__ = ["CodeletNode", "ExpressionCodelet", "Kind", "codelet", "literal", "supported"]

# The files whose ops an expression may name.
OPS_FROM: Final = (arithmetic, bitwise, compare, convert, elementary, incomplete, power, rounding, select, special)

Kind = Literal["full", "row", "column", "one"]
DType = np.dtype[Any]


@final
@dataclass(frozen=True, eq=False)
class CodeletNode:
    """An op, or a literal.

    Attributes:
        op: name of the op; "literal" for a constant.
        args: numbers of its operands: leaves first, nodes after them.
        dtype: of its result.
        params: of the op.
        value: of a literal.
    """

    op: str
    args: tuple[int, ...]
    dtype: DType
    params: Mapping[str, Any]
    value: Any = None


def literal(value: Any, dtype: Any) -> CodeletNode:
    """A constant, the same for every element."""
    return CodeletNode("literal", (), np.dtype(dtype), {}, value)


def codelet(
    leaves: Sequence[DType],
    kinds: Sequence[Kind],
    nodes: Sequence[CodeletNode],
    outputs: Sequence[int],
    outs: Sequence[DType],
    inner: int,
) -> tuple[ExpressionCodelet, dict[str, Any]]:
    """The codelet of an expression, and the attributes of its vertices.

    Args:
        leaves: dtypes of the operands, fields ``x0``, ``x1``, ...
        kinds: how each lies in the box.
        nodes: operands before what uses them.
        outputs: which numbers the results are, fields ``y0``, ``y1``, ...
        outs: their dtypes.
        inner: elements of the inner part of the box.
    """
    return ExpressionCodelet(leaves, kinds, nodes, outputs, outs), {"inner": inner}


@final
class ExpressionCodelet(Codelet):
    """The vertex of an expression: see `codelet`."""

    common = False

    def __init__(
        self,
        leaves: Sequence[DType],
        kinds: Sequence[Kind],
        nodes: Sequence[CodeletNode],
        outputs: Sequence[int],
        outs: Sequence[DType],
    ) -> None:
        self.leaves = tuple(map(np.dtype, leaves))
        self.kinds = tuple(kinds)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)
        self.outs = tuple(map(np.dtype, outs))

    @cached_property
    def _name(self) -> str:
        parts: list[Any] = [self.leaves, self.kinds, self.outputs, self.outs]
        for n in self.nodes:
            value = np.asarray(n.value).astype(n.dtype).tobytes() if n.op == "literal" else b""
            parts.append((n.op, n.args, n.dtype.name, sorted((k, str(v)) for k, v in n.params.items()), value))
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
        ops = [n.op for n in self.nodes if n.op != "literal"]
        words = "_".join(ops[:4]) + (f"_{len(ops) - 4}_more" if len(ops) > 4 else "")
        return f"nx::Map_{words or 'copy'}_{digest}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def fields(self) -> tuple[Field, ...]:
        ins = tuple(Field(f"x{i}", "in", d.name) for i, d in enumerate(self.leaves))
        return (*ins, *(Field(f"y{i}", "out", d.name) for i, d in enumerate(self.outs)))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return (Attribute("inner", "unsigned"),)

    @cached_property
    def _source(self) -> str:
        return _source(self)

    @property
    def source(self) -> str:
        return self._source

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        y = arrays["y0"]
        n = len(y)
        inner = int(np.max(attributes["inner"], initial=1))
        count = int(np.prod(y.shape[1:]))
        outer = count // inner
        box = (n, outer, inner)
        shapes = {"full": box, "row": (n, 1, inner), "column": (n, outer, 1), "one": (n, 1, 1)}
        values: list[NDArray] = []
        for i, kind in enumerate(self.kinds):
            values.append(np.broadcast_to(arrays[f"x{i}"].reshape(shapes[kind]), box))
        for node in self.nodes:
            if node.op == "literal":
                values.append(np.broadcast_to(np.asarray(node.value).astype(node.dtype), box))
            else:
                operands = [np.ascontiguousarray(values[j]) for j in node.args]
                values.append(np.asarray(get_op(node.op).eval(*operands, **node.params)))
        return {f"y{i}": values[o].reshape(arrays[f"y{i}"].shape) for i, o in enumerate(self.outputs)}

    def _operand_dtype(self, number: int) -> DType:
        n = len(self.leaves)
        return self.leaves[number] if number < n else self.nodes[number - n].dtype

    @property
    def _ops(self) -> list[CodeletNode]:
        return [n for n in self.nodes if n.op != "literal"]

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        count = int(np.prod(sizes["y0"]))
        ops = self._ops
        if len(ops) == 1 and len(self.outs) == 1 and not {"row", "column"} & set(self.kinds):
            (op,) = ops
            dtype = self._operand_dtype(op.args[-1])
            full = [self.kinds[i] == "full" if i < len(self.leaves) else False for i in op.args]
            if op.op == "convert_element_type" and dtype.kind == op.dtype.kind == "f":
                return cost.cast(count, dtype, op.dtype, chip)
            if dtype.kind == "f" and op.op in cost.VECTOR and all(full) and len(full) == 1:
                return cost.unary(op.op, count, dtype, chip)
            if dtype.kind == "f" and op.op in cost.VECTOR and len(full) == 2 and sum(full):
                return (cost.binary if all(full) else cost.with_scalar)(op.op, count, dtype, chip)
        each = sum(cost.of_op(n.op, self._operand_dtype(n.args[-1]), n.params) for n in ops)
        streams = [d for d, k in zip(self.leaves, self.kinds, strict=True) if k in ("full", "row")]
        repeated = bool({"row", "column"} & set(self.kinds))
        inner = int(np.max(attributes.get("inner", count), initial=1))
        return cost.fused(each, [*streams, *self.outs], count, count // inner if repeated else 1, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return int(np.prod(sizes["y0"])) * sum(n.dtype.kind == "f" for n in self._ops)

    def code_bytes(self, chip: IpuChip) -> int:
        # About two instructions an op, in a loop, beside the vertex's start; more where an op calls a function.
        calls = sum(cost.of_op(n.op, self._operand_dtype(n.args[-1]), n.params) > 20 for n in self._ops)
        return 96 + 8 * len(self.fields) + 16 * len(self._ops) + 200 * calls


_LAYOUT: Final = "poplar::VectorLayout::"


def _source(x: ExpressionCodelet) -> str:
    e = Emitter()
    dtypes = [*x.leaves, *(n.dtype for n in x.nodes)]
    names = [f"v{i}" for i in range(len(x.leaves))]
    for node in x.nodes:
        if node.op == "literal":
            names.append(held(number(node.value, node.dtype), node.dtype))
            continue
        types = [dtypes[j] for j in node.args]
        names.append(written(e, node.op, [names[j] for j in node.args], types, node.dtype, node.params))
    members: list[str] = []
    pointers: list[str] = []
    loads: dict[Kind, list[str]] = {"full": [], "row": [], "column": [], "one": []}
    index = {"full": "i", "row": "column", "column": "row", "one": "0"}
    used = {j for n in x.nodes for j in n.args} | set(x.outputs)
    for i, (dtype, kind) in enumerate(zip(x.leaves, x.kinds, strict=True)):
        ctype = CTYPES[dtype.name]
        members.append(f"poplar::Input<poplar::Vector<{ctype}, {_LAYOUT}ONE_PTR, 8>> x{i};")
        if i not in used:
            continue
        pointers.append(f"const {ctype} *const __restrict p{i} = &x{i}[0];")
        loads[kind].append(f"const {ctype} v{i} = p{i}[{index[kind]}];")
    stores: list[str] = []
    for i, (dtype, o) in enumerate(zip(x.outs, x.outputs, strict=True)):
        ctype = CTYPES[dtype.name]
        layout = "SPAN" if i == 0 else "ONE_PTR"
        members.append(f"poplar::Output<poplar::Vector<{ctype}, {_LAYOUT}{layout}, 8>> y{i};")
        pointers.append(f"{ctype} *const __restrict q{i} = &y{i}[0];")
        stores.append(f"q{i}[i] = {names[o]};")
    # Workers write whole 64-bit words, so that no two write one.
    grain = 8 // min(d.itemsize for d in x.outs)
    body = "\n        ".join([*loads["full"], *loads["row"], *e.lines, *stores])
    if loads["row"] or loads["column"]:
        columns = "\n      ".join(["const unsigned row = i / inner;", *loads["column"]])
        loop = f"""for (unsigned i = first; i < last;) {{
      {columns}
      unsigned column = i - row * inner;
      const unsigned stop = inner - column < last - i ? i + inner - column : last;
      for (; i < stop; ++i, ++column) {{
        {body}
      }}
    }}"""
    else:
        loop = f"for (unsigned i = first; i < last; ++i) {{\n        {body}\n    }}"
    before = "\n    ".join([*pointers, *loads["one"]])
    helpers = closure(e.helpers)
    class_name = x.name.removeprefix("nx::")
    return f"""#include <cmath>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

namespace nx {{

namespace {{

{helpers}

}}  // namespace

class {class_name} : public poplar::MultiVertex {{
 public:
  {chr(10).join("  " + m for m in members).strip()}
  const unsigned inner;

  bool compute(unsigned wid) {{
    const unsigned count = y0.size(), words = (count + {grain - 1}) / {grain};
    const unsigned first = words * wid / numWorkers() * {grain};
    const unsigned end = words * (wid + 1) / numWorkers() * {grain};
    const unsigned last = end < count ? end : count;
    {before}
    {loop}
    return true;
  }}
}};

}}  // namespace nx
"""
