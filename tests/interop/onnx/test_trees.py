"""Ensembles of trees beside ONNX Runtime: comparisons, missing values, aggregates, classes, damaged files."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import NxError
from tests.interop.onnx.onnx_models import compare, made, one, onnx

ML = "ai.onnx.ml"
X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def forest(seed: int, kinds: Any, trees: int = 3, levels: int = 3) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Nodes of trees of different depths, and the leaves: (tree, node)."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    leaves: list[tuple[int, int]] = []
    for tree in range(trees):
        nodes: list[dict[str, Any]] = []

        def grown(level: int, tree: int = tree, nodes: Any = nodes) -> int:
            own = len(nodes)
            nodes.append({"treeids": tree, "nodeids": own, "modes": "LEAF", "featureids": 0, "values": 0.0})
            nodes[own] |= {"truenodeids": 0, "falsenodeids": 0, "missing_value_tracks_true": int(rng.integers(2))}
            if level == levels or (level and rng.random() < 0.2):
                leaves.append((tree, own))
                return own
            feature = int(rng.integers(3))
            nodes[own] |= {
                "modes": str(rng.choice(kinds)),
                "featureids": feature,
                "values": float(rng.choice(X[:, feature])),
            }
            nodes[own] |= {"truenodeids": grown(level + 1), "falsenodeids": grown(level + 1)}
            return own

        grown(0)
        rows += nodes
    return {f"nodes_{k}": [row[k] for row in rows] for k in rows[0]}, leaves


def weighted(leaves: list[tuple[int, int]], classes: Any, prefix: str, positive: bool = False) -> dict[str, Any]:
    entries = [(t, n, c) for t, n in leaves for c in classes]
    weights = np.random.default_rng(1).normal(size=len(entries)).astype(np.float32)
    part = {f"{prefix}_treeids": [t for t, _, _ in entries], f"{prefix}_nodeids": [n for _, n, _ in entries]}
    part |= {f"{prefix}_ids": [c for _, _, c in entries]}
    return part | {f"{prefix}_weights": (np.abs(weights) / 4 if positive else weights).tolist()}


@pytest.mark.parametrize("kinds", [MODES[:1], MODES[3:4], MODES])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressors(kinds: Any, aggregate: str):
    nodes, leaves = forest(3, kinds)
    x = X.copy()
    x[::5, 1] = np.nan
    for targets, more in ((1, {}), (2, {"base_values": [0.5, -1.0]})):
        attributes = {**nodes, **weighted(leaves, range(targets), "target"), "n_targets": targets, **more}
        compare("TreeEnsembleRegressor", {"x": x}, domain=ML, aggregate_function=aggregate, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classifiers(transform: str):
    nodes, leaves = forest(4, MODES[:1])
    for labels in ({"classlabels_int64s": [3, 1, 2]}, {"classlabels_strings": ["a", "b", "c"]}):
        more = {"base_values": [0.1, 0.2, 0.3], "post_transform": transform, **labels}
        compare(
            "TreeEnsembleClassifier", {"x": X}, 2, domain=ML, **nodes, **weighted(leaves, range(3), "class"), **more
        )
    two = {"classlabels_int64s": [3, 1], "post_transform": transform}
    for positive in (False, True):
        part = weighted(leaves, [0], "class", positive)
        if not (positive and transform != "NONE"):
            compare("TreeEnsembleClassifier", {"x": X}, 2, domain=ML, **nodes, **part, **two)
            compare("TreeEnsembleClassifier", {"x": X}, 2, domain=ML, **nodes, **part, **two, base_values=[0.25])


def test_a_tree_of_one_leaf_whole_numbers_and_jit():
    nodes, leaves = forest(0, MODES[:1], 1, 0)
    compare("TreeEnsembleRegressor", {"x": X}, domain=ML, n_targets=1, **nodes, **weighted(leaves, [0], "target"))
    nodes, leaves = forest(5, MODES[:1])
    given, labels = {"x": np.arange(-6, 6).reshape(4, 3)}, {"classlabels_int64s": [1, 2, 3]}
    compare("TreeEnsembleClassifier", given, 2, domain=ML, **nodes, **weighted(leaves, range(3), "class"), **labels)
    attributes = {"n_targets": 1, **nodes, **weighted(leaves, [0], "target")}
    f = nx.interop.from_onnx(one("TreeEnsembleRegressor", {"x": X}, domain=ML, **attributes), closed=True)
    np.testing.assert_array_equal(nx.jit(f)(X), f(X))
    np.testing.assert_array_equal(nx.vmap(f)(np.stack([X, 2 * X]))[1], f(2 * X))


@pytest.mark.parametrize("change", ["ring", "node", "feature", "target", "targets"])
def test_damaged_trees_are_errors(change: str):
    nodes, leaves = forest(6, MODES[:1])
    attributes = {"n_targets": 1, **nodes, **weighted(leaves, [0], "target")}
    if change == "ring":
        branch = next(i for i, t in enumerate(nodes["nodes_truenodeids"]) if i and t)
        attributes["nodes_truenodeids"][branch] = nodes["nodes_nodeids"][branch]
    elif change == "node":
        attributes["nodes_truenodeids"][0] = 99
    elif change == "feature":
        attributes["nodes_featureids"][0] = 99
    elif change == "target":
        attributes["target_ids"][0] = 5
    else:
        attributes["n_targets"] = 2**40
    data = one("TreeEnsembleRegressor", {"x": X}, domain=ML, **attributes)
    with pytest.raises(NxError):
        made(data, {"x": X})


def ensemble(seed: int, modes: Any, **more: Any) -> dict[str, Any]:
    """Trees as version 5 has them: two of three nodes and four leaves each."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, Any] = {"nodes_trueleafs": [0, 1, 1] * 2, "nodes_falseleafs": [0, 1, 1] * 2, "tree_roots": [0, 3]}
    nodes |= {"nodes_truenodeids": [1, 0, 2, 4, 4, 6], "nodes_falsenodeids": [2, 1, 3, 5, 5, 7]}
    nodes |= {"nodes_featureids": [0, 1, 2, 2, 1, 0], "nodes_missing_value_tracks_true": [0, 1, 0, 1, 0, 1]}
    kinds = np.array(rng.choice(modes, 6), np.uint8)
    nodes["nodes_modes"] = onnx.numpy_helper.from_array(kinds)
    splits = rng.choice(X.reshape(-1), 6).astype(np.float32)
    nodes["nodes_splits"] = onnx.numpy_helper.from_array(splits)
    weights = rng.normal(size=8).astype(np.float32)
    nodes["leaf_weights"] = onnx.numpy_helper.from_array(weights)
    members = [v for i in np.nonzero(kinds == 6)[0] for v in (i % 3, -1, 2 - i % 5, np.nan)]
    if members:
        nodes["membership_values"] = onnx.numpy_helper.from_array(np.array(members, np.float32))
    return {"leaf_targetids": [0, 1, 0, 1, 1, 0, 1, 0], "n_targets": 2, **nodes, **more}


