"""Rules of classical models, domain ``ai.onnx.ml``: scalers, encoders, linear models, support vector machines.

Formulas: ONNX's operator definitions, docs/Operators-ml.md of github.com/onnx/onnx. Probabilities of pairs of classes
are joined as in Wu, Lin and Weng, Journal of Machine Learning Research 5, 2004, algorithm 2, which libsvm has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, as_numpy
from nxjax.interop.onnx.shapes import needed
from nxjax.interop.onnx.walk import rule
from nxjax.scipy.special import ndtri
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]


def classical(*names: str) -> Any:
    """Decorator: `rule` in the domain of classical models."""
    return rule(*(f"ai.onnx.ml::{name}" for name in names))


def _floats(values: Any) -> Any:
    return jnp.asarray(np.asarray(values, np.float32))


def _float(x: Any) -> Any:
    return x if x.dtype == np.float32 else x.astype(jnp.float32)


# --- features ---


@classical("Scaler")
def _scaler(x: Any, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Any:
    return (_float(x) - _floats(offset)) * _floats(scale)


@classical("Normalizer")
def _normalizer(x: Any, *, norm: str = "MAX") -> Any:
    x = _float(x)
    size = jnp.abs(x)
    if norm == "MAX":
        # As in ONNX Runtime: the greatest element, not the greatest distance from 0.
        total = x.max(-1, keepdims=True)
    elif norm == "L1":
        total = size.sum(-1, keepdims=True)
    else:
        squares = (x * x).sum(-1, keepdims=True)
        total = jnp.sqrt(jnp.where(squares == 0, 1, squares))
    return x / jnp.where(total == 0, 1, total)


@classical("Imputer")
def _imputer(
    x: Any, *, imputed_value_floats: Any = None, imputed_value_int64s: Any = None, replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:  # fmt: skip
    if x.dtype in dtypes.FLOAT:
        missing = jnp.isnan(x) if np.isnan(replaced_value_float) else x == replaced_value_float
        values = imputed_value_floats
    else:
        missing, values = x == replaced_value_int64, imputed_value_int64s
    return jnp.where(missing, jnp.asarray(np.asarray(values, x.dtype)), x)


@classical("Binarizer")
def _binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).astype(x.dtype)


@classical("ArrayFeatureExtractor")
def _features(x: Any, index: Any) -> Any:
    index = index.reshape(-1)
    if isinstance(x, np.ndarray):
        return np.take(np.atleast_2d(x), as_numpy(index), -1)
    return jnp.take(x if x.ndim > 1 else x[None], index, axis=-1)


@classical("FeatureVectorizer")
def _vectorizer(*xs: Any, inputdimensions: Any) -> Any:
    parts: list[Any] = []
    for x, n in zip(xs, inputdimensions, strict=True):
        x = _float(x.reshape((x.shape[0], -1)))[:, :n]
        parts.append(jnp.pad(x, ((0, 0), (0, n - x.shape[1]))))
    return jnp.concatenate(parts, 1)


@classical("OneHotEncoder")
def _one_hot(x: Any, *, cats_int64s: Any = (), cats_strings: Any = (), zeros: int = 1) -> Any:
    if isinstance(x, np.ndarray):
        hot = jnp.asarray(x[..., None] == np.array(cats_strings, object))
    else:
        hot = x.astype(jnp.int64)[..., None] == jnp.asarray(np.array(cats_int64s, np.int64))
    # Without ``zeros``, other elements would be errors; here they are rows of zeros, too.
    return hot.astype(jnp.float32)


@classical("ZipMap")
def _zip_map(x: Any, **attributes: Any) -> Any:
    raise Refused(
        "from_onnx: ZipMap makes a list of dicts, and a function gives arrays",
        got=x.type,
        fix="""convert the model again with options={"zipmap": False}""",
    )


@classical("LabelEncoder")
def _labels(x: Any, **attributes: Any) -> Any:
    kind = next(k for k in attributes if k.startswith("values"))
    keys = np.asarray(next(v for k, v in attributes.items() if k.startswith("keys")))
    dtype = {"values_strings": object, "values_floats": np.float32, "values_int64s": np.int64}.get(kind)
    values = np.asarray(attributes[kind], dtype)
    default = next((v for k, v in attributes.items() if k.startswith("default")), None)
    if default is None:
        default = {"values_strings": "_Unused", "values_floats": -0.0, "values_int64s": -1}.get(kind, 0)
    default = np.asarray(default).reshape(-1)[0]
    if values.dtype == object or isinstance(x, np.ndarray):
        x = needed("LabelEncoder", x)[0]
        key = lambda v: "nan" if isinstance(v, float) and v != v else v
        table = {key(k): v for k, v in zip(keys.tolist()[::-1], values.tolist()[::-1], strict=True)}
        made = np.array([table.get(key(v), default) for v in x.reshape(-1).tolist()], values.dtype).reshape(x.shape)
        return made if made.dtype == object else jnp.asarray(made)
    # Of equal keys the first counts. NaN stands behind all other keys.
    keys, first = np.unique(keys.astype(x.dtype), return_index=True)
    at = jnp.minimum(jnp.searchsorted(jnp.asarray(keys), x), len(keys) - 1)
    found = jnp.take(jnp.asarray(keys), at)
    hit = (found == x) | ((found != found) & (x != x))
    return jnp.where(hit, jnp.take(jnp.asarray(values[first]), at), jnp.asarray(np.asarray(default, values.dtype)))


# --- linear models ---


def transformed(scores: Any, name: str) -> Any:
    """Scores [batch, classes] as what an operator's ``post_transform`` makes of them."""
    if name == "LOGISTIC":
        return nn.sigmoid(scores)
    if name == "SOFTMAX":
        return nn.softmax(scores, -1)
    if name == "SOFTMAX_ZERO":
        # Scores of 0 stay 0.
        zero = jnp.abs(scores) <= 1e-7
        powers = jnp.where(zero, scores, jnp.exp(scores - scores.max(-1, keepdims=True)))
        total = powers.sum(-1, keepdims=True)
        return jnp.where(total == 0, 0.5, powers / jnp.where(total == 0, 1, total))
    if name == "PROBIT":
        return ndtri(scores)
    if name not in ("NONE", ""):
        raise Refused("from_onnx: a post_transform that nxjax does not know", got=name)
    return scores


