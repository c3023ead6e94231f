"""`jax.experimental.checkify`: run-time checks in traced functions, as values instead of exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError
from nxjax.ops import vocabulary as ops
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.trace.scope import current_source
from nxjax.trace.tree_nodes import register_pytree_node
from nxjax.trace.wrapping import wraps
from nxjax.transforms import checkify as _rules
from nxjax.transforms.checkify import CheckError as JaxRuntimeError
from nxjax.transforms.checkify import CheckSite, CheckState, DivisionByZeroError, FailedCheckError, NaNError, OOBError
from nxjax.transforms.checkify_walk import checked

ErrorCategory = type[JaxRuntimeError]

user_checks = frozenset((FailedCheckError,))
nan_checks = frozenset((NaNError,))
index_checks = frozenset((OOBError,))
div_checks = frozenset((DivisionByZeroError,))
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


@final
class Error:
    """The first failed check of a checkified function, if any. A pytree.

    >>> err, y = checkify(lambda x: x)(1.0)
    >>> print(err.get())
    None
    """

    def __init__(self, sites: tuple[CheckSite, ...], state: CheckState) -> None:
        self._sites = sites
        self._state = state

    def get(self) -> str | None:
        """The message of the first failed check, or None; with one line per element of a batch that failed.

        >>> err, _ = checkify(lambda x: check(x > 0, "{x} is not positive", x=x))(-1.0)
        >>> err.get()
        '-1.0 is not positive (`check` failed)'
        """
        found = self._errors()
        if not found:
            return None
        if not self._state.failed.ndim:
            return found[0][1].what
        return "\n".join(f"at mapped index {', '.join(map(str, i))}: {error.what}" for i, error in found)

    def throw(self) -> None:
        """Raise the failed check, if one did.

        Raises:
            JaxRuntimeError: of the kind of the check: `FailedCheckError`, `NaNError`, `OOBError`, ...
        """
        found = self._errors()
        if found and not self._state.failed.ndim:
            raise found[0][1]
        if found:
            raise type(found[0][1])(self.get() or "", source=found[0][1].source)

    def get_exception(self) -> JaxRuntimeError | None:
        """The failed check as an exception, not raised; the first one of a batch."""
        found = self._errors()
        return found[0][1] if found else None

    def _errors(self) -> list[tuple[tuple[int, ...], JaxRuntimeError]]:
        failed, codes = np.asarray(self._state.failed), np.asarray(self._state.code)
        found: list[tuple[tuple[int, ...], JaxRuntimeError]] = []
        for at in zip(*np.nonzero(failed), strict=True) if failed.ndim else [()] if failed else []:
            code = int(codes[at])
            payload = [x[at] for x in self._state.payload[code]]
            found.append((tuple(map(int, at)), self._sites[code].error(payload)))
        return found

    def __repr__(self) -> str:
        return "Error(traced)" if isinstance(self._state.failed, Tracer) else f"Error({self.get()})"


def _unflatten(sites: tuple[CheckSite, ...], children: Any) -> Error:
    return Error(sites, CheckState(*children))


register_pytree_node(Error, lambda e: (tuple(e._state), e._sites), _unflatten)

# Nothing has failed.
init_error = Error((), _rules.initial_state(()))


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Check that ``pred`` is true. In a function under `checkify` the failure is returned; elsewhere it is raised.

    Args:
        pred: bool scalar.
        msg: as for `str.format`, of ``fmt_args`` and ``fmt_kwargs``: pytrees of arrays.
        debug: does nothing without `checkify`, as `debug_check`.

    Raises:
        DtypeError: ``pred`` is not a bool scalar, or a value to format is not an array.
        FailedCheckError: it is false, outside `checkify`. (JAX refuses such a check under `jit`.)

    >>> check(True, "never")
    """
    ok = as_value(pred, "check")
    if ok.shape or ok.dtype != np.bool_:
        raise DtypeError("check: takes a bool scalar", got=ok.type, fix="jnp.all(condition)")
    leaves, in_def = tree.flatten((fmt_args, fmt_kwargs))
    for x in leaves:
        if not isinstance(x, (Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise DtypeError("check: what is formatted has to be arrays", got=f"{x!r} of type {type(x).__name__}")
    values = [as_value(x, "check") for x in leaves]
    site = CheckSite(FailedCheckError, msg, tuple(x.type.strong() for x in values), in_def, current_source())
    _emit(ok, values, site, debug)


def _emit(ok: Array, values: list[Array], site: CheckSite, debug: bool) -> None:
    _rules.check_op(ok, *values, callback=site, result_types=(), out_def=None, debug=debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """As `check`, but does nothing without `checkify`.

    >>> debug_check(False, "not looked at")
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise ``error`` if a check failed; under `checkify`, return it from the function.

    Raises:
        JaxRuntimeError: as `Error.throw`, outside `checkify`.
    """
    if not isinstance(error, Error):
        raise DtypeError("check_error: takes the Error of a checkified function", got=type(error).__name__)
    state, sites = error._state, error._sites
    if not isinstance(state.failed, Tracer):
        error.throw()
    if not sites:
        return
    values = [as_value(x, "check_error") for x in (state.code, *(x for p in state.payload for x in p))]
    failed = as_value(state.failed, "check_error")
    for _ in range(failed.ndim):  # of a batch, the first that failed
        failed, *values = _rules.first_failed_rows([failed, *values])
    site = CheckSite(FailedCheckError, "", tuple(x.type.strong() for x in values), None, None, sites)
    _emit(ops.not_(failed), values, site, False)


def checkify(f: Callable[..., Any], errors: frozenset[ErrorCategory] = user_checks) -> Callable[..., Any]:
    """``f`` with its first failed check as a value: a function that returns ``(err, result)``.

    Args:
        f: a function of pytrees of arrays; includes checks in inner `jit`, `vmap`, `grad`, loops and branches.
        errors: what is checked: `user_checks` (calls of `check`), `nan_checks`, `div_checks`, `index_checks`, and
            their unions `float_checks`, `automatic_checks`, `all_checks`.

    Returns:
        A function that you can jit, batch and differentiate like any other. Code after a failed check still runs.

    >>> def f(x, i):
    ...     check(x[i] > 0, "not positive: {}", x[i])
    ...     return jnp.log(x[i])
    >>> err, y = nx.jit(checkify(f, errors=all_checks))(jnp.array([1.0, -2.0]), 1)
    >>> err.get()
    'not positive: -2.0 (`check` failed)'
    >>> err, y = checkify(f, errors=index_checks)(jnp.array([1.0, -2.0]), 7)
    >>> err.get().strip()
    'out-of-bounds indexing for array of shape (2,): index 7 is out of bounds for axis 0 with size 2.'
    """
    wanted = frozenset(errors)

    @wraps(f)
    def checkified(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        sites, state, result = checked(f, args, kwargs, wanted)
        return Error(sites, state), result

    return checkified


__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error", "checkify",
    "debug_check", "div_checks", "float_checks", "index_checks", "init_error", "nan_checks", "user_checks",
]  # fmt: skip
