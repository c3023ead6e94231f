"""`while_loop` and `fori_loop` against JAX; forward mode, batches whose elements stop apart, errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import CarryTypeError, DtypeError, GradientError, ParameterError, ShapeError
from tests.faces import close, ours, peer

X = np.array([0.5, 2.0, 30.0], np.float32)


def grow(m: Any, x: Any, factor: Any = 1.7) -> Any:
    return m.lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * factor, c[1] + m.np.sin(c[0])), (x, x * 0.0))


def test_values_tangents_and_batches(executor: str) -> None:
    them = peer()
    with config.using(executor=executor):
        close(grow(ours, X[0]), grow(them, X[0]))
        close(nx.jit(lambda x: grow(ours, x))(X[0]), grow(them, X[0]))
        close(nx.jvp(lambda x: grow(ours, x), (X[0],), (X[1],)), jax.jvp(lambda x: grow(them, x), (X[0],), (X[1],)))
        close(nx.vmap(lambda x: grow(ours, x))(X), jax.vmap(lambda x: grow(them, x))(X))
        factors = np.array([1.2, 1.5, 2.0], np.float32)
        close(
            nx.jit(nx.vmap(lambda x, f: grow(ours, x, f), (None, 0)))(X[0], factors),
            jax.vmap(lambda x, f: grow(them, x, f), (None, 0))(X[0], factors),
        )
        close(
            nx.vmap(lambda x: nx.jvp(lambda y: grow(ours, y)[1], (x,), (x,))[1])(X),
            jax.vmap(lambda x: jax.jvp(lambda y: grow(them, y)[1], (x,), (x,))[1])(X),
        )


def test_linearize_works_and_reverse_mode_says_what_to_do() -> None:
    def f(x: Any) -> Any:
        return grow(ours, x)[1]

    y, push = nx.linearize(f, X[0])
    close((y, push(X[1])), jax.jvp(lambda x: grow(peer(), x)[1], (X[0],), (X[1],)))
    with pytest.raises(GradientError, match=r"while has no reverse-mode derivative(.|\n)*fori_loop"):
        nx.grad(f)(X[0])


def test_fori_loop_with_known_bounds_has_a_gradient() -> None:
    def f(m: Any) -> Any:
        return lambda x: m.lax.fori_loop(1, 4, lambda i, c: m.np.sin(c) * i, x)

    close(nx.grad(f(ours))(X[0]), jax.grad(f(peer()))(X[0]))
    close(nx.jit(nx.grad(f(ours)))(X[0]), jax.grad(f(peer()))(X[0]))
    names = [e.op.name for e in nx.make_jaxpr(f(ours))(X[0]).equations]
    assert "scan" in names
    assert "while" not in names


def test_fori_loop_with_traced_bounds() -> None:
    def f(n: Any) -> Any:
        return nx.fori_loop(0, n, lambda i, c: c + i, 0)

    assert [int(nx.jit(f)(n)) for n in (0, 1, 5)] == [0, 0, 10]
    assert nx.vmap(f)(np.arange(4)).tolist() == [0, 0, 1, 3]
    assert int(nx.fori_loop(3, 0, lambda i, c: c + 1, 7)) == 7


def test_the_counter_is_weak_as_in_jax() -> None:
    x = nx.ones((), "bfloat16")
    assert nx.fori_loop(0, 3, lambda i, c: c * i, x).dtype == nx.bfloat16


def test_errors() -> None:
    with pytest.raises(CarryTypeError, match=r"carry\[1\] is f32\[2\] after a step"):
        nx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, nx.zeros(2)), (np.float32(0), np.float32(0)))
    with pytest.raises(DtypeError, match="must give a boolean"):
        nx.while_loop(lambda c: c, lambda c: c, 1.0)
    with pytest.raises(ShapeError, match="must give a scalar"):
        nx.while_loop(lambda c: c < 1, lambda c: c, np.zeros(2, np.float32))
    with pytest.raises(ParameterError, match="one boolean"):
        nx.while_loop(lambda c: (c < 1, c), lambda c: c, 1.0)
    with pytest.raises(DtypeError, match="bounds are integer"):
        nx.fori_loop(0, 2.5, lambda i, c: c, 1.0)
    with pytest.raises(ParameterError, match="unroll needs bounds"):
        nx.jit(lambda n: nx.fori_loop(0, n, lambda i, c: c, 1.0, unroll=4))(3)


def test_a_carry_that_every_step_hands_on_has_a_gradient() -> None:
    def both(m: Any) -> Any:
        def steps(c: Any) -> Any:
            return c[0] + 1, c[1], c[2] * m.lax.stop_gradient(c[1])

        def loop(x: Any) -> Any:
            _, y, z = m.lax.while_loop(lambda c: c[0] < 3, steps, (0, x * 2.0, 1.0))
            return y * z

        def counted(x: Any, n: Any) -> Any:
            return m.lax.fori_loop(0, n, lambda i, c: (c[0], c[1] + i), (x**3, 0))[0]

        slopes = m.grad(loop)(3.0), m.jit(m.grad(loop))(3.0), m.jit(m.grad(counted))(2.0, 4)
        return slopes, m.grad(m.grad(counted))(2.0, 4)

    close(both(nx), both(jax))


def test_what_the_condition_reads_and_what_a_jitted_body_hands_on_have_gradients() -> None:
    # JAX refuses these.
    loop = nx.lax.while_loop
    read = nx.grad(lambda x: loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1]), (0.0, x))[1] * 2)
    assert float(read(2.5)) == 2.0
    jitted = nx.grad(lambda x: loop(lambda c: c[0] < 3, nx.jit(lambda c: (c[0] + 1, c[1])), (0, x))[1] * 2)
    assert float(jitted(2.5)) == 2.0
    with pytest.raises(GradientError, match="no reverse-mode"):
        nx.grad(lambda x: loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[2], c[1]), (0, x, x))[1])(1.0)


@pytest.mark.parametrize("executor", ["cpu", "reference", "xla"])
def test_loops_that_only_hand_on(executor: str) -> None:
    lax = nx.lax
    with config.using(executor=executor):
        f = nx.jit(lambda x: lax.while_loop(lambda c: False, lambda c: c, {"a": x, "b": 2}))
        assert nx.tree.map(float, f(3.0)) == {"a": 3.0, "b": 2.0}
        g = nx.jit(lambda p, x: lax.cond(p, lambda a: a, lambda a: a, x))
        assert float(g(True, 3.0)) == 3.0
        h = nx.jit(lambda x: lax.scan(lambda c, y: (c, y), x, nx.arange(3.0)))
        carry, ys = h(3.0)
        assert (float(carry), ys.tolist()) == (3.0, [0.0, 1.0, 2.0])
        assert int(nx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 5))(4)) == 5


@pytest.mark.parametrize("wrapped", [lambda f: f, nx.jit], ids=["plain", "jit"])
def test_a_carry_whose_tangent_every_step_hands_on_has_a_gradient(wrapped):
    f = wrapped(lambda x: nx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1.0), (0, x))[1])
    assert nx.grad(lambda x: f(x) ** 2)(2.0) == 10.0
    assert nx.grad(nx.grad(lambda x: f(x) ** 3))(2.0) == 30.0


def calls_of(m: Any, read: str, transformed: str) -> tuple[list[float], list[float]]:
    """What a callback in the loop's body is called with: for the result, and then for the tangent."""
    seen: list[float] = []

    def loop(x: Any) -> Any:
        def body(c: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            i, known, y = c
            value = {"counter": i, "known carry": known, "carry": y, "const": x}[read]
            m.debug.callback(lambda v: seen.append(float(v)), value)
            return i + 1, known * 2, y * x

        return m.lax.while_loop(lambda c: c[0] < 2, body, (0, np.float32(1), x))[2]

    if transformed == "jvp":
        m.jvp(loop, (X[1],), (X[0],))
        return seen, []
    f = (lambda x: m.jvp(loop, (x,), (x,))[1]) if transformed == "linearize of jvp" else loop
    y, tangent = m.linearize(m.jit(f) if transformed == "linearize of jit" else f, X[1])
    m.block_until_ready(y)
    m.effects_barrier()
    first = seen.copy()
    tangent(X[0])
    m.effects_barrier()
    return first, seen[len(first) :]


@pytest.mark.parametrize("read", ["counter", "known carry", "carry", "const"])
@pytest.mark.parametrize("transformed", ["jvp", "linearize", "linearize of jit", "linearize of jvp"])
def test_a_callback_in_a_loop_is_called_as_often_as_in_jax(read: str, transformed: str) -> None:
    """Once a step. The tangent is a loop that finds the carries again, so its steps call it again."""
    found = calls_of(nx, read, transformed)
    assert len(found[0]) == 2 and len(found[1]) == 2 * (transformed != "jvp")
    assert found == calls_of(jax, read, transformed)
