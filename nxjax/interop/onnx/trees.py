"""Rules of ensembles of decision trees, domain ``ai.onnx.ml``.

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
# What `TreeEnsemble` has numbers for, in order. The last comparison is with a set of values.
_MODES: Final = (*_COMPARISONS, "BRANCH_MEMBER")
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


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
    held = np.asarray(thresholds)
    tracks = np.zeros(count, bool) if not missing else np.asarray(missing, bool)
    depth = _depth(roots, branches, ends)
    return _Trees(tuple(modes), np.asarray(features), held, ends[0], ends[1], tracks, roots, places, depth)


def _depth(roots: NDArray, branches: NDArray, ends: Sequence[NDArray]) -> int:
    """Branches between a root and a leaf, at most."""
    level, depth = roots, 0
    while (inner := level[branches[level]]).size:
        level, depth = np.unique(np.concatenate([e[inner] for e in ends])), depth + 1
        if depth > len(branches):
            raise ValueError("a tree that leads back to itself")
    return depth


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
    y = read.min(1) if function == "MIN" else read.max(1)
    # As in ONNX Runtime: 0 for a target that no leaf has a weight for.
    return jnp.where(jnp.take(jnp.asarray(there), at, axis=0).any(1), y, 0)


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


@classical("TreeEnsemble")
def _ensemble(
    x: Any, *, nodes_featureids: Any, nodes_splits: Any, nodes_modes: Any, nodes_truenodeids: Any,
    nodes_falsenodeids: Any, nodes_trueleafs: Any, nodes_falseleafs: Any, tree_roots: Any, leaf_targetids: Any,
    leaf_weights: Any, n_targets: int = 1, nodes_missing_value_tracks_true: Any = None, nodes_hitrates: Any = None,
    membership_values: Any = None, aggregate_function: int = 1, post_transform: int = 0,
) -> Any:  # fmt: skip
    count, leaves = len(nodes_modes), len(leaf_targetids)
    missing = nodes_missing_value_tracks_true or (0,) * count
    # Leaves stand behind the nodes. One row of each: comparison, feature, threshold, missing, if true, if false.
    ends = [
        [_placed(to, bool(leaf), count, leaves) for to, leaf in zip(after, where, strict=True)]
        for after, where in ((nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs))
    ]
    names = [_MODES[m] for m in nodes_modes.tolist()]
    rows = [*zip(names, nodes_featureids, nodes_splits.tolist(), missing, *ends, strict=True)]
    rows += [(_LEAF, 0, 0.0, 0, count + i, count + i) for i in range(leaves)]
    _with_members(rows, membership_values)
    modes, features, thresholds, tracks, if_true, if_false = map(list, zip(*rows, strict=True))
    roots, branches = np.asarray(tree_roots), np.array([m != _LEAF for m in modes])
    after = np.asarray(if_true), np.asarray(if_false)
    trees = _Trees(
        tuple(modes), np.asarray(features), np.asarray(thresholds, nodes_splits.dtype), *after,
        np.asarray(tracks, bool), roots, {(0, i): i for i in range(len(rows))}, _depth(roots, branches, after),
    )  # fmt: skip
    entries = [(0, count + i, t, w) for i, (t, w) in enumerate(zip(leaf_targetids, leaf_weights.tolist(), strict=True))]
    y = _aggregated(x, trees, entries, n_targets, leaf_weights.dtype, _AGGREGATES[aggregate_function]).astype(x.dtype)
    kind = _TRANSFORMS[post_transform]
    return transformed(y, kind) if n_targets > 1 or kind == "PROBIT" else y


def _placed(to: int, leaf: bool, count: int, leaves: int) -> int:
    """The row of a node or a leaf."""
    if not 0 <= to < (leaves if leaf else count):
        raise ValueError(f"a branch to {'leaf' if leaf else 'node'} {to}")
    return count + to if leaf else to


def _with_members(rows: list[tuple[Any, ...]], values: Any) -> None:
    """Write a comparison with a set of values as one with each of them, one after the other."""
    flat = np.zeros(0) if values is None else np.asarray(values)
    sets = iter([part[~np.isnan(part)] for part in np.split(flat, np.nonzero(np.isnan(flat))[0])])
    for at, (mode, feature, _, missing, yes, no) in enumerate(list(rows)):
        if mode == "BRANCH_MEMBER":
            members = [*next(sets, np.zeros(0)).tolist()]
            if not members:
                raise ValueError("a comparison with a set of no values")
            chain = [at, *range(len(rows), len(rows) + len(members) - 1)]
            made = [
                ("BRANCH_EQ", feature, member, missing, yes, otherwise)
                for member, otherwise in zip(members, [*chain[1:], no], strict=True)
            ]
            rows[at] = made[0]
            rows += made[1:]
