"""Names, docstrings and signatures that transforms take from functions, also from objects that have others."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.trace.wrapping import name_of, wraps


class Scale:
    """Twice."""

    __name__ = 3

    def __call__(self, x):
        return 2 * x


class Nameless(Scale):
    __name__ = __doc__ = __annotations__ = None


def custom(kind, f):
    function = kind(f)
    if kind is nx.custom_jvp:
        function.defjvps(lambda t, y, x: 2 * t)
    else:
        function.defvjp(lambda x: (f(x), None), lambda _, ct: (2 * ct,))
    return function


X = np.float32(1.5)
TRANSFORMS = {
    "jit": lambda f: nx.jit(f)(X),
    "vmap": lambda f: nx.vmap(f)(X[None])[0],
    "grad": lambda f: nx.grad(f)(X) * X,
    "value_and_grad": lambda f: nx.value_and_grad(f)(X)[0],
    "jacfwd": lambda f: nx.jacfwd(f)(X) * X,
    "jacrev": lambda f: nx.jacrev(f)(X) * X,
    "hessian": lambda f: nx.hessian(lambda x: f(x) * x)(X) * X / 2,
    "checkpoint": lambda f: nx.checkpoint(f)(X),
    "custom_jvp": lambda f: custom(nx.custom_jvp, f)(X),
    "custom_vjp": lambda f: custom(nx.custom_vjp, f)(X),
    "eval_shape": lambda f: 2 * X * (nx.eval_shape(f, X).shape == ()),
    "make_jaxpr": lambda f: 2 * X * bool(nx.make_jaxpr(f)(X).eqns),
    "scan": lambda f: nx.lax.scan(lambda c, x: (c, f(x)), 0, X[None])[1][0],
    "map": lambda f: nx.lax.map(f, X[None])[0],
    "fori_loop": lambda f: nx.lax.fori_loop(0, 1, lambda i, x: f(x), X),
    "cond": lambda f: nx.lax.cond(True, f, f, X),
    "linearize": lambda f: nx.linearize(f, X)[0],
    "checkify": lambda f: nx.experimental.checkify.checkify(f)(X)[1],
    "linear_transpose": lambda f: nx.linear_transpose(f, X)(X)[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", [Scale, Nameless])
def test_every_transform_takes_an_object_whose_name_is_no_text(name, kind):
    assert float(TRANSFORMS[name](kind())) == 3.0


def test_what_is_taken():
    def f(x, y=2):
        """Sum."""

    def g(*args):
        pass

    wrapped = wraps(f)(g)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__) == ("f", "Sum.", f)
    assert nx.custom_jvp(lambda x: x).__doc__ is None, "a class's own docstring is none of the function's"
    assert wraps(Scale())(lambda x: x).__name__ == "<lambda>" and name_of(Scale(), "body") == "body"
