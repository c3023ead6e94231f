"""Random programs for differential tests: any shapes, dtypes and chains of ops, made from a seed.

A program is recorded while it runs on arrays of the reference executor, so that every op is given operands that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nxjax as nx

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int8", "uint8", "int16", "uint32", "int64")
SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 13, 17, 33, 64, 67)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -3e-40, 3e38, 6e-8, 65504.0, 1.0)
Step = tuple[str, Callable[..., Any], tuple[int, ...]]


@dataclass(frozen=True)
class Made:
    """``steps`` on ``args``; calling it gives every value that was made, or those of ``results``."""

    args: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def __call__(self, *xs: Any) -> list[Any]:
        values = list(xs)
        for _, f, operands in self.steps:
            values.append(f(*(values[i] for i in operands)))
        return [values[i] for i in self.results]

    def __repr__(self) -> str:
        lines = [f"v{i} = {a.dtype.name}{list(a.shape)}" for i, a in enumerate(self.args)]
        lines += [
            f"v{len(self.args) + i} = {name}({', '.join(f'v{j}' for j in operands)})"
            for i, (name, _, operands) in enumerate(self.steps)
        ]
        return "\n".join([*lines, f"gives {self.results}"])


def array(rng: np.random.Generator, shape: Sequence[int], dtype: str, special: bool = False) -> Any:
    if dtype == "bool":
        return nx.array(rng.integers(0, 2, shape).astype(bool))
    if dtype in INTEGERS:
        low = 0 if dtype.startswith("u") else -20
        return nx.array(rng.integers(low, 21, shape).astype(dtype), dtype)
    data = np.asarray(rng.uniform(-2, 2, shape))
    if special:
        data = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), data)
    with np.errstate(all="ignore"):
        return nx.array(data.astype(nx.array(0, dtype).dtype), dtype)


def program(seed: int, *, exact: bool = False, smooth: bool = False, steps: int = 9, max_elements: int = 4000) -> Made:
    """A random program.

    Args:
        exact: only ops whose results have one right answer, bit for bit.
        smooth: only differentiable ops on one float dtype.
    """
    rng = np.random.default_rng(seed)
    dtypes = ("float32", "float64") if smooth else (*FLOATS[:1], *FLOATS, *INTEGERS[:2], *INTEGERS, "bool")
    shape = tuple(int(rng.choice(SIZES)) for _ in range(rng.integers(0, 4)))
    while np.prod(shape) > max_elements:
        shape = shape[1:]
    dtype = str(rng.choice(dtypes))
    special = exact and bool(rng.integers(2))
    args = [array(rng, shape, dtype, special) for _ in range(rng.integers(1, 3))]
    if not smooth and rng.integers(2):
        args.append(array(rng, shape, str(rng.choice(dtypes)), special))
    values: list[Any] = list(args)
    made: list[Step] = []
    with nx.config.using(executor="reference"), np.errstate(all="ignore"):
        for _ in range(steps):
            step = _step(rng, values, exact, smooth, max_elements)
            made.append(step)
            values.append(step[1](*(values[i] for i in step[2])))
    last = len(values) - 1
    results = {last, int(rng.integers(len(values))), max(len(args), last - 3)}
    return Made(tuple(args), tuple(made), tuple(sorted(results)))


def _step(rng: np.random.Generator, values: list[Any], exact: bool, smooth: bool, limit: int) -> Step:
    i = max(int(rng.integers(len(values))), int(rng.integers(len(values))))
    x = values[i]
    same = [j for j, v in enumerate(values) if v.shape == x.shape and v.dtype == x.dtype]
    kinds = [_moved, _moved, _pointwise, _pointwise, _pointwise, _reduced, _placed]
    if not exact:
        kinds.append(_product)
    if not smooth:
        kinds += [_converted, _compared]
    while True:
        found = kinds[rng.integers(len(kinds))](rng, values, i, same, exact, smooth, limit)
        if found is not None:
            return found


def _is_float(x: Any) -> bool:
    return x.dtype.name in FLOATS


_SMOOTH: dict[str, Callable[..., Any]] = {
    "tanh": nx.tanh,
    "sin": nx.sin,
    "logistic": nx.nn.sigmoid,
    "exp of tanh": lambda v: nx.exp(nx.tanh(v)),
    "log1p of square": lambda v: nx.log1p(nx.tanh(v) ** 2),
    "negative": lambda v: -v,
    "scaled": lambda v: v * 0.5 + 1,
    "rsqrt": lambda v: nx.lax.rsqrt(nx.tanh(v) ** 2 + 1),
    "halved": lambda v: v / 2,
}
_EXACT: dict[str, Callable[..., Any]] = {
    "negative": lambda v: -v,
    "abs": abs,
    "floor": nx.floor,
    "sqrt": lambda v: nx.sqrt(abs(v)),
    "scaled": lambda v: v * 0.75 + 1,
    "divided": lambda v: 1 / (abs(v) + 1),
    "sign": nx.sign,
    "halved": lambda v: v / 2,
    "plus zero": lambda v: v + 0.0,
    "times one": lambda v: 1 * v,
    "rounded": nx.round,
}
_PAIRS: dict[str, Callable[..., Any]] = {
    "add": nx.add,
    "sub": nx.subtract,
    "mul": lambda a, b: a * b,
    "max": nx.maximum,
    "min": nx.minimum,
}
_WHOLE: dict[str, Callable[..., Any]] = {
    "negative": lambda v: -v,
    "times": lambda v: v * 3,
    "not": lambda v: ~v,
    "abs": abs,
    "shifted": lambda v: v >> 1,
    "remainder": lambda v: v % 7,
    "quotient": lambda v: v // 3,
}
_BITS: dict[str, Callable[..., Any]] = {"and": nx.bitwise_and, "or": nx.bitwise_or, "xor": nx.bitwise_xor}


def _pick(rng: np.random.Generator, table: dict[str, Callable[..., Any]]) -> tuple[str, Callable[..., Any]]:
    name = list(table)[rng.integers(len(table))]
    return name, table[name]


def _pointwise(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step | None:
    x, j = values[i], same[rng.integers(len(same))]
    if x.dtype == np.bool_:
        name, f = _pick(rng, _BITS)
        return name, f, (i, j)
    if rng.integers(2):
        table = {**_PAIRS, **_BITS} if not _is_float(x) else _PAIRS
        if smooth:
            table = {k: _PAIRS[k] for k in ("add", "sub", "mul")}
        name, f = _pick(rng, table)
        return name, f, (i, j)
    name, f = _pick(rng, (_SMOOTH if not exact else _EXACT) if _is_float(x) else _WHOLE)
    return name, f, (i,)


def _converted(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step:
    x = values[i]
    to = str(rng.choice((*FLOATS, *INTEGERS)))
    if _is_float(x) and to in INTEGERS:
        # Out of range is nobody's promise.
        return f"to {to}", lambda v: nx.clip(nx.where(v == v, v, 0), 0, 100).astype(to), (i,)
    return f"to {to}", lambda v: v.astype(to), (i,)


def _compared(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step:
    j, k = (same[rng.integers(len(same))] for _ in range(2))
    if rng.integers(2):
        return "less", lambda a, b: a < b, (i, j)
    return "where", lambda a, b, c: nx.where(a >= b, b, c), (i, j, k)


def _moved(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step | None:
    x = values[i]
    kind = rng.integers(9)
    if kind == 0 and x.ndim:
        order = tuple(int(a) for a in rng.permutation(x.ndim))
        return f"transpose {order}", lambda v: nx.transpose(v, order), (i,)
    if kind == 1:
        return "flat", lambda v: v.reshape(-1), (i,)
    if kind == 2 and x.ndim and x.shape[0]:
        a, b = sorted(int(n) for n in rng.integers(0, x.shape[0] + 1, 2))
        return f"[{a}:{b}]", lambda v: v[a:b], (i,)
    if kind == 3 and x.ndim:
        step = int(rng.integers(1, 4))
        return f"[..., ::-{step}]", lambda v: v[..., ::-step], (i,)
    if kind == 4 and x.ndim < 4:
        n = int(rng.choice((1, 2, 3)))
        if x.size * n <= limit:
            shape = (n, *x.shape)
            return f"broadcast to {shape}", lambda v: nx.broadcast_to(v, shape), (i,)
    if kind == 5 and x.ndim and x.size * 2 <= limit:
        j = same[rng.integers(len(same))]
        axis = int(rng.integers(x.ndim))
        return f"concatenate along {axis}", lambda a, b: nx.concatenate([a, b], axis), (i, j)
    if kind == 6 and 0 < x.ndim < 4:
        widths = [(int(a), int(b)) for a, b in rng.integers(0, 3, (x.ndim, 2))]
        if np.prod([n + a + b for n, (a, b) in zip(x.shape, widths, strict=True)]) <= limit:
            return f"pad {widths}", lambda v: nx.pad(v, widths), (i,)
    if kind == 7 and x.ndim and x.shape[-1] > 1:
        n = x.shape[-1]
        places = rng.integers(0, n, int(rng.integers(1, n + 1))).astype(np.int32)
        return "take", lambda v: nx.take(v, places, -1), (i,)
    if kind == 8 and x.ndim and x.shape[0]:
        at = int(rng.integers(x.shape[0]))
        j = same[rng.integers(len(same))]
        return f"row {at} put", lambda a, b: a.at[at].set(b[0]), (i, j)
    return None


def _reduced(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step | None:
    x = values[i]
    if not x.ndim or x.dtype == np.bool_:
        return None
    axes = tuple(int(a) for a in np.flatnonzero(rng.integers(0, 2, x.ndim)))
    keep = bool(rng.integers(2))
    kinds = [] if exact and _is_float(x) else ["sum"]
    if not smooth and all(x.shape[a] for a in axes):
        kinds += ["max", "min"]
    if smooth or not exact:
        kinds += ["mean"] if _is_float(x) and all(x.shape[a] for a in axes) else []
        if _is_float(x) and x.shape[-1]:
            kinds.append("softmax")
    if not kinds:
        return None
    kind = kinds[rng.integers(len(kinds))]
    if kind == "softmax":
        return "softmax", lambda v: nx.nn.softmax(v, -1), (i,)
    f = getattr(nx, kind)
    if kind == "sum":
        return f"sum over {axes}", lambda v: f(v, axis=axes, keepdims=keep).astype(v.dtype), (i,)
    return f"{kind} over {axes}", lambda v: f(v, axis=axes, keepdims=keep), (i,)


def _placed(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step | None:
    """Ops whose result at one place depends on more than one other place, or on an index that is a value."""
    x, j = values[i], same[rng.integers(len(same))]
    if not x.ndim or not x.size:
        return None
    axis, at = int(rng.integers(x.ndim)), int(rng.integers(x.shape[0]))
    sums = not (exact and _is_float(x)) and x.dtype != np.bool_
    kind = rng.integers(9)
    if kind == 0:
        return f"sort along {axis}", lambda v: nx.sort(v, axis), (i,)
    if kind == 1 and not smooth and x.dtype != np.bool_:
        return f"argmax along {axis}", lambda v: nx.argmax(v, axis), (i,)
    if kind == 2 and sums:
        return f"cumsum along {axis}", lambda v: nx.cumsum(v, axis).astype(v.dtype), (i,)
    if kind == 3:
        size = max(x.shape[0] // 2, 1)
        shape = (size, *x.shape[1:])
        start = lambda v: (nx.array(at) + (v.size > 5), *(0,) * (v.ndim - 1))
        return f"dynamic slice {shape}", lambda v: nx.lax.dynamic_slice(v, start(v), shape), (i,)
    if kind == 4:
        return f"dynamic update at {at}", lambda a, b: nx.lax.dynamic_update_slice_in_dim(a, b[:1], at - 1, 0), (i, j)
    if kind == 5 and sums:
        rows = rng.integers(-1, x.shape[0] + 1, x.shape[0]).astype(np.int32)
        return f"rows {rows.tolist()} added", lambda a, b: a.at[rows].add(b), (i, j)
    if kind == 6:
        n = int(rng.integers(-3, 4))
        return f"roll by {n} along {axis}", lambda v: nx.roll(v, n, axis), (i,)
    if kind == 7 and x.size * 2 <= limit and x.ndim < 4:
        return f"repeat along {axis}", lambda v: nx.repeat(v, 2, axis), (i,)
    if kind == 8 and x.dtype != np.bool_ and not smooth:
        return f"cummax along {axis}", lambda v: nx.lax.cummax(v, axis), (i,)
    return None


def _product(
    rng: np.random.Generator, values: list[Any], i: int, same: list[int], exact: bool, smooth: bool, limit: int
) -> Step | None:
    x, j = values[i], same[rng.integers(len(same))]
    if x.ndim != 2 or x.dtype == np.bool_ or x.shape[0] ** 2 > limit:
        return None
    if _is_float(x):
        return "a @ b.T", lambda a, b: nx.tanh(a) @ nx.tanh(b).T, (i, j)
    return "a @ b.T", lambda a, b: a @ b.T, (i, j)
