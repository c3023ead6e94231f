"""Rules of strings. Strings are NumPy arrays of objects: never traced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.onnx.graph import invalid
from nxjax.interop.onnx.walk import rule


def _words(x: Any) -> Any:
    return np.asarray(x, object)


@rule("StringConcat")
def _concat(x: Any, y: Any) -> Any:
    return _words(_words(x) + _words(y))


@rule("StringSplit")
def _split(x: Any, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    most = -1 if maxsplit is None else maxsplit
    cut = [t.split(delimiter or None, most) if t else [] for t in x.reshape(-1)]
    width = max(map(len, cut), default=0)
    padded = np.array([[*row, *[""] * (width - len(row))] for row in cut], object)
    counts = np.array([len(row) for row in cut], np.int64).reshape(x.shape)
    return padded.reshape((*x.shape, width)), jnp.asarray(counts)


# Patterns come from files. Python's matcher may need exponential time for nested repeats.
_LONGEST = 1000


@rule("RegexFullMatch")
def _full_match(x: Any, *, pattern: str) -> Any:
    if len(pattern) > _LONGEST or re.search(r"[*+}][)]+[*+{]", pattern):
        raise invalid("a pattern that may take exponential time", pattern)
    compiled = re.compile(pattern)
    return jnp.asarray(np.array([compiled.fullmatch(t) is not None for t in x.reshape(-1)], bool).reshape(x.shape))


@rule("StringNormalizer")
def _normalizer(
    x: Any, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "", stopwords: Any = ()
) -> Any:
    fold = (lambda t: t) if is_case_sensitive else str.lower
    stops = {fold(t) for t in stopwords}
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, lambda t: t)
    rows = [[change(t) for t in row if fold(t) not in stops] for row in np.atleast_2d(x)]
    made = np.array([row or [""] for row in rows], object)
    return made[0] if x.ndim == 1 else made


@rule("TfIdfVectorizer", known=("x",))
def _tf_idf(
    x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Any,
    ngram_indexes: Any, pool_int64s: Any = None, pool_strings: Any = None, weights: Any = None,
) -> Any:  # fmt: skip
    pool = list(pool_int64s if pool_int64s is not None else pool_strings)
    grams: dict[tuple[Any, ...], int] = {}
    ends = [*ngram_counts[1:], len(pool)]
    for n, (first, last) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for i in range(first, last, n):
            grams[tuple(pool[i : i + n])] = len(grams)
    size = max(ngram_indexes) + 1

    def counted(row: Sequence[Any]) -> Any:
        y = np.zeros(size, np.float32)
        for n in range(min_gram_length, max_gram_length + 1):
            for skip in range(1, (max_skip_count if n > 1 else 0) + 2):
                for i in range(len(row) - (n - 1) * skip):
                    found = grams.get(tuple(row[i : i + n * skip : skip]))
                    if found is not None:
                        y[ngram_indexes[found]] += 1
        w = np.ones(size, np.float32)
        if weights is not None:
            w[list(ngram_indexes)] = weights
        return y if mode == "TF" else (y > 0) * w if mode == "IDF" else y * w

    made = [counted(row.tolist()) for row in np.atleast_2d(x)]
    return jnp.asarray(np.array(made, np.float32)[0] if x.ndim == 1 else np.array(made, np.float32))
