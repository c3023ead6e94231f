"""What a function is called, says and takes survives the transforms: for `help`, ``?`` and completion."""

from __future__ import annotations

import functools
import inspect
import pickle

import pytest

import nxjax as nx


def model(x, y=2.0, *, scale: float = 1.0):
    """Documented."""
    return nx.sum(x * y * scale)


jitted = nx.jit(model)


class Layer:
    """A user's class with compiled methods."""

    def __init__(self, w):
        self.w = w

    @nx.jit
    def apply(self, x):
        """w x"""
        return self.w * x

    @functools.partial(nx.jit, static_argnums=0)
    def fixed(self, x, power=2):
        return self.w * x**power

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return isinstance(other, Layer) and self.w == other.w


nx.tree_util.register_pytree_node(Layer, lambda s: ((s.w,), None), lambda _, w: Layer(*w))


@pytest.mark.parametrize(
    "wrap",
    [
        nx.jit, nx.grad, nx.value_and_grad, nx.vmap, nx.checkpoint, nx.jacfwd, nx.jacrev, nx.hessian, nx.make_jaxpr,
        nx.custom_jvp, nx.custom_vjp, nx.named_call, functools.partial(nx.jit, static_argnames="scale"),
        nx.jit(donate_argnums=0), lambda f: nx.jit(nx.vmap(nx.grad(f))),
    ],
    ids=lambda w: getattr(w, "__name__", type(w).__name__).strip("<>"),
)  # fmt: skip
def test_a_wrapped_function_is_still_itself(wrap):
    wrapped = wrap(model)
    assert inspect.signature(wrapped) == inspect.signature(model)
    assert inspect.unwrap(wrapped) is model
    assert (wrapped.__name__, wrapped.__qualname__, wrapped.__module__) == ("model", "model", __name__)
    assert inspect.getdoc(wrapped) == "Documented."


def test_methods():
    layer = Layer(nx.array(3.0))
    for method, signature in ((layer.apply, "(x)"), (layer.fixed, "(x, power=2)")):
        assert str(inspect.signature(method)) == signature
        assert inspect.ismethod(method) and method.__self__ is layer
    assert layer.apply.__name__ == "apply" and inspect.getdoc(layer.apply) == "w x"
    assert float(layer.apply(2.0)) == 6.0 and float(layer.fixed(2.0, power=3)) == 24.0
    assert float(Layer.apply(layer, 2.0)) == 6.0
    assert float(nx.grad(layer.apply)(2.0)) == 3.0
    assert float(functools.partial(layer.fixed, power=1)(2.0)) == 6.0
    again = pickle.loads(pickle.dumps(layer.apply))
    assert float(again(2.0)) == 6.0


def test_a_jitted_function_of_a_module_pickles():
    again = pickle.loads(pickle.dumps(jitted))
    assert float(again(nx.ones(3), scale=2.0)) == 12.0


def test_completion_shows_what_a_jitted_function_has():
    assert {"lower", "trace", "eval_shape", "clear_cache"} <= set(dir(jitted))
    assert {"aval", "at", "sum", "astype", "T"} <= set(dir(nx.ones(2)))
