"""Writes at known places: what they become, and that they mean and compile to the same."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import UnsupportedOpsError
from nxjax.trace.core import EVAL, use
from nxjax.trace.program import Var
from nxjax.transforms.slice_updates import use_slice_updates

R = np.random.default_rng(0)
X, U = R.normal(size=(1, 6, 5, 4)).astype(np.float32), R.normal(size=(1, 2, 5, 4)).astype(np.float32)
WRITES = {
    "a patch": (lambda y: y.at[:, 2:4, 1:3].set(0.0), "dynamic_update_slice"),
    "a row": (lambda y: y.at[:, 0].add(1.0), "add"),
    "the last row": (lambda y: y.at[:, -1].set(-2.0), "dynamic_update_slice"),
    "an element": (lambda y: y.at[0, 1, 2, 3].set(9.0), "dynamic_update_slice"),
    "a factor": (lambda y: y.at[:, 1:3].multiply(2.0), "mul"),
    "an array": (lambda y: y.at[:, 2:4].add(U), "add"),
    "a part of itself": (lambda y: y.at[:, 1:3].set(y[:, :2] * 0.5), "dynamic_update_slice"),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_same_in_float_on_grids_and_compiled(write):
    f, op = WRITES[write]
    program = nx.make_jaxpr(f)(X)
    other = use_slice_updates(program).check()
    assert not any(e.op.name.startswith("scatter") for e in other.equations)
    assert op in [e.op.name for e in other.equations] and all(e.source for e in other.equations)
    wanted = np.asarray(f(nx.asarray(X)))
    with use(EVAL):
        env = dict(zip((*other.constvars, *other.inputs), (*other.values, nx.asarray(X)), strict=True))
        for e in other.equations:
            (v,) = e.outputs
            env[v] = e.op(*(env[a] if isinstance(a, Var) else a.value for a in e.inputs), **e.params)
    assert (np.asarray(env[other.outputs[0]]) == wanted).all()
    g = lambda x: nx.nn.relu(f(x * 1.5))
    q = nx.quantize(g, "int8", calibrate=[(X,)])
    assert not q.plan(q.traced(X)).left
    for made in (g, q):
        artifact = nx.compile(made, target="tflite")(X)
        assert artifact.deviation.exact and (np.asarray(artifact.run(X)) == np.asarray(made(nx.asarray(X)))).all()
    assert nx.explain(q, target="ethos-u55")(X).share == 1


def test_what_is_not_one_known_place_stays():
    for f, args in (
        (lambda y: y.at[:, ::2].set(0.0), (X,)),
        (lambda y, i: y.at[:, i].set(0.0), (X, np.int32(1))),
        (lambda y: y.at[:, 1:3].max(0.0), (X,)),
        (lambda y: y.at[:, 9].set(0.0, mode="drop"), (X,)),
    ):
        program = nx.make_jaxpr(f)(*args)
        assert use_slice_updates(program) is program
    with pytest.raises(UnsupportedOpsError, match="computed places"):
        nx.compile(lambda y: y.at[:, ::2].set(0.0), target="tflite")(X)