@pytest.mark.parametrize("modes", [[0], [2], range(6), [0, 6]])
@pytest.mark.parametrize("aggregate", [1, 2, 3])
def test_ensembles_of_version_5(modes: Any, aggregate: int):
    x = np.round(2 * X)  # ONNX Runtime has sets of whole numbers only
    x[::5, 1] = 0 if 6 in modes else np.nan
    attributes = ensemble(7, [*modes], aggregate_function=aggregate)
    compare("TreeEnsemble", {"x": x}, domain=ML, version=5, **attributes)


def test_transforms_of_version_5_have_the_standard_s_numbers():
    # ONNX Runtime 1.32 takes the number of SOFTMAX for LOGISTIC.
    plain, soft = (made(one("TreeEnsemble", {"x": X}, domain=ML, version=5, **a), {"x": X})[0].numpy() for a in (
        ensemble(1, [0]), ensemble(1, [0], post_transform=1),
    ))  # fmt: skip
    np.testing.assert_allclose(soft, np.exp(plain) / np.exp(plain).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes_truenodeids": [0, 0, 2, 4, 4, 6]},
        {"nodes_truenodeids": [1, 9, 2, 4, 4, 6]},
        {"nodes_featureids": [0, 1]},
        {"leaf_targetids": [7] * 8},
        {"tree_roots": [99]},
        {"aggregate_function": 9},
        {"n_targets": 2**40},
    ],
)
def test_damaged_ensembles_of_version_5_are_errors(change: Any):
    data = one("TreeEnsemble", {"x": X}, domain=ML, version=5, **ensemble(1, [0]) | change)
    with pytest.raises(NxError):
        made(data, {"x": X})
