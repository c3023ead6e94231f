"""Named axes in scope: name -> size, bound by `vmap(..., axis_name=...)` and `shard_map`. Knows no op or transform."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, final

from nxjax.errors import NxError
from nxjax.trace.core import AROUND

# Name, size, and for an axis of a mesh inside `shard_map`: which one, and whether it is checked what varies along it.
Bound = tuple[Any, int, Any, bool]
_axes: ContextVar[tuple[Bound, ...]] = ContextVar("nxjax_axes", default=())

axes_in_scope = _axes.get


class UnboundAxisError(NxError, NameError):
    """A collective names an axis that no enclosing `vmap` or `shard_map` binds."""


@final
class binding_axis:
    """``with binding_axis(name, size):`` makes the axis known to collectives."""

    __slots__ = ("bound", "token")
    token: Token[tuple[Bound, ...]]

    def __init__(self, name: Any, size: int, mesh: Any = None, checked: bool = False) -> None:
        self.bound = (name, size, mesh, checked)

    def __enter__(self) -> None:
        self.token = _axes.set((*_axes.get(), self.bound))

    def __exit__(self, *exc: object) -> None:
        _axes.reset(self.token)


def bound_axis(name: Any) -> Bound:
    """The innermost axis called ``name``."""
    for bound in reversed(_axes.get()):
        if bound[0] == name:
            return bound
    raise UnboundAxisError(
        f"axis_name: no axis {name!r} is in scope",
        got=", ".join(str(b[0]) for b in _axes.get()) or "none",
        fix=f"call the function under nx.vmap(..., axis_name={name!r}), or nx.shard_map over a mesh with this axis",
    )


def axis_size(name: Any) -> int:
    """Size of the innermost axis called ``name``."""
    return bound_axis(name)[1]


# --- the mesh axis that a vmapped dimension is cut along ---

_spmd: ContextVar[Any] = ContextVar("nxjax_spmd_axis", default=None)

AROUND.extend((_axes, _spmd))

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
