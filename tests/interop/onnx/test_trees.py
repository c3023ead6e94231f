"""Ensembles of trees beside ONNX Runtime: comparisons, missing values, aggregates, classes, damaged files."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import NxError
from tests.interop.onnx.onnx_models import compare, made, one

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
