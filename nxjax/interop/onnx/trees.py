"""Rules of ensembles of decision trees, domain ``ai.onnx.ml``, before its version 5.

All rows go down all trees at once, one step of a loop for each level. Formulas: ONNX's operator definitions,
docs/Operators-ml.md of github.com/onnx/onnx. Results are constant between the thresholds: derivatives are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.onnx.classical import classical, named_labels, transformed
from nxjax.interop.onnx.shapes import sized
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
_COMPARISONS: Final = {
    "BRANCH_LEQ": jnp.less_equal,
    "BRANCH_LT": jnp.less,
    "BRANCH_GTE": jnp.greater_equal,
    "BRANCH_GT": jnp.greater,
    "BRANCH_EQ": jnp.equal,
    "BRANCH_NEQ": jnp.not_equal,
}
_LEAF: Final = "LEAF"


@final
@dataclass(frozen=True)
class _Trees:
    """The nodes of all trees; a leaf leads to itself.

    Attributes:
        places: of each node, by the numbers of its tree and of itself.
        depth: branches between a root and a leaf, at most.
    """

    modes: tuple[str, ...]
    features: NDArray
    thresholds: NDArray
    if_true: NDArray
    if_false: NDArray
    missing: NDArray
    roots: NDArray
    places: dict[tuple[int, int], int]
    depth: int

    def leaves(self, x: Any) -> Any:
        """The leaf in which each row ends, of each tree: int64 [batch, trees]."""
        kinds = sorted(set(self.modes) - {_LEAF})
        for kind in kinds:
            if kind not in _COMPARISONS:
                raise Refused("from_onnx: a tree with a comparison that nxjax does not know", got=kind)
        if self.features.size and not 0 <= self.features.min() <= self.features.max() < x.shape[1]:
            raise ValueError(f"a feature of {self.features.max()}, of {x.shape[1]}")
        codes = np.array([kinds.index(m) if m != _LEAF else -1 for m in self.modes])
        row = jnp.asarray

        def step(_: Any, at: Any) -> Any:
            value = jnp.take_along_axis(x, row(self.features)[at], axis=1)
            threshold = row(self.thresholds)[at]
            holds: Any = False
            for code, kind in enumerate(kinds):
                told = _COMPARISONS[kind](value, threshold)
                holds = told if len(kinds) == 1 else holds | ((row(codes)[at] == code) & told)
            holds = jnp.where(jnp.isnan(value), row(self.missing)[at], holds)
            return jnp.where(holds, row(self.if_true)[at], row(self.if_false)[at])

        start = jnp.broadcast_to(row(self.roots), (x.shape[0], len(self.roots)))
        return lax.fori_loop(0, self.depth, step, start) if self.depth else start


def _read(
    treeids: Sequence[int], nodeids: Sequence[int], modes: Sequence[str], features: Sequence[int], thresholds: Any,
    if_true: Sequence[int], if_false: Sequence[int], missing: Any,
) -> _Trees:  # fmt: skip
    places = {key: i for i, key in enumerate(zip(treeids, nodeids, strict=True))}
    count = len(places)
    branches = np.array([m != _LEAF for m in modes])
    ends = [
        np.array([places[t, n] if b else i for i, (b, t, n) in enumerate(zip(branches, treeids, after, strict=True))])
        for after in (if_true, if_false)
    ]
    roots = np.setdiff1d(np.arange(count), np.concatenate([e[branches] for e in ends]))
    level, depth = roots, 0
    while (inner := level[branches[level]]).size:
        level, depth = np.unique(np.concatenate([e[inner] for e in ends])), depth + 1
        if depth > count:
            raise ValueError("a tree that leads back to itself")
    held = np.asarray(thresholds)
    tracks = np.zeros(count, bool) if not missing else np.asarray(missing, bool)
    return _Trees(tuple(modes), np.asarray(features), held, ends[0], ends[1], tracks, roots, places, depth)


def _aggregated(
    x: Any, trees: _Trees, entries: Sequence[tuple[int, int, int, float]], targets: int, dtype: Any, function: str
) -> Any:
    """What the leaves of all trees give for each target: [batch, targets].

    Args:
        entries: tree, node, target and weight.
    """
    at = trees.leaves(x)
    total = np.zeros(sized((len(trees.places), targets)), dtype)
    there = np.zeros(total.shape, bool)
    for tree, node, target, weight in entries:
        total[trees.places[tree, node], target] += weight
        there[trees.places[tree, node], target] = True
    if function in ("SUM", "AVERAGE"):
        y = jnp.take(jnp.asarray(total), at, axis=0).sum(1)
        return y / len(trees.roots) if function == "AVERAGE" else y
    if function not in ("MIN", "MAX"):
        raise Refused("from_onnx: an aggregate_function that nxjax does not know", got=function)
    far = np.where(there, total, np.inf if function == "MIN" else -np.inf).astype(dtype)
    read = jnp.take(jnp.asarray(far), at, axis=0)
    return read.min(1) if function == "MIN" else read.max(1)


def _either(tensor: Any, floats: Any) -> Any:
    return tensor if tensor is not None else np.asarray(floats or (), np.float32)


@classical("TreeEnsembleRegressor")
def _regressor(
    x: Any, *, n_targets: int = 1, nodes_treeids: Any, nodes_nodeids: Any, nodes_modes: Any, nodes_featureids: Any,
    nodes_truenodeids: Any, nodes_falsenodeids: Any, target_treeids: Any, target_nodeids: Any, target_ids: Any,
    nodes_values: Any = None, nodes_values_as_tensor: Any = None, target_weights: Any = None,
    target_weights_as_tensor: Any = None, base_values: Any = None, base_values_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Any = None, nodes_hitrates: Any = None, nodes_hitrates_as_tensor: Any = None,
    aggregate_function: str = "SUM", post_transform: str = "NONE",
) -> Any:  # fmt: skip
    trees = _read(
        nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids, _either(nodes_values_as_tensor, nodes_values),
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true,
    )  # fmt: skip
    weights = _either(target_weights_as_tensor, target_weights)
    entries = list(zip(target_treeids, target_nodeids, target_ids, weights.tolist(), strict=True))
    wide = x if x.dtype in dtypes.FLOAT else x.astype(jnp.float32)
    y = _aggregated(wide, trees, entries, n_targets, weights.dtype, aggregate_function)
    base = _either(base_values_as_tensor, base_values)
    y = (y + jnp.asarray(base) if base.size else y).astype(jnp.float32)
    # One score alone is only ever transformed by PROBIT.
    return transformed(y, post_transform) if n_targets > 1 or post_transform == "PROBIT" else y


@classical("TreeEnsembleClassifier")
def _classifier(
    x: Any, *, nodes_treeids: Any, nodes_nodeids: Any, nodes_modes: Any, nodes_featureids: Any, nodes_truenodeids: Any,
    nodes_falsenodeids: Any, class_treeids: Any, class_nodeids: Any, class_ids: Any, nodes_values: Any = None,
    nodes_values_as_tensor: Any = None, class_weights: Any = None, class_weights_as_tensor: Any = None,
    base_values: Any = None, base_values_as_tensor: Any = None, nodes_missing_value_tracks_true: Any = None,
    nodes_hitrates: Any = None, nodes_hitrates_as_tensor: Any = None, classlabels_int64s: Any = (),
    classlabels_strings: Any = (), post_transform: str = "NONE",
) -> Any:  # fmt: skip
    trees = _read(
        nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids, _either(nodes_values_as_tensor, nodes_values),
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true,
    )  # fmt: skip
    weights = _either(class_weights_as_tensor, class_weights)
    classes = len(classlabels_int64s or classlabels_strings)
    entries = list(zip(class_treeids, class_nodeids, class_ids, weights.tolist(), strict=True))
    wide = x if x.dtype in dtypes.FLOAT else x.astype(jnp.float32)
    scores = _aggregated(wide, trees, entries, classes, weights.dtype, "SUM").astype(jnp.float32)
    base = _either(base_values_as_tensor, base_values).astype(np.float32)
    named = lambda index: named_labels(index, classlabels_int64s, classlabels_strings)
    if classes != 2 or len(set(class_ids)) > 1:
        scores = scores + jnp.asarray(base) if base.size else scores
        return named(jnp.argmax(scores, -1)), transformed(scores, post_transform)
    # Two classes of which one has scores: those of the second.
    score = scores.sum(1, keepdims=True) + (base[-1] if base.size else 0)
    if (weights >= 0).all() and (base >= 0).all():
        return named((score[:, 0] > 0.5).astype(jnp.int64)), jnp.concatenate([1 - score, score], 1)
    both = jnp.concatenate([-score, score], 1)
    # As in ONNX Runtime: of two such scores only the logistic function is taken.
    both = nn.sigmoid(both) if post_transform == "LOGISTIC" else both
    return named((score[:, 0] > 0).astype(jnp.int64)), both
