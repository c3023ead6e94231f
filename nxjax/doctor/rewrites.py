"""What may be written instead of ops that chips lack: the same function of other ops.

A rewrite is tried on request, and kept only if a target then takes more and the results stay: see `examine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

import nxjax.numpy as jnp
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.program import Equation, Program, Var, run
from nxjax.trace.scope import replaying
from nxjax.transforms.inline import Inliner, inlined

# The longest axis of which a running sum becomes a product, and the most elements that rounds of argmax choose.
_LONGEST: Final = 1024
_CHOSEN: Final = 8


@final
@dataclass(frozen=True)
class Rewrite:
    """Another way to compute an op.

    Attributes:
        says: what is written instead, for people.
        rule: a function of the op's operands and parameters.
        fits: whether it covers an equation.
    """

    says: str
    rule: Callable[..., Any]
    fits: Callable[[Equation], bool]


def _float(e: Equation) -> bool:
    return e.inputs[0].type.dtype in dtypes.FLOAT


def _erf(x: Any, **_: Any) -> Any:
    # The tanh form of GELU, solved for erf: within 4e-4. Beyond 2.5 it is 1, and cubes need a grid of their own range.
    z = math.sqrt(2) * jnp.clip(x, -2.5, 2.5)
    return jnp.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))


def _erfc(x: Any, **_: Any) -> Any:
    return 1.0 - _erf(x)


def _cumsum(x: Any, *, axis: int, reverse: bool = False) -> Any:
    n = x.shape[axis]
    ones = np.tril(np.ones((n, n), np.float32)) if reverse else np.triu(np.ones((n, n), np.float32))
    return jnp.moveaxis(jnp.moveaxis(x, axis, -1) @ jnp.asarray(ones, x.dtype), -1, axis)


def _top_k(x: Any, *, k: int, axis: int) -> Any:
    x = jnp.moveaxis(x, axis, -1)
    # Below all others, and still near enough to them for a grid.
    low = x.min(-1, keepdims=True) - 1.0
    values: list[Any] = []
    places: list[Any] = []
    for _ in range(k):
        place = jnp.argmax(x, -1)
        values.append(x.max(-1))
        places.append(place)
        x = jnp.where(jnp.arange(x.shape[-1]) == place[..., None], low, x)
    return tuple(jnp.moveaxis(jnp.stack(ys, -1), -1, axis) for ys in (values, places))


def _asinh(x: Any, **_: Any) -> Any:
    return jnp.sign(x) * jnp.log(jnp.abs(x) + jnp.sqrt(x * x + 1.0))


def _acosh(x: Any, **_: Any) -> Any:
    return jnp.log(x + jnp.sqrt(x * x - 1.0))


def _atanh(x: Any, **_: Any) -> Any:
    return 0.5 * (jnp.log(1.0 + x) - jnp.log(1.0 - x))


REWRITES: Final[Mapping[str, Rewrite]] = {
    "erf": Rewrite("tanh(sqrt(2/pi) (z + 0.044715 z^3)) with z = sqrt(2) x (within 2.5); 5e-4 off", _erf, _float),
    "erfc": Rewrite("1 - erf, and erf by tanh, within 5e-4", _erfc, _float),
    "cumsum": Rewrite(
        "a product with a triangle of ones",
        _cumsum,
        lambda e: _float(e) and e.inputs[0].type.shape[e.params["axis"]] <= _LONGEST,
    ),
    "top_k": Rewrite(
        "rounds of argmax, each without what was chosen", _top_k, lambda e: _float(e) and e.params["k"] <= _CHOSEN
    ),
    "asinh": Rewrite("sign(x) log(|x| + sqrt(x^2 + 1))", _asinh, _float),
    "acosh": Rewrite("log(x + sqrt(x^2 - 1))", _acosh, _float),
    "atanh": Rewrite("(log(1 + x) - log(1 - x)) / 2", _atanh, _float),
}


def possible(program: Program) -> dict[str, int]:
    """Ops that could be rewritten, and how often each occurs."""
    found: dict[str, int] = {}
    for e in program.equations:
        rewrite = REWRITES.get(e.op.name)
        if rewrite is not None and rewrite.fits(e):
            found[e.op.name] = found.get(e.op.name, 0) + 1
    return found


def rewritten(program: Program, ops: Collection[str]) -> Callable[..., Any]:
    """The function of ``program`` with these ops written otherwise."""

    def rule(flat: Inliner, e: Equation) -> Any:
        rewrite = REWRITES[e.op.name]
        return flat.expand(e, rewrite.rule) if rewrite.fits(e) else None

    made = inlined(Inliner(program, dict.fromkeys(ops, rule)).result())

    def fun(*xs: Any) -> Any:
        ys = run(made, [as_value(x, "doctor") for x in xs])
        return ys[0] if len(ys) == 1 else tuple(ys)

    fun.__name__ = program.name or "rewritten"
    return fun


def narrowed(program: Program) -> Callable[..., Any]:
    """The function of ``program`` with numbers of 32 bits in place of 64; integers beyond them are the outermost.

    >>> with nx.enable_x64():
    ...     wide = nx.make_jaxpr(lambda x: x.astype("int64") + 2**40)(jnp.int32(1))
    >>> narrowed(wide)(jnp.int32(0)).dtype.name
    'int32'
    """
    held = dict(zip(program.constvars, map(_narrow, program.values), strict=True))

    def fun(*xs: Any) -> Any:
        env: dict[Any, Any] = {**held, **dict(zip(program.inputs, (as_value(x, "doctor") for x in xs), strict=True))}
        value = lambda a: env[a] if isinstance(a, Var) else _narrow(a.value)
        for e in program.equations:
            params = {k: dtypes.canonical(v) if isinstance(v, np.dtype) else v for k, v in e.params.items()}
            with replaying(e.scope, e.source):
                ys = e.op(*(value(a) for a in e.inputs), **params)
            env.update(zip(e.outputs, ys if e.op.multi else (ys,), strict=True))
        ys = [value(a) for a in program.outputs]
        return ys[0] if len(ys) == 1 else tuple(ys)

    fun.__name__ = program.name or "narrowed"
    return fun


def _narrow(value: Any) -> Any:
    dtype = dtypes.canonical(value.dtype)
    if dtype == value.dtype:
        return value
    x = value.numpy()
    with np.errstate(over="ignore"):
        limits = np.iinfo(dtype) if dtype in dtypes.INTEGER else None
        return wrap((x if limits is None else np.clip(x, limits.min, limits.max)).astype(dtype))
