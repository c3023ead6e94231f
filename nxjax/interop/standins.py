"""Modules of JAX that nxjax has not, as far as libraries import them: what is private to JAX, and rare public ones.

A row is a name below `jax` and what it means here. All else in these modules is refused. Knows no library by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn, final

import numpy as np
import optree

from nxjax.errors import TreeError
from nxjax.trace.core import EVAL, current_trace
from nxjax.trace.tree import broadcast_leaves
from nxjax.trace.tree_nodes import NAMESPACE

# A module -> the one of nxjax that has its names, or some of them.
_MODULES: Final = {
    "_src.checkify": "nxjax.experimental.checkify",
    "_src.core": "nxjax.core",
    "_src.interpreters.ad": "nxjax.interpreters.ad",
    "_src.dtypes": "nxjax.dtypes",
    "_src.flatten_util": "nxjax.flatten_util",
    "_src.tree_util": "nxjax.tree_util",
}
# Modules that are imported for what libraries rarely do: they are there, and their names are refused.
_EMPTY: Final = (
    "_src",
    "_src.compiler",
    "_src.distributed",
    "_src.interpreters",
    "_src.literals",
    "_src.state",
    "_src.xla_bridge",
    "experimental.array_serialization",
    "experimental.colocated_python",
    "experimental.colocated_python.func",
    "interpreters.pxla",
)


@final
class _Nothing:
    """A class that no value here is of: references to what changes in place, managers that a library may be given."""


class _Extended:
    """What libraries derive dtypes of their own from, and the kinds of these; no array here has one."""


@final
class _Nodes:
    """Which classes are nodes of trees."""

    def __contains__(self, kind: Any) -> bool:
        return optree.register_pytree_node.get(kind, namespace=NAMESPACE) is not None


@final
class _Process:
    """What the process knows of others: `jax.distributed`'s client is not nxjax's."""

    client = None

    @property
    def process_id(self) -> int:
        return importlib.import_module("nxjax.runtime").process_index()


def _flatten_one_level(x: Any) -> tuple[Any, Any]:
    children, aux, *_ = optree.tree_flatten_one_level(x, namespace=NAMESPACE)
    return children, aux


def _prefix_errors(prefix: Any, full: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Where ``prefix`` is no prefix of ``full``: from a name for it, the error that says so."""
    try:
        broadcast_leaves(prefix, full, "", is_leaf)
    except TreeError as error:
        place = str(error.got).removeprefix("at ")
        return [lambda name: ValueError(f"{name}{place}")]
    return []


def _refused(name: str) -> Callable[..., NoReturn]:
    """A function that may be imported, and not be called."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(_words(f"jax.{name}"))

    return refuse


_SERIALIZATION: Final = "experimental.array_serialization.serialization"
# A name -> its value.
_VALUES: Final[dict[str, Any]] = {
    "_src.core.trace_state_clean": lambda: current_trace() is EVAL,
    "_src.distributed.global_state": _Process(),
    "_src.dtypes.DType": np.dtype,
    "_src.dtypes.ExtendedDType": _Extended,
    "_src.dtypes.extended": _Extended,
    "_src.state.types.AbstractRef": _Nothing,
    # Errors name the user's line; frames are not taken out of tracebacks.
    "_src.traceback_util._exclude_paths": [],
    "_src.traceback_util.api_boundary": lambda fun, **_: fun,
    "_src.traceback_util.include_frame": lambda frame: True,
    "_src.tree_util._registry": _Nodes(),
    "_src.tree_util.flatten_one_level": _flatten_one_level,
    "_src.tree_util.prefix_errors": _prefix_errors,
    "extend.ifrt_programs.ifrt_programs": _Nothing,
    "experimental.colocated_python.serialization.DeviceList": _Nothing,
    f"{_SERIALIZATION}.GlobalAsyncCheckpointManager": _Nothing,
    f"{_SERIALIZATION}.GlobalAsyncCheckpointManagerBase": _Nothing,
    f"{_SERIALIZATION}.get_tensorstore_spec": _refused(f"{_SERIALIZATION}.get_tensorstore_spec"),
}


def _at(place: str) -> Callable[[], Any]:
    home, _, name = place.partition(":")
    return lambda: getattr(importlib.import_module(home), name)


# A name -> what gives its value, each time that it is asked for: chex asks whether there are devices already before it
# says how many there are to be.
_ASKED: Final[dict[str, Callable[[], Any]]] = {
    "_src.ad_util.stop_gradient_p": _at("nxjax.lax:stop_gradient_p"),
    "_src.dispatch.wait_for_tokens": _at("nxjax.runtime.introspect:effects_barrier"),
    "_src.interpreters.ad.CustomVJPException": _at("nxjax.errors:GradientError"),
    "_src.traceback_util.register_exclusion": _at("nxjax.errors:exclude_from_sources"),
    "lib.__version__": _at("nxjax.version:JAX"),
    "_src.xla_bridge._backends": lambda: importlib.import_module("nxjax.backends.xla.client").made_clients(),
}
_KNOWN: Final = {name.rpartition(".")[0] for name in (*_VALUES, *_ASKED)} | {*_EMPTY, *_MODULES}


def is_standin(name: str) -> bool:
    """Whether ``jax.<...>`` is a module of this kind, or one that is private to JAX."""
    short = name.removeprefix("jax.")
    return short in _KNOWN or short.startswith("_src")


def standins_in(package: str) -> list[str]:
    """The names of those right below ``jax.<...>``, a package that nxjax has."""
    short = package.removeprefix("jax.")
    return [] if short.startswith("_src") else [n.rpartition(".")[2] for n in _KNOWN if n.rpartition(".")[0] == short]


def standin(name: str) -> ModuleType:
    """The module ``jax.<...>`` as libraries may import it.

    Raises:
        ModuleNotFoundError: none of its names is here.
    """
    short = name.removeprefix("jax.")
    if short not in _KNOWN:
        raise ModuleNotFoundError(_words(name), name=name)
    module = ModuleType(name, "A module of JAX; here because libraries import it.")
    module.__path__ = []

    def get(attribute: str) -> Any:
        asked = f"{short}.{attribute}"
        if attribute.startswith("__") and asked not in _ASKED:
            raise AttributeError(attribute)
        if asked in _VALUES:
            return _VALUES[asked]
        if asked in _ASKED:
            return _ASKED[asked]()
        if asked in _KNOWN:
            return importlib.import_module(f"jax.{asked}")
        if short in _MODULES and hasattr(own := importlib.import_module(_MODULES[short]), attribute):
            return getattr(own, attribute)
        raise AttributeError(_words(f"{name}.{attribute}"))

    names: Any = vars(module)
    names["__getattr__"] = get
    return module


def _words(name: str) -> str:
    what = "is private to JAX" if name.startswith("jax._src") else "is not here"
    return f"{name} {what}: nxjax, which stands in its place, has the public API only"
