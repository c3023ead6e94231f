"""Checks in programs: their sites, the op that raises, and the state that `checkify` threads through.

`checkify_walk` walks programs, and `checkify_checks` checks single equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.errors import NxError, Source
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.select import select_leading
from nxjax.trace import dtypes, tree
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.types import ArrayType
from nxjax.transforms.callback import HashableByKey, Sink


class CheckError(NxError, ValueError):
    """A check failed. The subclasses below are its kinds; `jax.experimental.checkify.JaxRuntimeError`."""


@final
class FailedCheckError(CheckError):
    """A condition of `checkify.check` is false."""


@final
class NaNError(CheckError):
    """An op made a NaN."""


@final
class DivisionByZeroError(CheckError):
    """A number was divided by zero."""


@final
class OOBError(CheckError):
    """An index is out of bounds."""


Category = type[CheckError]
Categories = frozenset[Category]


@final
class CheckSite(HashableByKey):
    """A place where a check may fail, and its message, which may show the arrays of the failure.

    ``among``: the sites of an error that is checked once more; the first array is the index of the one that failed.
    """

    def __init__(
        self,
        kind: Category,
        text: str,
        types: tuple[ArrayType, ...],
        in_def: Any = None,
        source: Source | None = None,
        among: tuple[CheckSite, ...] = (),
    ) -> None:
        super().__init__(repr(text), kind, text, types, in_def, among)
        self.kind = kind
        self.text = text
        self.types = types
        self.in_def = in_def
        self.source = source
        self.among = among

    def __hash__(self) -> int:
        return hash((self.kind, self.text))

    def chosen(self, payload: Arrays) -> tuple[CheckSite, Arrays]:
        """The site itself that failed, and its arrays."""
        if not self.among:
            return self, payload
        which, start = int(np.asarray(payload[0])), 1
        for site in self.among[:which]:
            start += len(site.types)
        found = self.among[which]
        return found.chosen(payload[start : start + len(found.types)])

    def message(self, payload: Arrays) -> str:
        site, values = self.chosen(payload)
        if site.in_def is None:
            return site.text.format(*values)
        args, kwargs = tree.unflatten(site.in_def, list(values))
        return f"{site.text.format(*args, **kwargs)} (`check` failed)"

    def error(self, payload: Arrays) -> CheckError:
        site, _ = self.chosen(payload)
        return site.kind(self.message(payload), source=site.source)

    def kinds(self) -> Categories:
        return frozenset[Category]().union(*(s.kinds() for s in self.among)) if self.among else frozenset((self.kind,))


@final
class Check(Sink):
    """Raises unless its first operand is true. `checkify` removes it from a program; elsewhere Python checks it.

    ``callback`` is the `CheckSite`. With ``debug`` it does nothing without `checkify`.
    """

    name = "check"

    def call(self, xs: Sequence[NDArray], *, callback: Any, debug: bool = False, **_: Any) -> tuple[NDArray, ...]:
        if not debug and not xs[0]:
            raise callback.error([wrap(x) for x in xs[1:]])
        return ()

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        if dims[0] is None and all(d is None for d in dims):
            return self(*args, **params), ()
        ok, *payload = [move_batch(x, d, size) for x, d in zip(args, dims, strict=True)]
        failed = ops.not_(ok)
        return self(ops.not_(ops.reduce_or(failed, axes=(0,))), *first_failed(failed, payload), **params), ()


check_op = Check()


def any_of(x: Array) -> Array:
    """Whether any element is true."""
    return ops.reduce_or(x, axes=tuple(range(x.ndim)))


def first_failed(failed: Array, payload: Arrays) -> list[Array]:
    """The rows of ``payload`` at the first place where ``failed`` is true."""
    if not payload:
        return []
    at = ops.argmax(ops.convert_element_type(failed, dtype=dtypes.int32), axes=(0,), index_dtype=dtypes.int32)
    zero = wrap(np.asarray(0, np.int32))
    return [
        ops.reshape(ops.dynamic_slice(x, at, *(zero,) * (x.ndim - 1), slice_sizes=(1, *x.shape[1:])), shape=x.shape[1:])
        for x in payload
    ]


def first_failed_rows(columns: Arrays) -> list[Array]:
    """Of columns of batches, whose first says what failed, the row in which something failed first."""
    failed = columns[0]
    inner = any_of(failed) if failed.ndim == 1 else ops.reduce_or(failed, axes=tuple(range(1, failed.ndim)))
    return first_failed(inner if inner.ndim else failed, columns)


# --- what happened so far ---


@final
class CheckState(NamedTuple):
    """Whether something failed, which site was first, and the arrays of each site."""

    failed: Array
    code: Array
    payload: tuple[tuple[Array, ...], ...]

    def noted(self, i: int, code: int, failed: Array, payload: Arrays) -> CheckState:
        """With site ``i``, whose code is ``code``, found ``failed`` unless an earlier one has."""
        new = ops.and_(failed, ops.not_(self.failed))
        kept = tuple(select_leading(new, old, x) for old, x in zip(self.payload[i], map(_plain, payload), strict=True))
        mine = wrap(np.asarray(code, np.int32))
        return CheckState(
            ops.or_(self.failed, failed),
            ops.select_n(new, self.code, mine),
            (*self.payload[:i], kept, *self.payload[i + 1 :]),
        )

    def then(self, later: CheckState) -> CheckState:
        """The state after ``later``, of the same sites, which counts unless something failed before."""
        new = ops.and_(later.failed, ops.not_(self.failed))
        rows = tuple(
            tuple(select_leading(new, old, x) for old, x in zip(*row, strict=True))
            for row in zip(self.payload, later.payload, strict=True)
        )
        return CheckState(ops.or_(self.failed, later.failed), select_leading(new, self.code, later.code), rows)

    def of_sites(self, start: int, count: int) -> CheckState:
        return CheckState(self.failed, self.code, self.payload[start : start + count])

    def joined(self, start: int, part: CheckState) -> CheckState:
        before, after = self.payload[:start], self.payload[start + len(part.payload) :]
        return CheckState(part.failed, part.code, (*before, *part.payload, *after))


def initial_state(sites: Sequence[CheckSite]) -> CheckState:
    """The state before anything was done."""
    zeros = tuple(tuple(wrap(np.zeros(t.shape, t.dtype)) for t in s.types) for s in sites)
    return CheckState(wrap(np.asarray(False)), wrap(np.asarray(0, np.int32)), zeros)


def _plain(x: Array) -> Array:
    """Without a derivative, and not weak."""
    return ops.stop_gradient(ops.convert_element_type(x, dtype=x.dtype, weak=False) if x.weak_type else x)
