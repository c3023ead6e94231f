"""`cond` and `switch` against JAX; branches that are not taken; errors that name the difference."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import BranchTypeError, DtypeError, ParameterError, ShapeError
from tests.faces import close, ours, peer

X = np.array([0.2, 1.7, -0.4], np.float32)


def f(m: Any, x: Any, w: Any) -> Any:
    """Branches with residuals of different number and type, and one that ignores an operand."""
    return m.lax.switch(
        (x * 2).astype(int), [lambda y, v: m.np.sin(y) * v, lambda y, v: y * y * y, lambda y, v: v * w], x, w
    )


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_values_gradients_and_batches(axes: Any, executor: str) -> None:
    them = peer()
    args = [X if a == 0 else X[i] for i, a in enumerate(axes)]
    with config.using(executor=executor):
        for x in X:
            close(nx.jit(lambda x: f(ours, x, X[1]))(x), f(them, x, X[1]))
            close(
                nx.grad(lambda x, w: f(ours, x, w), (0, 1))(x, X[1]),
                jax.grad(lambda x, w: f(them, x, w), (0, 1))(x, X[1]),
            )
        close(nx.vmap(lambda x, w: f(ours, x, w), axes)(*args), jax.vmap(lambda x, w: f(them, x, w), axes)(*args))
        got = nx.vmap(nx.grad(lambda x, w: f(ours, x, w), (0, 1)), axes)(*args)
        close(got, jax.vmap(jax.grad(lambda x, w: f(them, x, w), (0, 1)), axes)(*args))
        got = nx.jit(nx.grad(lambda *a: nx.vmap(lambda x, w: f(ours, x, w), axes)(*a).sum(), (0, 1)))(*args)
        close(got, jax.grad(lambda *a: jax.vmap(lambda x, w: f(them, x, w), axes)(*a).sum(), (0, 1))(*args))
        twice = [np.stack([a, 2 * a]) if d == 0 else a for a, d in zip(args, axes, strict=True)]
        close(
            nx.vmap(nx.vmap(lambda x, w: f(ours, x, w), axes), axes)(*twice),
            jax.vmap(jax.vmap(lambda x, w: f(them, x, w), axes), axes)(*twice),
        )


def test_a_branch_that_is_not_taken_cannot_spoil_a_gradient() -> None:
    def safe_log(x: Any) -> Any:
        return nx.cond(x > 0, lambda y: nx.log(y), lambda y: 0.0 * y, x)

    x = np.array([-1.0, 0.0, 2.0], np.float32)
    expected = [0.0, 0.0, 0.5]
    assert nx.vmap(nx.grad(safe_log))(x).tolist() == expected
    # Here JAX gives NaN: its batched cond becomes a select.
    assert nx.grad(lambda x: nx.vmap(safe_log)(x).sum())(x).tolist() == expected
    assert nx.jit(nx.grad(lambda x: nx.vmap(safe_log)(x).sum()))(x).tolist() == expected


def test_only_the_chosen_branch_runs(executor: str) -> None:
    seen: list[str] = []

    def branch(name: str) -> Any:
        def run(x: Any) -> Any:
            nx.debug.callback(lambda _: seen.append(name), x)
            return x

        return run

    with config.using(executor=executor):
        for flag in (True, False, True):
            nx.jit(lambda p, x: nx.cond(p, branch("yes"), branch("no"), x))(flag, 1.0).block_until_ready()
    assert seen == ["yes", "no", "yes"]


def test_the_index_is_clamped() -> None:
    branches = [lambda x: x, lambda x: x * 10, lambda x: x * 100]
    assert [float(nx.switch(i, branches, 1.0)) for i in (-5, 0, 1, 2, 9)] == [1, 1, 10, 100, 100]
    assert float(nx.switch(np.uint8(200), branches, 1.0)) == 100
    # More branches than the index can name.
    many = [lambda x, i=i: x + i for i in range(300)]
    assert [int(nx.switch(nx.asarray(i, "uint4"), many, 1)) for i in (0, 14, 15)] == [1, 15, 16]
    assert [int(nx.switch(np.uint8(i), many, 1)) for i in (0, 254, 255)] == [1, 255, 256]
    with config.using(enable_x64=True):
        assert [int(nx.switch(np.uint64(i), many, 1)) for i in (299, 300, 2**32, 2**64 - 1)] == [300] * 4
    assert float(nx.switch(7, branches[:1], 1.0)) == 1


def test_numbers_as_predicates_old_operand_and_no_operands() -> None:
    assert float(nx.cond(2, lambda x: x, lambda x: -x, 3.0)) == 3.0
    assert float(nx.cond(0.0, lambda x: x, lambda x: -x, operand=3.0)) == -3.0
    assert nx.cond(True, lambda: 1, lambda: 2).dtype == nx.int32


def test_weak_results_yield() -> None:
    one = np.float32(1)
    got = nx.cond(True, lambda x: 0, lambda x: x, one)
    assert (got.dtype, float(got)) == (nx.float32, 0.0)
    expected = jax.lax.cond(True, lambda x: 0.0, lambda x: x, one)
    assert got.dtype == expected.dtype


def test_errors_name_the_difference() -> None:
    with pytest.raises(BranchTypeError, match=r"different types at result\['b'\](.|\n)*true_fun: f32\[2\]"):
        nx.cond(True, lambda x: {"a": x, "b": nx.zeros(2)}, lambda x: {"a": x, "b": x}, np.float32(1))
    with pytest.raises(BranchTypeError, match="differ in structure"):
        nx.switch(0, [lambda x: x, lambda x: (x, x)], 1.0)
    with pytest.raises(BranchTypeError, match="i32"):
        nx.cond(True, lambda x: x.astype("int32"), lambda x: x, np.float32(1))
    with pytest.raises(TypeError):
        nx.cond(True, lambda x: x.astype("int32"), lambda x: x, np.float32(1))
    with pytest.raises(ShapeError, match="pred must be a scalar"):
        nx.cond(np.array([True, False]), lambda: 1, lambda: 2)
    with pytest.raises(DtypeError, match="index must be an integer"):
        nx.switch(1.5, [lambda: 1, lambda: 2])
    with pytest.raises(ParameterError, match="two functions"):
        nx.cond(True, 1.0, 2.0)


@pytest.mark.parametrize("pair", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_two_signs_are_two_results(pair: Any) -> None:
    for f in (lambda p: nx.lax.cond(p, lambda: pair[0], lambda: pair[1]), lambda p: nx.lax.switch(1 - p.astype(int), [
        lambda: pair[0], lambda: pair[1]
    ])):  # fmt: skip
        for way in (f, nx.jit(f)):
            assert [bool(np.signbit(way(nx.numpy.asarray(p)))) for p in (True, False)] == [*map(np.signbit, pair)]


@pytest.mark.parametrize("how", [lambda f: f, nx.jit])
def test_elements_that_take_another_branch_add_nothing_to_what_all_share(how: Any) -> None:
    def logs(w: Any, x: Any) -> Any:
        return nx.vmap(lambda a: nx.cond(a > 0, lambda v, w: nx.log(v * w), lambda v, w: v + 0 * w, a, w))(x)

    gradient = how(nx.grad(lambda w, x: logs(w, x).sum(), (0, 1)))
    for x, by_w, by_x in [
        ([-1.0, 2.0, 0.0, -3.0], [1.0, 0.5], [2.0, 1.0, 2.0, 2.0]),
        ([-1.0, 0.0], [0.0, 0.0], [2.0, 2.0]),
    ]:
        found = gradient(nx.asarray([1.0, 2.0]), nx.asarray(x))
        close(found, (np.float32(by_w), np.float32(by_x)))
    # Of the second row no element takes the first branch: it has a gradient of its own before all are added.
    rows, w = np.float32([[-1, 2, 4], [0, 0, 0], [1, -1, 0]]), np.float32([1, 2])
    twice = how(nx.grad(lambda w: nx.vmap(lambda x: logs(w, x).sum())(rows).sum()))
    close(twice(w), np.float32([3, 1.5]))
    close(how(nx.jacfwd(lambda w: logs(w, rows[0]).sum(0)))(w), np.float32([[2, 0], [0, 1]]))


@pytest.mark.parametrize("how", [lambda f: f, nx.jit])
def test_elements_that_take_another_branch_add_nothing_to_derivatives_of_derivatives(how: Any) -> None:
    def logs(w: Any, x: Any) -> Any:
        return nx.vmap(lambda a: nx.cond(a > 0, lambda v, w: nx.log(v) * w, lambda v, w: v * w * w, a, w))(x).sum()

    below = np.float32([-1, -2])  # nobody takes the first branch, which has NaN
    pushed = lambda w: sum(nx.jvp(lambda x: logs(w, x), (below,), (below,)))
    assert float(how(nx.grad(pushed))(3.0)) == -36
    assert float(how(nx.grad(lambda w: nx.grad(lambda x: logs(w, x) ** 2)(below).sum()))(1.0)) == -48
    assert float(how(nx.grad(nx.grad(lambda w: logs(w, below))))(2.0)) == -6


def test_what_all_elements_share_is_not_repeated() -> None:
    def chosen(index: Any, x: Any, w: Any) -> Any:
        experts = [lambda v, w, i=i: nx.tanh(v @ w[i]) for i in range(3)]
        return nx.vmap(lambda i, v: nx.switch(i, experts, v, w))(index, x)

    index, x, w = np.int32([2, 0, 1, 0, 7]), np.ones((5, 4), np.float32), np.ones((3, 4, 4), np.float32)
    largest = x.size * 4  # of an element for each pair of numbers of an element of the batch
    for f in (chosen, nx.grad(lambda i, x, w: chosen(i, x, w).sum(), 2)):
        program = nx.make_jaxpr(f)(index, x, w)
        assert max(v.type.size for e in program.equations for v in e.outputs) < largest


@pytest.mark.parametrize("how", [lambda f: f, nx.jit])
def test_what_all_elements_share_is_transposed(how: Any) -> None:
    index, x, w = np.int32([0, 1, 1, 0]), np.arange(12, dtype=np.float32).reshape(4, 3), np.eye(3, dtype=np.float32) + 1
    branches = [lambda v, w: v * w[0], lambda v, w: v @ w]
    both = lambda x, w: nx.vmap(lambda i, v: nx.switch(i, branches, v, w))(index, x)
    twice = lambda x, w: nx.vmap(nx.vmap(lambda i, v: nx.switch(i, branches, v, w)))(index.reshape(2, 2), x)
    _, back = nx.vjp(both, x, w)
    by_x, by_w = back(x)
    close(how(lambda ct: nx.linear_transpose(lambda x: both(x, w), x)(ct)[0])(x), by_x)
    close(how(lambda ct: nx.linear_transpose(lambda w: both(x, w), w)(ct)[0])(x), by_w)
    rows = x.reshape(2, 2, 3)
    close(how(lambda ct: nx.linear_transpose(lambda w: twice(rows, w), w)(ct)[0])(rows), by_w)
    close(how(nx.grad(lambda w: (twice(rows, w) * rows).sum()))(w), by_w)


CHOICES = {
    "cond": lambda a: nx.cond(a > 0, lambda b: nx.sin(b) * b, lambda b: b * b, a),
    "switch": lambda a: nx.switch((a > 0).astype(int) + (a > 1), [nx.sin, nx.cos, lambda b: b**3], a),
    "of vectors": lambda a: nx.cond(a > 0, lambda b: b * a, lambda b: nx.cumsum(b), nx.stack([a, 2 * a])),
    "nested": lambda a: nx.cond(a > 0, lambda b: nx.cond(b > 1, nx.sin, nx.cos, b), lambda b: b * 3, a),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("jitted", [False, True])
def test_what_does_not_vary_in_an_outer_batch_stays_one(name, jitted):
    """A choice for each element of an inner batch: values do not vary with the directions of derivatives."""
    f, x = nx.vmap(CHOICES[name]), nx.asarray(np.array([0.5, -1.5, 2.0], np.float32))
    how = nx.jit if jitted else lambda g: g
    forward, backward = how(nx.jacfwd(f))(x), how(nx.jacrev(f))(x)
    np.testing.assert_allclose(forward, backward, rtol=1e-5, atol=1e-6)
    push = nx.vmap(lambda t: nx.jvp(f, (x,), (t,)), out_axes=(None, -1))
    y, columns = how(push)(nx.eye(3))
    np.testing.assert_allclose(y, f(x), rtol=1e-6)
    np.testing.assert_allclose(columns, forward, rtol=1e-5, atol=1e-6)


def test_each_result_of_a_choice_varies_by_itself():
    def of(y):
        return nx.vmap(lambda a: nx.cond(a > 0, lambda q: (q * y, q), lambda q: (q, q * 2), a))(nx.arange(3.0) - 1)

    products, others = nx.vmap(of, out_axes=(1, None))(nx.arange(4.0))
    np.testing.assert_array_equal(products, [[-1] * 4, [0] * 4, [0, 1, 2, 3]])
    np.testing.assert_array_equal(others, [-2, 0, 1])


@pytest.mark.parametrize("order", [0, 1])
def test_whether_a_result_is_weak_is_what_the_first_branch_says(order: int) -> None:
    def chosen(m: Any, p: Any) -> list[bool]:
        branches = [lambda: m.np.where(p, 1, -1), lambda: m.np.zeros((), "int32")]
        found = m.lax.cond(p, *branches[:: 1 - 2 * order])
        switched = m.lax.switch(p.astype("int32"), branches[:: 1 - 2 * order])
        return [found.weak_type, switched.weak_type]

    theirs, mine = (chosen(m, m.np.array(False)) for m in (peer(), ours))
    assert mine == theirs and theirs[0] != theirs[1]