def named_labels(index: Any, ints: Any, strings: Any) -> Any:
    """The labels of classes by number."""
    if strings:
        return np.array(strings, object)[needed("a label", index)[0]]
    return jnp.take(jnp.asarray(np.array(ints, np.int64)), index)


@classical("LinearRegressor")
def _linear_regressor(
    x: Any, *, coefficients: Any, intercepts: Any = None, post_transform: str = "NONE", targets: int = 1
) -> Any:
    y = jnp.matmul(_float(x), _floats(coefficients).reshape((targets, -1)).T)
    y = y if intercepts is None else y + _floats(intercepts)
    return transformed(y, post_transform)


@classical("LinearClassifier")
def _linear_classifier(
    x: Any, *, coefficients: Any, classlabels_ints: Any = (), classlabels_strings: Any = (), intercepts: Any = None,
    multi_class: int = 0, post_transform: str = "NONE",
) -> Any:  # fmt: skip
    x = _float(x if x.ndim > 1 else x[None])
    scores = jnp.matmul(x, _floats(coefficients).reshape((-1, x.shape[1])).T)
    scores = scores if intercepts is None else scores + _floats(intercepts)
    if scores.shape[1] > 1:
        index = jnp.argmax(scores, -1)
        return named_labels(index, classlabels_ints, classlabels_strings), transformed(scores, post_transform)
    return _two_classes(scores, classlabels_ints, classlabels_strings, post_transform)


def _two_classes(score: Any, ints: Any, strings: Any, post_transform: str) -> Any:
    """Labels and scores of two classes of which only the second has a score [batch, 1], as ONNX Runtime gives them."""
    if post_transform == "PROBIT":
        raise Refused("from_onnx: LinearClassifier of one score with a PROBIT, which has no meaning", got=score.type)
    index = (score[:, 0] > 0).astype(jnp.int64)
    if len(strings or ints) != 2:
        return index, score
    if post_transform == "LOGISTIC":
        score = nn.sigmoid(score)
    return named_labels(index, ints, strings), jnp.concatenate([1 - score, score], 1)


# --- support vector machines ---


def _kernel(x: Any, vectors: NDArray, kind: str, params: Any) -> Any:
    """Products of ``x`` [batch, features] and support vectors [n, features] in the kernel's space: [batch, n]."""
    gamma, offset, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        return jnp.exp(-gamma * ((x[:, None] - _floats(vectors)) ** 2).sum(-1))
    product = jnp.matmul(x, _floats(vectors).T)
    if kind == "POLY":
        return (gamma * product + offset) ** degree
    return jnp.tanh(gamma * product + offset) if kind == "SIGMOID" else product


