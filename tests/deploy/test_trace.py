"""Functions with their parameters bound: which arguments are inputs, what they become, what results are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.deploy.trace import BoundFunction, converted, refuse_traced, stored_inputs
from nxjax.errors import DtypeError, ParameterError, TreeError
from nxjax.lower.npu.graph import Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

W, X = jnp.arange(6.0).reshape(3, 2), jnp.arange(12.0).reshape(4, 3)


def bound(fun, *args, constants=None, **kwargs):
    return BoundFunction(fun, args, kwargs, constants)


def test_trees_are_bound_and_leaves_are_inputs():
    made = bound(lambda p, x, q: x @ p["w"] + q[0], {"w": W}, X, (jnp.ones(2),))
    assert made.constants == {0, 2}
    assert [v.type.shape for v in made.program.inputs] == [(4, 3)]
    assert len(made.inputs) == 1 and (made.inputs[0] == np.asarray(X)).all()


def test_none_and_empty_trees_are_bound():
    assert bound(lambda a, x, b: x + 1, None, X, {}).constants == {0, 2}
    assert bound(lambda x: x, X).constants == frozenset()


def test_inputs_that_are_trees_are_flat_in_order():
    made = bound(lambda batch, p: (batch["a"] - batch["b"]) * p, {"b": X, "a": X + 1}, 2.0, constants=(1,))
    leaves = made.flat_inputs([{"a": X + 5, "b": X}], "run")
    assert [float(x[0, 0]) for x in leaves] == [5, 0]
    with pytest.raises(TreeError, match="run: argument 0"):
        made.flat_inputs([{"a": X}], "run")
    with pytest.raises(TreeError, match="run: argument 0"):
        made.flat_inputs([[X, X]], "run")


def test_parameters_may_come_along_if_they_are_those_that_are_bound():
    made = bound(lambda p, x: x @ p["w"], {"w": W}, X)
    assert len(made.flat_inputs([{"w": W}, X], "run")) == len(made.flat_inputs([X], "run")) == 1
    assert len(made.flat_inputs([{"w": np.asarray(W)}, X], "run")) == 1
    for changed in ({"w": W + 1}, {"w": W[:2]}, {}, {"w": W, "b": W}, {"v": W}, [W], W, {"w": W.astype("int32")}):
        with pytest.raises(ParameterError, match="differs from the parameters"):
            made.flat_inputs([changed, X], "run")


def test_nan_parameters_are_their_own_equals():
    p = {"w": W.at[0, 0].set(jnp.nan)}
    made = bound(lambda p, x: x @ p["w"], p, X)
    assert len(made.flat_inputs([{"w": np.array(p["w"])}, X], "run")) == 1


def test_results_have_the_functions_structure_and_dtypes():
    made = bound(lambda x: {"a": (x.sum(), x > 1), "b": [x.astype("float16")]}, X)
    outputs = [Tensor("s", (), "float32"), Tensor("m", (4, 3), "bool"), Tensor("h", (4, 3), "float32")]
    ones = np.ones((4, 3), np.float32)
    got = made.result(outputs, [np.float32(3), ones > 0, ones])
    assert got["a"][0].shape == () and got["a"][1].dtype == bool and got["b"][0].dtype == np.float16
    assert all(isinstance(x, nx.Array) for x in nx.tree.leaves(got))


def test_results_come_off_their_grids_and_are_copies():
    grid = Grid(np.dtype("int8"), 0.25, 3)
    stored = np.full((4, 3), 7, np.int8)
    made = bound(lambda x: x * 1, X)
    got = made.result([Tensor("y", (4, 3), "int8", grid)], [stored])
    stored[:] = 0
    assert (got == 1.0).all()
    plain = np.ones((4, 3), np.float32)
    got = made.result([Tensor("y", (4, 3), "float32")], [plain])
    plain[:] = 0
    assert (got == 1).all(), "a runtime's buffer is used again in its next run"


def test_inputs_go_onto_their_grids():
    grid = Grid(np.dtype("int8"), 0.5, -1)
    tensors = [Tensor("a", (3,), "int8", grid), Tensor("b", (2,), "int32")]
    a, b = stored_inputs(tensors, [np.float32([0, 1, 1e9]), np.array([1, 2])])
    assert a.dtype == np.int8 and a.tolist() == [-1, 1, 127]
    assert b.dtype == np.int32 and b.tolist() == [1, 2]


KINDS = {"bool": 0, **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"), 1)}
KINDS |= {**dict.fromkeys(("float16", "bfloat16", "float32", "float64"), 2), "complex64": 3}


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)), st.lists(st.integers(-300, 300), max_size=5))
def test_conversions_keep_the_kind_and_the_numbers(have, want, values):
    """Widening and rounding are conversions; cutting floats, wrapping integers and dropping parts are not."""
    x = np.array(values).astype(dtypes.as_dtype(have))
    wanted = dtypes.as_dtype(want)
    if KINDS[have] > KINDS[want]:
        with pytest.raises(DtypeError, match=r"it would lose by conversion(.|\n)*x\.astype"):
            converted(x, wanted, "it")
        return
    limits = np.iinfo(want) if KINDS[want] == 1 else None
    if limits is not None and any(not limits.min <= int(v) <= limits.max for v in x):
        with pytest.raises(ParameterError, match="outside of its range"):
            converted(x, wanted, "it")
        return
    y = converted(x, wanted, "it")
    assert y.dtype == wanted and np.array_equal(y.astype(np.complex128), x.astype(wanted).astype(np.complex128))


def test_keys_are_no_numbers():
    key = np.asarray(nx.random.key(0).numpy())
    with pytest.raises(DtypeError, match="lose by conversion"):
        converted(key, dtypes.float32, "it")


def test_traced_arguments_are_found_in_trees():
    refuse_traced([{"a": [X, None]}, 3], "run")
    with pytest.raises(ParameterError, match="run: an argument is being traced"):
        nx.jit(lambda x: refuse_traced([{"a": [x]}], "run"))(X)


def test_writable_arrays_may_change_afterwards():
    w, x = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)
    artifact = nx.compile(lambda p, x: x @ p["w"], target="tflite")({"w": w}, x)
    w[:] = 7
    assert (artifact.run(x) == 3).all()
    with pytest.raises(ParameterError, match="differs from the parameters"):
        artifact.run({"w": w}, x)
