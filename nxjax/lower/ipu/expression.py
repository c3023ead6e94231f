"""INTERIM: replaced by the codelet of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax.kernels.ipu.spec import CTYPES, Codelet, Field
from nxjax.trace.core import OPS

NDArray = np.ndarray[Any, Any]
OPS_HERE = set(
    """neg add sub mul div rem pow power integer_pow max min abs sign square sqrt rsqrt cbrt atan2 nextafter exp exp2
 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic erf erfc erf_inv lgamma digamma
 floor ceil round is_finite reduce_precision and or xor not shift_left shift_right_logical shift_right_arithmetic
 population_count clz eq ne lt le gt ge convert_element_type select_n clamp bitcast_convert_type bessel_i0e bessel_i1e""".split()
)


@final
@dataclass(frozen=True, eq=False)
class Node:
    op: str
    args: tuple[int, ...]
    dtype: np.dtype[Any]
    params: Mapping[str, Any]
    value: Any = None


def literal(value: Any, dtype: Any) -> Node:
    return Node("literal", (), dtype, {}, value)


def supported(name: str, types: Sequence[Any], out: Any, params: Mapping[str, Any]) -> bool:
    allowed = {*CTYPES, "int64", "uint64"}
    if name == "bitcast_convert_type" and types[0].itemsize != out.itemsize:
        return False
    return name in OPS_HERE and out.name in allowed and all(t.name in allowed for t in types)


class Expr(Codelet):
    def __init__(self, leaves, kinds, nodes, outputs, outs, inner):
        self.a = (leaves, kinds, nodes, outputs, outs)

    @property
    def name(self):
        leaves, kinds, nodes, outputs, outs = self.a
        return repr(
            (
                leaves,
                kinds,
                [(n.op, n.args, n.dtype, sorted(n.params.items(), key=str), n.value) for n in nodes],
                outputs,
                outs,
            )
        )

    @property
    def fields(self):
        leaves, kinds, nodes, outputs, outs = self.a
        return tuple(Field(f"x{i}", "in", d.name) for i, d in enumerate(leaves)) + tuple(
            Field(f"y{i}", "out", d.name) for i, d in enumerate(outs)
        )

    @property
    def attributes(self):
        from nxjax.kernels.ipu.spec import Attribute

        return (Attribute("inner", "unsigned"),)

    @property
    def source(self):
        return ";"

    def meaning(self, arrays, attributes):
        leaves, kinds, nodes, outputs, outs = self.a
        y = arrays["y0"]
        n = len(y)
        count = int(np.prod(y.shape[1:]))
        inner = attributes["inner"]
        outer = count // inner
        vals = []
        for i, k in enumerate(kinds):
            x = arrays[f"x{i}"].reshape(n, -1)
            shape = {"full": (n, outer, inner), "row": (n, 1, inner), "column": (n, outer, 1), "one": (n, 1, 1)}[k]
            vals.append(np.broadcast_to(x.reshape(shape), (n, outer, inner)))
        for nd in nodes:
            if nd.op == "literal":
                vals.append(np.full((n, outer, inner), nd.value, nd.dtype))
            else:
                vals.append(OPS[nd.op].eval(*(vals[j] for j in nd.args), **nd.params))
        return {f"y{i}": vals[o].reshape(arrays[f"y{i}"].shape) for i, o in enumerate(outputs)}

    def cycles(self, sizes, attributes, chip):
        return 100


def codelet(leaves, kinds, nodes, outputs, outs, inner):
    return Expr(leaves, kinds, nodes, outputs, outs, inner), {"inner": inner}
