"""Operators with graphs, of StableHLO, of boxes and random numbers, against LiteRT's kernels."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import LoweringError
from tests.interop.tflite.tflite_files import G, Operator, T, agree, const, imported, one, written

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(0)


def f32(*shape: int) -> Any:
    return T(shape), RNG.normal(size=shape).astype(np.float32)


def scalars(kind: str, dtype: str = "float32") -> G:
    a, b, c = T((), dtype), T((), dtype), T((), dtype)
    return G([a, b], [c], [Operator(kind, [a, b], [c])]) if kind else G([a, b], [b], [])


@pytest.mark.parametrize("kind", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"])
def test_arithmetic_of_stablehlo(kind: str):
    data, xs = one(f"STABLEHLO_{kind}", [f32(3, 4), f32(3, 4)], T((3, 4)))
    agree(data, xs)


def test_pad_of_stablehlo():
    options = {"edge_padding_low": [1, -1], "edge_padding_high": [0, 2], "interior_padding": [1, 0]}
    data, xs = one("STABLEHLO_PAD", [f32(3, 4), const(np.float32(7))], T((6, 5)), **options)
    agree(data, xs)


def test_gather_of_stablehlo():
    index = T((2, 2, 2), "int64"), np.int64([[[0, 0], [1, 0]], [[2, 1], [0, 1]]])
    options = {
        "offset_dims": [2, 3], "collapsed_slice_dims": [0], "start_index_map": [1, 0], "index_vector_dim": 2,
        "slice_sizes": [1, 2, 2],
    }  # fmt: skip
    data, xs = one("STABLEHLO_GATHER", [f32(3, 4, 2), index], T((2, 2, 2, 2)), **options)
    agree(data, xs)


@pytest.mark.parametrize("kind", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY", ""])
def test_scatter_of_stablehlo(kind: str):
    x, index, updates, y = T((3, 4)), T((2, 1), "int64"), T((2, 4)), T((3, 4))
    options = {
        "update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1, "update_computation_subgraph_index": 1,
    }  # fmt: skip
    main = G([x, index, updates], [y], [Operator("STABLEHLO_SCATTER", [x, index, updates], [y], options)])
    data = written(main, scalars(kind))
    call = [f32(3, 4)[1], np.int64([[2], [0]]), f32(2, 4)[1]]
    if kind:
        agree(data, call)
    else:
        got = imported(data, call)[0][0]
        np.testing.assert_array_equal(got[[2, 0]], call[2])


@pytest.mark.parametrize("kind", ["STABLEHLO_ADD", "STABLEHLO_MAXIMUM"])
def test_windows_of_stablehlo(kind: str):
    x, y = T((5, 6)), T((3, 4))
    options = {
        "window_dimensions": [3, 2], "window_strides": [2, 2], "base_dilations": [1, 1], "window_dilations": [1, 1],
        "padding": [1, 1, 1, 1], "body_subgraph_index": 1,
    }  # fmt: skip
    start = const(np.float32(0 if kind == "STABLEHLO_ADD" else -9))
    main = G([x], [y], [Operator("STABLEHLO_REDUCE_WINDOW", [x, start], [y], options)])
    agree(written(main, scalars(kind)), [f32(5, 6)[1]])


def test_composites_are_their_bodies():
    x, y = T((3,)), T((3,))
    a, b = T((3,)), T((3,))
    options = {"name": "my.exp", "decomposition_subgraph_index": 1, "composite_attributes": [0, 0, 36, 1]}
    data = written(
        G([x], [y], [Operator("STABLEHLO_COMPOSITE", [x], [y], options)]), G([a], [b], [Operator("EXP", [a], [b])])
    )
    agree(data, [f32(3)[1]])


@pytest.mark.parametrize("algorithm", [1, 2])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_random_bits(algorithm: int, dtype: str):
    state = T((2,), "uint64"), np.uint64([3, 5])
    outs = (T((2,), "uint64"), T((4, 3), dtype))
    data, xs = one("STABLEHLO_RNG_BIT_GENERATOR", [state], *outs, algorithm=algorithm)
    agree(data, xs)


def test_dilation_and_windows():
    data, xs = one("DILATE", [f32(3, 4), const(np.int32([2, 3])), const(np.float32(-1))], T((5, 10)))
    agree(data, xs)
    windows = [const(np.int64(v)) for v in ([2, 3], [1, 2], [1, 1])]
    for number, start in ((1, 0.0), (4, -9.0)):
        operands = [f32(4, 6), const(np.float32(start)), *windows]
        data, xs = one("REDUCE_WINDOW", operands, T((3, 2)), reduce_function=number)
        agree(data, xs)


@pytest.mark.parametrize("soft", [False, True])
def test_boxes(soft: bool):
    n, most = 30, 12
    corner = RNG.uniform(0, 1, (n, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(0.1, 0.4, (n, 2))], 1).astype(np.float32)
    scores = RNG.uniform(0, 1, n).astype(np.float32)
    numbers = [const(np.int32(most)), const(np.float32(0.3)), const(np.float32(0.2))]
    operands = [(T((n, 4)), boxes), (T((n,)), scores), *numbers]
    if soft:
        outs = (T((most,), "int32"), T((most,)), T((), "int32"))
        data, xs = one("NON_MAX_SUPPRESSION_V5", [*operands, const(np.float32(0.5))], *outs)
    else:
        data, xs = one("NON_MAX_SUPPRESSION_V4", operands, T((most,), "int32"), T((), "int32"))
    agree(data, xs)


def test_rows_by_key():
    keys, rows = const(np.int32([1, 4, 9])), const(RNG.normal(size=(3, 2)).astype(np.float32))
    data, xs = one("HASHTABLE_LOOKUP", [(T((4,), "int32"), np.int32([9, 2, 1, 1])), keys, rows], T((4, 2)),
                   T((4,), "uint8"))  # fmt: skip
    agree(data, xs)


def test_random_numbers_are_drawn():
    shape = const(np.int32([200, 50]))
    for kind, mean, deviation in (("RANDOM_STANDARD_NORMAL", 0, 1), ("RANDOM_UNIFORM", 0.5, 12**-0.5)):
        data, _ = one(kind, [shape], T((200, 50)), seed=3)
        (y,) = imported(data, [])[0]
        assert abs(y.mean() - mean) < 0.05 and abs(y.std() - deviation) < 0.05
    logits = T((1, 3)), np.log(np.float32([[0.2, 0.5, 0.3]]))
    data, xs = one("MULTINOMIAL", [logits, const(np.int32(5000))], T((1, 5000), "int64"), seed=3)
    (y,) = imported(data, xs)[0]
    np.testing.assert_allclose(np.bincount(y[0]) / 5000, [0.2, 0.5, 0.3], atol=0.03)


def test_a_sparse_weight_is_read_as_the_whole_array():
    from nxjax.interop.tflite.graph import _places

    dense = np.array([[1, 0, 0, 2], [0, 0, 0, 0], [3, 4, 0, 0]], np.float32)
    rows = {"format": 0, "dense_size": 3, "array_segments": None, "array_indices": None}
    columns = {
        "format": 1, "dense_size": 0, "array_segments": ("Int32Vector", {"values": np.int32([0, 2, 2, 4])}),
        "array_indices": ("Uint8Vector", {"values": np.uint8([0, 3, 0, 1])}),
    }  # fmt: skip
    sparsity = {"traversal_order": np.int32([0, 1]), "block_map": None, "dim_metadata": [rows, columns]}
    found = np.zeros((3, 4), np.float32)
    found.reshape(-1)[_places(4, (3, 4), sparsity, "w")] = [1, 2, 3, 4]
    np.testing.assert_array_equal(found, dense)
    with pytest.raises(nx.errors.InvalidFileError):
        _places(3, (3, 4), sparsity, "w")
    columns["array_segments"][1]["values"] = np.int32([1, 3, 3, 5])
    columns["array_indices"][1]["values"] = np.uint8([0, 3, 0, 1, 2])
    with pytest.raises(nx.errors.InvalidFileError):
        _places(4, (3, 4), sparsity, "w")


def test_texts_are_refused():
    data, _ = one("HASHTABLE", [], T((1,), object))
    with pytest.raises(LoweringError, match="tables of texts"):
        nx.interop.from_tflite(data)({})
