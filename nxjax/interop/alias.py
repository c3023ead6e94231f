"""nxjax under the name `jax`: libraries that were written for JAX's public API run on nxjax's arrays.

A finder on `sys.meta_path` (put there by the package's ``__init__``) asks `spec` whenever something below `jax` is
imported while `sys.modules["jax"]` is nxjax: it gives nxjax's own modules, never second copies of their files. Knows no
library by name; `standins` knows which modules of JAX are here that nxjax has not.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import final

from nxjax.errors import NxError, Shown
from nxjax.interop.standins import is_standin, standin, standins_in


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
            vars(sys.modules["nxjax"]).pop("_src", None)


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
    importlib.import_module("jax._src")  # libraries ask `jax` for it as for an attribute
    return Alias()


def spec(name: str) -> ModuleSpec:
    """How ``jax.<...>`` is imported while `jax` is nxjax.

    Raises:
        ModuleNotFoundError: it is private to JAX, or nxjax has no such module.
    """
    if is_standin(name):
        return ModuleSpec(name, _Loader(standin(name)), is_package=True)
    own = "nxjax" + name.removeprefix("jax")
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
        name = module.__name__
        sys.modules[name] = self.module
        # `from jax.extend import x` asks the module, which has its own name and knows no stand-ins.
        for inner in standins_in(name):
            if not hasattr(self.module, inner):
                setattr(self.module, inner, importlib.import_module(f"{name}.{inner}"))
