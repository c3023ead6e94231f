"""nxjax under the name `jax`: libraries that were written for JAX's public API run on nxjax's arrays.

A finder on `sys.meta_path` (put there by the package's ``__init__``) asks `spec` whenever something below `jax` is
imported while `sys.modules["jax"]` is nxjax: it gives nxjax's own modules, never second copies of their files. Knows no
library by name, and nothing of JAX but which of its modules are private.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any, Final, final

from nxjax.errors import NxError, Shown

# Modules below `jax._src` that public libraries import at their top, and need only for what they rarely do. They are
# there, and whatever else is asked of them is refused.
_STANDINS: Final[dict[str, dict[str, Any]]] = {
    "jax._src": {},
    "jax._src.compiler": {},
    "jax._src.traceback_util": {"register_exclusion": lambda path: None},
    "jax._src.xla_bridge": {},
}


def _clients() -> dict[str, Any]:
    from nxjax.backends.xla.client import made

    found = {name: made(name) for name in ("cpu", "gpu", "tpu")}
    return {name: client for name, client in found.items() if client is not None}


# What is looked up anew each time: chex asks whether there are devices already before it says how many there are to be.
_ASKED: Final[dict[str, Callable[[], Any]]] = {"jax._src.xla_bridge._backends": _clients}
# Those that hold what is public elsewhere.
_PUBLIC: Final = {"jax._src.flatten_util": "nxjax.flatten_util"}


@final
class Alias(Shown):
    """`jax` means nxjax; as a context manager, until the block ends."""

    def __enter__(self) -> ModuleType:
        return sys.modules["jax"]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """`jax` is no longer nxjax. Libraries that were imported meanwhile stay what they are."""
        if sys.modules.get("jax") is sys.modules["nxjax"]:
            for name in [n for n in sys.modules if n == "jax" or n.startswith("jax.")]:
                del sys.modules[name]


def as_jax() -> Alias:
    """Let `import jax` give nxjax, here and in libraries imported from now on: `jax.numpy` is `nxjax.numpy`, ...

    Every module keeps its identity: `jax is nxjax`, and what nxjax has no module for is not found. Meanwhile
    `jax.__version__` is that of the JAX whose public API nxjax follows, since libraries ask for it.

    Returns:
        What ends it: a context manager, or call its ``end()``. Without either it holds for the process.

    Raises:
        NxError: JAX itself has been imported already.

    >>> import subprocess, sys
    >>> program = '''
    ... import nxjax as nx
    ... nx.interop.as_jax()
    ... import jax, jax.numpy as jnp
    ... from jax.tree_util import tree_map
    ... print(jax is nx, tree_map(jnp.sin, {"x": 0.0}))
    ... '''
    >>> print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
    True {'x': Array(0., dtype=float32, weak_type=True)}
    """
    there = sys.modules.get("jax")
    nxjax = sys.modules["nxjax"]
    if there is not None and there is not nxjax:
        raise NxError(
            "as_jax: JAX itself is imported already",
            got=getattr(there, "__file__", None) or repr(there),
            expected="no module named jax in this process",
            fix="call nx.interop.as_jax() before anything imports jax, or put sys.modules['jax'] aside yourself",
        )
    sys.modules["jax"] = nxjax
    return Alias()


def spec(name: str) -> ModuleSpec:
    """How ``jax.<...>`` is imported while `jax` is nxjax.

    Raises:
        ModuleNotFoundError: it is private to JAX, or nxjax has no such module.
    """
    if name in _STANDINS:
        return ModuleSpec(name, _Loader(_standin(name)), is_package=True)
    if name.startswith("jax._src") and name not in _PUBLIC:
        raise ModuleNotFoundError(
            f"{name} is private to JAX: nxjax, which stands in its place, has the public API only", name=name
        )
    own = _PUBLIC.get(name) or "nxjax" + name.removeprefix("jax")
    if own == "nxjax.config":  # the object of that name is what `jax.config` means
        raise _missing(name)
    try:
        module = importlib.import_module(own)
    except ModuleNotFoundError as error:
        if error.name is None or not own.startswith(error.name):
            raise
        raise _missing(name) from None
    return ModuleSpec(name, _Loader(module), is_package=hasattr(module, "__path__"))


def _missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}: nxjax, which stands in JAX's place, has none", name=name)


@final
class _Loader:
    """Gives a module that is there already: the import system takes what it finds in `sys.modules` afterwards."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self.module


def _standin(name: str) -> ModuleType:
    module = ModuleType(name, "Private to JAX; here because libraries import it.")
    module.__path__ = []

    def refuse(attribute: str) -> Any:
        if asked := _ASKED.get(f"{name}.{attribute}"):
            return asked()
        if f"{name}.{attribute}" in (*_STANDINS, *_PUBLIC):
            return importlib.import_module(f"{name}.{attribute}")
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise ModuleNotFoundError(
            f"{name}.{attribute} is private to JAX: nxjax, which stands in its place, has the public API only",
            name=name,
        )

    rooms: Any = vars(module)
    rooms.update(_STANDINS[name], __getattr__=refuse)
    return module
