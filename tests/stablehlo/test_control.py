"""Branches, loops and calls; loops of known length have gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import GradientError, ProgramError
from nxjax.interop import from_jax, from_stablehlo
from tests.stablehlo.modules import T, agree, floats, main, ops_of


@pytest.mark.parametrize("index", [-4, 0, 1, 2, 3, 100])
def test_case_out_of_range_is_the_last(index: int):
    text = main(
        f"""
        %0 = "stablehlo.case"(%arg0) ({{
          %1 = stablehlo.negate %arg1 : {T(3)}
          stablehlo.return %1 : {T(3)}
        }},{{
          %1 = stablehlo.sine %arg1 : {T(3)}
          stablehlo.return %1 : {T(3)}
        }},{{
          stablehlo.return %arg1 : {T(3)}
        }}) : (tensor<i32>) -> {T(3)}
        return %0 : {T(3)}""",
        ["tensor<i32>", T(3)],
        [T(3)],
    )
    agree(text, np.array(index, np.int32), floats(3))


@pytest.mark.parametrize("which", [True, False])
def test_if(which: bool):
    text = main(
        f"""
        %0:2 = "stablehlo.if"(%arg0) ({{
          %1 = stablehlo.sine %arg1 : {T(3)}
          stablehlo.return %1, %arg1 : {T(3)}, {T(3)}
        }},{{
          %1 = stablehlo.negate %arg1 : {T(3)}
          stablehlo.return %arg1, %1 : {T(3)}, {T(3)}
        }}) : (tensor<i1>) -> ({T(3)}, {T(3)})
        return %0#0, %0#1 : {T(3)}, {T(3)}""",
        ["tensor<i1>", T(3)],
        [T(3), T(3)],
    )
    agree(text, np.array(which), floats(3))


def loop(compare: str, start: str, limit: str, step: str) -> str:
    return main(
        f"""
        %c = stablehlo.constant dense<{start}> : tensor<i32>
        %e = stablehlo.constant dense<{limit}> : tensor<i32>
        %0:3 = stablehlo.while(%i = %c, %x = %arg0, %n = %e) : tensor<i32>, {T(3)}, tensor<i32>
        cond {{
          %1 = stablehlo.compare {compare} : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
        }} do {{
          %d = stablehlo.constant dense<{step}> : tensor<i32>
          %1 = stablehlo.add %d, %i : tensor<i32>
          %f = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
          %g = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> {T(3)}
          %2 = stablehlo.add %x, %g : {T(3)}
          %3 = stablehlo.sine %2 : {T(3)}
          stablehlo.return %1, %3, %n : tensor<i32>, {T(3)}, tensor<i32>
        }}
        return %0#1, %0#0 : {T(3)}, tensor<i32>""",
        [T(3)],
        [T(3), "tensor<i32>"],
    )


@pytest.mark.parametrize(
    ("compare", "start", "limit", "step", "counted"),
    [
        ("LT, %i, %n", "0", "5", "1", True),
        ("GE, %e, %i", "-2", "10", "3", True),
        ("GT, %e, %i", "4", "4", "1", True),
        ("NE, %i, %e", "0", "6", "2", True),
        ("LT, %i, %n", "9", "0", "1", True),
        ("GT, %i, %n", "9", "0", "-2", False),
    ],
)
def test_counted_loops_are_found(compare: str, start: str, limit: str, step: str, counted: bool):
    f = agree(loop(compare, start, limit, step), floats(3))
    assert ("while" in ops_of(f)) != counted
    if counted:
        assert nx.grad(lambda x: f(x)[0].sum())(nx.array(floats(3))).shape == (3,)
    else:
        with pytest.raises(GradientError):
            nx.grad(lambda x: f(x)[0].sum())(nx.array(floats(3)))


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_are_scans_again(reverse: bool):
    def rnn(w, xs, h):
        def step(h, x):
            h = jnp.tanh(x @ w + h)
            return h, (h, h.sum())

        return jax.lax.scan(step, h, xs, reverse=reverse)

    args = (floats(4, 3) * 0.5, floats(6, 4, seed=1), floats(3, seed=2))
    f = from_jax(rnn)
    h, (hs, sums) = f(*args)
    expected_h, (expected_hs, expected_sums) = rnn(*args)
    for y, z in ((h, expected_h), (hs, expected_hs), (sums, expected_sums)):
        np.testing.assert_allclose(y, z, 1e-5, 1e-6)
    (scan,) = [e for e in nx.make_jaxpr(f)(*args).equations[0].programs().__next__().equations if e.op.name == "scan"]
    # Rows of xs come in and rows of ys go out; the state is all that is carried beside the step's number.
    assert scan.params["num_carry"] == 2 and scan.params["reverse"] == reverse and len(scan.outputs) == 4

    def loss(function):
        return lambda w, xs, h: function(w, xs, h)[1][0].sum()

    ours = nx.grad(loss(f), argnums=(0, 1, 2))(*map(nx.array, args))
    theirs = jax.grad(loss(rnn), argnums=(0, 1, 2))(*args)
    for y, z in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(y, z, 1e-4, 1e-5)


def test_a_row_written_twice_stays_carried():
    def f(x):
        def body(i, y):
            return y.at[i].set(y.sum()).at[i].add(x[i])

        return jax.lax.fori_loop(0, 4, body, x)

    np.testing.assert_allclose(from_jax(f)(floats(4)), f(jnp.asarray(floats(4))), 1e-5)


def test_while_with_a_condition_on_data():
    def f(x):
        return jax.lax.while_loop(lambda c: c[0] < 50.0, lambda c: (c[0] * 1.5 + 1, c[1] + 1), (x, 0))

    y, n = from_jax(f)(np.float32(1.0))
    z, m = f(jnp.float32(1.0))
    assert int(n) == int(m) and np.isclose(float(y), float(z))
    xs = np.array([1, 40, 90], np.float32)
    np.testing.assert_array_equal(nx.vmap(from_jax(f))(xs)[1], jax.vmap(f)(xs)[1])


def test_a_function_is_one_program_however_often_it_is_called():
    @jax.jit
    def inner(x):
        for i in range(6):
            x = jnp.sin(x) * jnp.cos(x + i)
        return x

    def f(x):
        return inner(inner(x)) + inner(x)

    g = from_jax(f)
    np.testing.assert_allclose(g(floats(3)), f(floats(3)), 1e-5)
    (called,) = nx.make_jaxpr(g)(floats(3)).equations[0].programs()
    programs = {id(p) for e in called.equations for p in e.programs()}
    assert len(programs) == 1 and sum(e.op.name == "jit" for e in called.equations) == 3


def test_functions_that_call_themselves_are_refused():
    text = f"""
    func.func public @main(%x: {T()}) -> {T()} {{
      %0 = func.call @main(%x) : ({T()}) -> {T()}
      return %0 : {T()}
    }}"""
    with pytest.raises(ProgramError, match="calls itself"):
        from_stablehlo(text, trusted=True)
