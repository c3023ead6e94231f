"""Every op by name, its file loaded when the op is first used.

Two kinds of code need that. Rules may use an op that stands above their own file: the transpose of a broadcast is a
sum. So the rules of an op stand with its definition, and files of ops import only what is below them. And importing
`nxjax.numpy` must cost next to nothing, while the op files are most of the package. Both write ``ops.reduce_sum``,
which imports the file that holds the op and remembers the op here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax.ops.index import FACES, FILES
from nxjax.trace import lazy
from nxjax.trace.core import OPS, Op, get_op

_HOMES: Final = {name: file for file, names in FILES.items() for name in names.split()}
# Module below `nxjax` -> public name -> the op that is this function; an op that is made later adds its own.
FUNCTIONS: Final = {
    module: {name: op or name for name, _, op in (pair.partition("=") for pair in pairs.split())}
    for module, pairs in FACES.items()
}
# Those of them that nxjax has, which its packages list.
LISTED: Final = {module: tuple(names) for module, names in FUNCTIONS.items()}


def functions(
    package: str, file: str, namespace: dict[str, Any], made: Callable[[Any, str], Any]
) -> Callable[[str], Any]:
    """``__getattr__`` of ``file``, which puts the functions of ``package`` that are ops into its ``namespace``.

    Args:
        made: makes the function that an op is there by one of its names.
    """

    def find(name: str) -> Any:
        if name not in FUNCTIONS[package]:
            raise AttributeError(f"module {file!r} has no attribute {name!r}")
        op: Any = get_op(FUNCTIONS[package][name])
        namespace.update((each, made(op, each)) for each in op.public()[package].names.split())
        return namespace[name]

    return find


def load(name: str) -> None:
    """Import what makes the op ``name``, if there is one."""
    if name in _HOMES:
        lazy.load(f"nxjax.{_HOMES[name]}")


def every() -> dict[str, Op]:
    """All ops of nxjax by name, all loaded."""
    for file in FILES:
        lazy.load(f"nxjax.{file}")
    return {name: OPS[name] for name in _HOMES}


def __getattr__(name: str) -> Op:
    # Names that Python has taken end in an underscore: ``and_``.
    own = name.rstrip("_")
    if own not in _HOMES:
        raise AttributeError(f"no op is called {name!r}")
    load(own)
    op = globals()[name] = OPS[own]
    return op
