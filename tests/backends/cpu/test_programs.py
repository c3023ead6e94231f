"""Random programs give on the cpu what they give by their meaning in NumPy, under every transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from tests.backends.cpu.programs import FLOATS, Made, program

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 2e-2, "bfloat16": 1.5e-1}


def run(function: Any, args: Any, executor: str) -> list[np.ndarray[Any, Any]]:
    with nx.config.using(executor=executor, check=False), np.errstate(all="ignore"):
        return [np.asarray(y) for y in nx.tree.leaves(nx.jit(function)(*args))]


def compare(function: Any, args: Any, what: Made, exact: bool) -> None:
    got, expected = run(function, args, "cpu"), run(function, args, "reference")
    assert len(got) == len(expected)
    for i, (y, z) in enumerate(zip(got, expected, strict=True)):
        assert y.shape == z.shape and y.dtype == z.dtype, f"result {i}\n{what}"
        if exact or y.dtype.name not in FLOATS:
            if y.dtype.name in FLOATS:
                # Any NaN is as good as another.
                y, z = (np.where(a == a, a, np.zeros_like(a)).tobytes() + (a == a).tobytes() for a in (y, z))
                assert y == z, f"result {i}\n{what}"
            else:
                np.testing.assert_array_equal(y, z, err_msg=f"result {i}\n{what}")
            continue
        y, z = y.astype(np.float64), z.astype(np.float64)
        finite = z[np.isfinite(z)]
        scale = max(float(np.abs(finite).max(initial=0)), 1.0)
        # The coarsest type on the way says how close results are.
        text = f"{what} {expected[i].dtype.name}"
        tolerance = max(t for name, t in TOLERANCE.items() if name in text)
        np.testing.assert_allclose(y, z, rtol=tolerance, atol=tolerance * scale, err_msg=f"result {i}\n{what}")


@pytest.mark.parametrize("seed", range(0, 80, 10))
def test_exact_programs_have_the_same_bits(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, exact=True)
        compare(p, p.args, p, True)


@pytest.mark.parametrize("seed", range(1000, 1080, 10))
def test_programs_of_integers_are_exact_and_of_floats_close(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, smooth=bool(s % 2))
        compare(p, p.args, p, False)


@pytest.mark.parametrize("seed", range(2000, 2040, 10))
def test_batches(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, exact=True, steps=7, max_elements=600)
        size = s % 4  # 0 and 1 too
        args = [nx.stack([x, x[::-1] if x.ndim else x + x, x][:size]) if size else nx.stack([x])[:0] for x in p.args]
        compare(nx.vmap(p), args, p, True)


@pytest.mark.parametrize("seed", range(3000, 3040, 10))
def test_gradients(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, smooth=True, steps=7, max_elements=600)

        def loss(*xs: Any, p: Made = p) -> Any:
            return sum(nx.tanh(y.astype("float64")).sum() for y in p(*xs))

        compare(nx.value_and_grad(loss, tuple(range(len(p.args)))), p.args, p, False)


@pytest.mark.parametrize("seed", range(4000, 4040, 10))
def test_bodies_of_loops(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, exact=True, steps=6, max_elements=600)
        full = Made(p.args, p.steps, tuple(range(len(p.args) + len(p.steps))))
        shapes = [(v.shape, v.dtype) for v in nx.eval_shape(full, *p.args)]
        # Each argument is a carry, and becomes the last value of its type.
        carries = [max(j for j, t in enumerate(shapes) if t == shapes[i]) for i in range(len(p.args))]

        def loop(*xs: Any, full: Made = full, carries: Any = carries, s: int = s) -> Any:
            def body(c: Any, _: Any) -> Any:
                values = full(*c)
                return tuple(values[j] for j in carries), (values[-1], values[0])

            return nx.lax.scan(body, xs, None, length=s % 4, reverse=bool(s % 2))

        compare(loop, p.args, p, True)

        def until(n: Any, *xs: Any, full: Made = full, carries: Any = carries) -> Any:
            def body(c: Any) -> Any:
                values = full(*c[1])
                return c[0] + 1, tuple(values[j] for j in carries)

            return nx.lax.while_loop(lambda c: c[0] < n, body, (0, xs))

        compare(until, (nx.array(s % 3), *p.args), p, True)


@pytest.mark.parametrize("seed", range(5000, 5030, 10))
def test_choices(seed: int) -> None:
    for s in range(seed, seed + 10):
        p = program(s, exact=True, steps=6, max_elements=600)
        short = Made(p.args, p.steps, p.results)

        def choice(n: Any, *xs: Any, p: Made = short) -> Any:
            return nx.lax.switch(
                n, [p, lambda *v: p(*v)[::1], lambda *v: [-y if y.dtype != bool else ~y for y in p(*v)]], *xs
            )

        compare(choice, (nx.array(s % 4 - 1), *p.args), p, True)
