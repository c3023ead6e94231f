"""Binding inputs of a program to constants."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lower.npu.bind import bind
from nxjax.trace.evaluate import evaluate

W, X = np.full((2, 2), 3, np.float32), np.eye(2, dtype=np.float32)


def test_bound_inputs_become_constants():
    p = nx.make_jaxpr(lambda w, x, b: w @ x + b)(W, X, W)
    q = bind(p, {2: W, 0: nx.numpy.asarray(W)}).check()
    assert len(q.inputs) == 1
    np.testing.assert_array_equal(evaluate(q, [X])[0], evaluate(p, [W, X, W])[0])


@pytest.mark.parametrize(
    ("constants", "error"),
    [({3: W}, ParameterError), ({0: W[0]}, ShapeError), ({0: W.astype(np.int32)}, DtypeError)],
)
def test_what_does_not_fit_is_refused(constants, error):
    p = nx.make_jaxpr(lambda w, x, b: w @ x + b)(W, X, W)
    with pytest.raises(error, match="bind"):
        bind(p, constants)
