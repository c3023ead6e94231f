"""Named axes in scope: name -> size, bound by `vmap(..., axis_name=...)`. Knows no op or transform."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, final

from nxjax.errors import NxError

_axes: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("nxjax_axes", default=())

axes_in_scope = _axes.get


class UnboundAxisError(NxError, NameError):
    """A collective names an axis that no enclosing `vmap` binds."""


@final
class binding_axis:
    """``with binding_axis(name, size):`` makes the axis known to collectives."""

    __slots__ = ("name", "size", "token")
    token: Token[tuple[tuple[str, int], ...]]

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def __enter__(self) -> None:
        self.token = _axes.set((*_axes.get(), (self.name, self.size)))

    def __exit__(self, *exc: object) -> None:
        _axes.reset(self.token)


def axis_size(name: str) -> int:
    """Size of the innermost axis called ``name``."""
    for known, size in reversed(_axes.get()):
        if known == name:
            return size
    raise UnboundAxisError(
        f"axis_name: no axis {name!r} is in scope",
        got=", ".join(n for n, _ in _axes.get()) or "none",
        fix=f"call the function under nx.vmap(..., axis_name={name!r})",
    )


# --- the mesh axis that a vmapped dimension is cut along ---

_spmd: ContextVar[Any] = ContextVar("nxjax_spmd_axis", default=None)

# While a batching rule runs: `spmd_axis_name` of the `vmap` it runs for, or None.
spmd_axis = _spmd.get


@final
class batching_along:
    """``with batching_along(name):`` rules see ``name`` as `spmd_axis`."""

    __slots__ = ("name", "token")
    token: Token[Any]

    def __init__(self, name: Any) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.token = _spmd.set(self.name)

    def __exit__(self, *exc: object) -> None:
        _spmd.reset(self.token)
