"""`checking_leaks` names the value, and who holds it; what nxjax keeps itself is no leak."""

import gc

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import LeakedTracerError
from nxjax.trace import leaks

KEPT = []


@pytest.fixture(autouse=True, scope="module")
def _seen():
    """Holders are found among all objects, also among those that no collection of garbage walks in these tests."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


class Holder:
    field = None


HOLDER = Holder()


def to_list(x):
    KEPT.append(x * 2)
    return x


def to_attribute(x):
    HOLDER.field = {"a": (x,)}
    return x


def in_closure(x):
    held = None

    def inner(y):
        nonlocal held
        held = y + 1
        return y

    return nx.jit(inner)(x), held


def test_leaks_name_their_holder():
    cases = {
        "global 'KEPT'": lambda: nx.jit(to_list)(1.0),
        "global 'HOLDER'": lambda: nx.grad(to_attribute)(1.0),
        "closure variable 'held'": lambda: in_closure(1.0),
        "[0]": lambda: nx.vmap(to_list)(jnp.ones(3)),
    }
    for holder, leak in cases.items():
        with pytest.raises(LeakedTracerError) as caught, nx.checking_leaks():
            leak()
        assert holder in str(caught.value), str(caught.value)
        KEPT.clear()
        HOLDER.field = None
    with pytest.raises(LeakedTracerError, match=r"made by mul at test_leaks\.py"), nx.check_tracer_leaks(True):
        nx.jit(to_list)(1.0)
    KEPT.clear()


def test_nested_functions_are_no_leak():
    def nested(x):
        f = nx.jit(lambda y: y * x)
        return nx.lax.scan(lambda c, _: (f(c), c), x, None, length=3)[0]

    with nx.checking_leaks():
        nx.jit(nx.grad(nested))(1.0)
        nx.vmap(nx.jit(nx.grad(nested)))(jnp.ones(3))


def test_objects_are_walked_only_where_a_trace_is_held(monkeypatch):
    walked = []
    alive = leaks._alive
    monkeypatch.setattr(leaks, "_alive", lambda trace: walked.append(trace) or alive(trace))
    with nx.checking_leaks():
        nx.jit(nx.vmap(nx.grad(jnp.sin)))(jnp.ones(3))
    assert not walked
    with nx.checking_leaks(), pytest.raises(LeakedTracerError):
        nx.jit(to_list)(1.0)
    KEPT.clear()
    assert walked
