"""Ops that integer arithmetic knows by their pieces only, written out where a policy wants integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from nxjax.ops.arithmetic import abs, add, integer_pow, max, min, mul, neg, sub
from nxjax.ops.base import like
from nxjax.ops.compare import le
from nxjax.ops.composite_activation import elu, hard_swish, silu, softplus
from nxjax.ops.composite_attention import dot_product_attention
from nxjax.ops.composite_norm import batch_norm_inference, layer_norm, rms_norm
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.cumulative import cumsum
from nxjax.ops.dot import dot_general
from nxjax.ops.elementary import exp, expm1, log, log1p
from nxjax.ops.shape import transpose
from nxjax.quant.scheme import Policy, resolve_policy
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.stage import stage
from nxjax.transforms.custom_op import CustomOp

# Known whole to devices, but to integer arithmetic only by their pieces (hard_swish to that of 16 bits).
EXPANDED: Final[frozenset[Op]] = frozenset(
    (silu, hard_swish, layer_norm, rms_norm, batch_norm_inference, dot_product_attention)
)
# Running sums over at most so many elements are products with a triangle of ones.
LONGEST: Final = 512


def name_results(equations: Sequence[Equation], prefix: str, names: dict[Var, str]) -> None:
    """Call what each equation makes after its op, numbered by op."""
    counts: dict[str, int] = {}
    for e in equations:
        n = counts[e.op.name] = counts.get(e.op.name, -1) + 1
        for i, v in enumerate(e.outputs):
            names[v] = f"{prefix}{e.op.name}_{n}" + (f".{i}" if e.op.multi else "")


@final
class Expanding:
    """Writes composites out where the policy wants integers, everything else as it is."""

    def __init__(self, program: Program, policy: Policy, names: dict[Var, str]) -> None:
        self.source = program
        self.policy = policy
        self.names = names

    def program(self) -> Program:
        p = self.source
        equations: list[Equation] = []
        consts, values = list(p.constvars), list(p.values)
        env: dict[Var, Atom] = {}

        def atom(a: Atom) -> Atom:
            return env.get(a, a) if isinstance(a, Var) else a

        for e in p.equations:
            e = e.replaced(tuple(map(atom, e.inputs)), e.outputs)
            scheme = None
            if in_pieces(e):
                scheme = resolve_policy(self.policy, e, self.names)
            if scheme is None or scheme.activations is None or not (scheme.integer or e.op is dot_product_attention):
                equations.append(e)
                continue
            if _tabulated(e) and scheme.activations != dtypes.int16:
                equations.append(e)
                continue
            inner = stage(lambda *xs, e=e: [_pieces(e, *xs)], [a.type for a in e.inputs], e.op.name)
            renamed: dict[Var, Atom] = dict(zip(inner.inputs, e.inputs, strict=True))
            whole = self.names[e.outputs[0]]
            name_results(inner.equations, f"{whole}/", self.names)
            consts.extend(inner.constvars)
            values.extend(inner.values)
            for i in inner.equations:
                inputs = tuple(renamed.get(a, a) if isinstance(a, Var) else a for a in i.inputs)
                # The user's line and scope are those of the composite.
                equations.append(Equation(i.op, inputs, i.outputs, i.params, e.source, e.scope))
            result = inner.outputs[0]
            env[e.outputs[0]] = renamed.get(result, result) if isinstance(result, Var) else result
        return Program(p.inputs, equations, [atom(a) for a in p.outputs], consts, values, p.name)


def in_pieces(e: Equation) -> bool:
    """Whether integer arithmetic knows an op by its pieces only; an op that a program defined may say so itself."""
    if e.op in PIECES:
        x = e.inputs[0].type
        return x.dtype == dtypes.float32 and 0 < x.shape[e.params["axis"]] <= LONGEST
    if e.op in WIDE:
        return e.inputs[0].type.dtype == dtypes.float32 and e.params.get("y", 1) > 0
    return e.op in EXPANDED or e.op.quantized == "expand" or _tabulated(e)


def _tabulated(e: Equation) -> bool:
    """Whether an op with pieces is a table all the same, of 8 bits: of 16, no device has one."""
    return (
        e.op is hard_swish
        or e.op in WIDE
        or (isinstance(e.op, CustomOp) and e.op.quantized == "table" and not e.op.numpy)
    )


def _pieces(e: Equation, *xs: Array) -> Array:
    """What ``e`` computes, in the ops that integer arithmetic knows."""
    return (PIECES | WIDE).get(e.op, e.op.expand)(*xs, **e.params)


def running_sum(x: Array, axis: int, reverse: bool) -> Array:
    """cumsum as a product with a triangle of ones: rounded once, and every NPU multiplies matrices."""
    n, rest = x.shape[axis], [i for i in range(x.ndim) if i != axis]
    place = lambda d: iota(dtype=dtypes.int32, shape=(n, n), dimension=d)
    first, last = (place(1), place(0)) if reverse else (place(0), place(1))
    ones = convert_element_type(le(first, last), dtype=x.dtype)
    y = dot_general(x, ones, dimension_numbers=(((axis,), (0,)), ((), ())))
    order = [*rest, axis]
    return transpose(y, permutation=tuple(order.index(i) for i in range(x.ndim)))


# What has pieces here that are not its expansion.
PIECES: Final[dict[Op, Callable[..., Array]]] = {cumsum: running_sum}


def _power(x: Array, y: int) -> Array:
    """By products: the squares of ``x`` that ``y`` is a sum of."""
    odd, even = None, x
    while y > 1:
        odd = odd if y % 2 == 0 else even if odd is None else mul(odd, even)
        even, y = mul(even, even), y // 2
    return even if odd is None else mul(odd, even)


def _elu(x: Array) -> Array:
    return add(max(x, like(x, 0)), _expm1(min(x, like(x, 0))))


def _expm1(x: Array) -> Array:
    return sub(exp(x), like(x, 1))


def _log1p(x: Array) -> Array:
    return log(add(x, like(x, 1)))


def _softplus(x: Array) -> Array:
    return add(max(x, like(x, 0)), _log1p(exp(neg(abs(x)))))


# Tables of 8 bits, which chips have no kernels of 16 bits for: what such kernels make them of.
WIDE: Final[dict[Op, Callable[..., Array]]] = {
    elu: _elu, expm1: _expm1, log1p: _log1p, softplus: _softplus, integer_pow: _power,
}  # fmt: skip