@classical("SVMRegressor")
def _svm_regressor(
    x: Any, *, coefficients: Any, kernel_params: Any = None, kernel_type: str = "LINEAR", n_supports: int = 0,
    one_class: int = 0, post_transform: str = "NONE", rho: Any = (0.0,), support_vectors: Any = (),
) -> Any:  # fmt: skip
    x = _float(x)
    if n_supports:
        products = _kernel(x, np.reshape(support_vectors, (n_supports, -1)), kernel_type, kernel_params)
    else:
        products = x
    y = jnp.matmul(products, _floats(coefficients)[:, None]) + _floats(rho[:1])
    return jnp.where(y > 0, 1.0, -1.0).astype(jnp.float32) if one_class else transformed(y, post_transform)


@classical("SVMClassifier")
def _svm_classifier(
    x: Any, *, coefficients: Any, classlabels_ints: Any = (), classlabels_strings: Any = (), kernel_params: Any = None,
    kernel_type: str = "LINEAR", post_transform: str = "NONE", prob_a: Any = (), prob_b: Any = (), rho: Any = (0.0,),
    support_vectors: Any = (), vectors_per_class: Any = (),
) -> Any:  # fmt: skip
    x = _float(x if x.ndim > 1 else x[None])
    named = lambda index: named_labels(index, classlabels_ints, classlabels_strings)
    classes = len(classlabels_ints or classlabels_strings)
    if not sum(vectors_per_class):
        weights = _floats(coefficients).reshape((classes, -1))
        scores = jnp.matmul(x, weights.T) + _floats(rho[:1])
        return named(jnp.argmax(scores, -1)), transformed(scores, post_transform)
    weights, firsts, seconds = _pairs(np.asarray(coefficients, np.float32), vectors_per_class)
    vectors = np.reshape(support_vectors, (sum(vectors_per_class), -1))
    scores = jnp.matmul(_kernel(x, vectors, kernel_type, kernel_params), _floats(weights)) + _floats(rho)
    won = (scores > 0).astype(jnp.float32)
    votes = jnp.matmul(won, _floats(firsts)) + jnp.matmul(1 - won, _floats(seconds))
    if prob_a:
        shares = nn.sigmoid(-(scores * _floats(prob_a) + _floats(prob_b)))
        scores = _joined(jnp.clip(shares, 1e-7, 1 - 1e-7), len(vectors_per_class))
    elif scores.shape[1] == 1:
        scores = jnp.concatenate([-scores, scores], 1)
    return named(jnp.argmax(votes, -1)), transformed(scores, post_transform)


def _pairs(coefficients: NDArray, counts: Any) -> tuple[NDArray, NDArray, NDArray]:
    """Of the deciders between two classes each: their weights [vectors, pairs], and which class is first and second."""
    classes, total = len(counts), sum(counts)
    held = coefficients.reshape((classes - 1, total))
    ends = np.cumsum([0, *counts])
    part = [slice(ends[i], ends[i + 1]) for i in range(classes)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        weights[part[i], p], weights[part[j], p] = held[j - 1, part[i]], held[i, part[j]]
    one = np.eye(classes, dtype=np.float32)
    return weights, one[[i for i, _ in pairs]], one[[j for _, j in pairs]]


def _joined(shares: Any, k: int) -> Any:
    """Probabilities of ``k`` classes from those that the first of two has, in each pair of them: [batch, pairs]."""
    first, second = np.triu_indices(k, 1)
    r = jnp.zeros((shares.shape[0], k, k), shares.dtype)
    r = r.at[:, first, second].set(shares).at[:, second, first].set(1 - shares)
    own = (r**2).sum(1)
    q = jnp.where(np.eye(k, dtype=bool), own[:, :, None], -r.swapaxes(1, 2) * r)

    def step(p: Any, _: Any) -> Any:
        qp = jnp.einsum("bij,bj->bi", q, p)
        total = (p * qp).sum(1)
        done = jnp.abs(qp - total[:, None]).max(1) < 0.005 / k
        new = p
        for t in range(k):
            more = (total - qp[:, t]) / own[:, t]
            new = new.at[:, t].add(more) / (1 + more)[:, None]
            total = (total + more * (more * own[:, t] + 2 * qp[:, t])) / (1 + more) ** 2
            qp = (qp + more[:, None] * q[:, t]) / (1 + more)[:, None]
        return jnp.where(done[:, None], p, new), None

    return lax.scan(step, jnp.full((shares.shape[0], k), 1 / k, shares.dtype), None, length=max(100, k))[0]
