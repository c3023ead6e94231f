"""What the tests of quantized ops share: random grids, values on them, and the laws that every such op must satisfy.

Unlike `nxjax.testing.check_op`, everything here is compared bit for bit: integers have no tolerance.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nxjax as nx
from nxjax.ops.quant_grid import Grid
from nxjax.testing import executors
from nxjax.trace.core import EVAL, use
from nxjax.trace.stage import stage
from nxjax.trace.text import parse_program, to_text

I8, I16 = np.dtype("int8"), np.dtype("int16")


class Draw:
    """A seeded generator with the words of these tests."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed = seed

    def __repr__(self) -> str:
        return f"Draw({self.seed})"

    def choice(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def size(self, low: int = 1, high: int = 5) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        return tuple(self.size(1, 4) for _ in range(self.size(0, 3) if rank is None else rank))

    def scale(self, low: float = 1e-3, high: float = 10.0) -> float:
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def grid(self, dtype: Any = I8, low: float = 1e-3, high: float = 10.0) -> Grid:
        """Any scale; for int8 any zero point, its ends often."""
        if dtype == I16:
            return Grid(I16, self.scale(low / 256, high / 256))
        return Grid(I8, self.scale(low, high), self.choice(-128, 127, 0, self.size(-128, 127), self.size(-128, 127)))

    def limits(self, grid: Grid) -> dict[str, int]:
        """A clamp: none, or a random one."""
        low, high = grid.limits
        if self.choice(True, False):
            return {"lo": low, "hi": high}
        a, b = sorted(int(v) for v in self.rng.integers(low, high, 2, endpoint=True))
        return {"lo": a, "hi": b}

    def on(self, grid: Grid, shape: tuple[int, ...]) -> np.ndarray:
        """Values on the grid: uniform, small, or only its ends, so that sums saturate."""
        low, high = grid.limits
        kind = self.choice("uniform", "uniform", "small", "ends")
        if kind == "ends":
            q = self.rng.choice(np.array([low, high]), shape)
        elif kind == "small":
            q = np.clip(self.rng.integers(-9, 10, shape) + grid.zero_point, low, high)
        else:
            q = self.rng.integers(low, high, shape, endpoint=True)
        return grid.dequantize(np.asarray(q).astype(grid.dtype))

    def weights(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Weights and scales that differ along all dimensions but ``axes``; some weights are clipped."""
        w = self.rng.standard_normal(shape).astype(np.float32)
        rows = tuple(1 if i in axes else n for i, n in enumerate(shape))
        spread = np.exp(self.rng.uniform(-2, 1, rows))
        return w, (spread * np.float32(2 / 127)).astype(np.float32)

    def rounding(self) -> str:
        return self.choice("double", "single")


draws = st.integers(0, 2**32 - 1).map(Draw)


def same(got: Any, wanted: Any, what: str = "") -> None:
    """Equal type and equal bits; -0.0 is not 0.0."""
    a, b = np.asarray(got), np.asarray(wanted)
    assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.dtype}{a.shape} for {b.dtype}{b.shape}"
    wrong = np.flatnonzero(a.reshape(-1).view(f"u{a.itemsize}") != b.reshape(-1).view(f"u{b.itemsize}"))
    assert not wrong.size, (
        f"{what}: {wrong.size} of {a.size} differ, the first at {wrong[0]}: "
        f"{a.reshape(-1)[wrong[0]]!r} for {b.reshape(-1)[wrong[0]]!r}"
    )


def meanings(op: Any, args: list[np.ndarray], params: dict[str, Any]) -> np.ndarray:
    """eval, expand, and jit on every executor give one result; its text says the same program."""
    values = [nx.asarray(a) for a in args]
    y = np.asarray(op.eval(*args, **params))
    t = op.infer(*(v.type for v in values), **params)
    assert (t.shape, t.dtype) == (y.shape, y.dtype)
    same(op(*values, **params), y, f"{op.name} eager = eval")
    with use(EVAL):
        same(op.expand(*values, **params), y, f"{op.name} expand = eval")
    for name in executors():
        same(nx.jit(lambda *xs: op(*xs, **params), device=name)(*values), y, f"{op.name} jit on {name} = eval")
    program = stage(lambda *xs: [op(*xs, **params)], [v.type for v in values]).check()
    text = to_text(program)
    again = parse_program(text, program.values)
    assert to_text(again) == text
    same(again(*values)[0], y, f"{op.name} read from its text")
    return y


def loops(op: Any, rows: list[list[np.ndarray]], params: dict[str, Any], places: Any = None) -> None:
    """vmap over every combination of batched operands is a loop, with the batch in front, at the back and mixed.

    ``rows`` holds the operands of each element.
    """
    n = len(rows[0])
    for mask in itertools.product((False, True), repeat=n):
        if not any(mask):
            continue
        wanted = np.stack([
            op.eval(*(r[i] if m else rows[0][i] for i, m in enumerate(mask)), **params) for r in rows
        ])  # fmt: skip
        for place in places or ("front", "back", "mixed"):
            axes = tuple(
                None if not m else 0 if place == "front" or (place == "mixed" and i % 2) else rows[0][i].ndim
                for i, m in enumerate(mask)
            )
            stacked = [
                nx.asarray(rows[0][i] if a is None else np.stack([r[i] for r in rows], a)) for i, a in enumerate(axes)
            ]
            got = nx.vmap(lambda *xs: op(*xs, **params), in_axes=axes)(*stacked)
            same(got, wanted, f"{op.name} vmap over {axes}")


def straight_through(
    op: Any,
    args: list[np.ndarray],
    params: dict[str, Any],
    plain: Callable[..., Any],
    points: list[np.ndarray],
    kept: np.ndarray,
    rtol: float = 1e-5,
) -> None:
    """Forward and reverse derivatives are those of ``plain`` at ``points`` where ``kept``, and zero elsewhere.

    ``points`` are the leading operands of ``op`` that have derivatives.
    """
    r = np.random.default_rng(1)
    n = len(points)
    rest = [nx.asarray(a) for a in args[n:]]
    f = lambda *xs: op(*xs, *rest, **params)
    for mask in itertools.product((False, True), repeat=n):
        if not any(mask):
            continue
        ts = [r.standard_normal(a.shape).astype(np.float32) if m else np.zeros(a.shape, np.float32)
              for a, m in zip(points, mask, strict=True)]  # fmt: skip
        chosen = [i for i, m in enumerate(mask) if m]

        def at(g: Any, where: list[np.ndarray], chosen: list[int] = chosen) -> Any:
            def some(*xs: Any) -> Any:
                full = [nx.asarray(w) for w in where]
                for i, x in zip(chosen, xs, strict=True):
                    full[i] = x
                return g(*full)

            return some

        a = [nx.asarray(args[i]) for i in chosen]
        p = [nx.asarray(points[i]) for i in chosen]
        t = [nx.asarray(ts[i]) for i in chosen]
        y, got = nx.jvp(at(f, args[:n]), tuple(a), tuple(t))
        same(y, op.eval(*args, **params), f"{op.name} inside jvp")
        _, wanted = nx.jvp(at(plain, points), tuple(p), tuple(t))
        scale = 1 + np.abs(np.asarray(wanted)).max(initial=0)
        np.testing.assert_allclose(got.numpy(), np.where(kept, wanted.numpy(), 0), rtol, rtol * scale)
        ct = r.standard_normal(y.shape).astype(np.float32)
        _, pull = nx.vjp(at(f, args[:n]), *a)
        _, pull_plain = nx.vjp(at(plain, points), *p)
        for g, w in zip(pull(nx.asarray(ct)), pull_plain(nx.asarray(np.where(kept, ct, np.float32(0)))), strict=True):
            scale = 1 + np.abs(np.asarray(w)).max(initial=0)
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol, rtol * scale)


def unclamped(y: np.ndarray, grid: Grid, lo: int, hi: int) -> np.ndarray:
    """Where a result lies strictly within its clamp."""
    q = grid.quantize(y).astype(int)
    return (q > lo) & (q < hi)
