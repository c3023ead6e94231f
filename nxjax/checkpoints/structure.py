"""Trees as JSON and back: the nodes by kind, the leaves by number, each leaf with its path.

A path is a tuple of strings and integers: keys of dicts, indices, names of fields. It is what a leaf is found by, so a
dict, a namedtuple and a dataclass of the same names hold the same leaves. Nothing in a file is imported or executed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import optree

from nxjax.errors import InvalidFileError, TreeError
from nxjax.quant.qarray import QArray
from nxjax.trace import tree

Path = tuple[Any, ...]
DEEPEST: Final = 200


def step_of(key: Any) -> Any:
    """One step of a path: what a key says, whatever its kind."""
    for name in ("key", "idx", "name"):
        found = getattr(key, name, None)
        if found is not None:
            return found
    return key


def path_of(keys: Any) -> Path:
    return tuple(step_of(k) for k in keys)


def name_of(path: Path) -> str:
    """``layers.0.w``: a path as a tensor's name."""
    return ".".join(map(str, path)) or "value"


@final
class _Writer:
    def __init__(self) -> None:
        self.leaves: list[tuple[Path, Any]] = []

    def node(self, x: Any, path: Path) -> Any:
        if len(path) > DEEPEST:
            raise TreeError("checkpoint: the tree is too deep", got=f"more than {DEEPEST} levels")
        if x is None:
            return None
        kind = type(x)
        if kind is dict:
            return {"d": [[self.key(k, path), self.node(x[k], (*path, k))] for k in _ordered(x)]}
        if kind is list or kind is tuple:
            return {"l" if kind is list else "t": [self.node(v, (*path, i)) for i, v in enumerate(x)]}
        if issubclass(kind, QArray):
            parts = ("values", "scale") if x.least is None else ("values", "scale", "least")
            return {"q": [self.node(getattr(x, name), (*path, name)) for name in parts]}
        if optree.tree_is_leaf(x, namespace=tree.NAMESPACE):
            self.leaves.append((path, x))
            return len(self.leaves) - 1
        rows = tree.leaves_with_path(x, is_leaf=lambda y: y is not x)
        steps = [(step_of(keys[0]), child) for keys, child in rows]
        return {"n": kind.__name__, "c": [[self.key(k, path), self.node(v, (*path, k))] for k, v in steps]}

    def key(self, key: Any, path: Path) -> Any:
        if type(key) not in (str, int):
            raise TreeError(
                f"checkpoint: a key under {name_of(path)!r} is neither string nor integer",
                got=f"{type(key).__name__} {key!r}"[:80],
                fix="name it by a string",
            )
        if isinstance(key, str) and not _is_text(key):
            raise TreeError(
                f"checkpoint: a key under {name_of(path)!r} is not text",
                got=repr(key)[:80],
                expected="letters of Unicode",
            )
        return key


def _is_text(key: str) -> bool:
    """Whether UTF-8 has it: half of a pair of surrogates is a letter to Python alone."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ordered(x: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(x)
    except TypeError:  # strings and integers mixed: in the order that trees have them
        return [step_of(keys[0]) for keys, _ in tree.leaves_with_path(x, is_leaf=lambda y: y is not x)]


def described(x: Any) -> tuple[Any, list[tuple[Path, Any]]]:
    """The structure of ``x`` as JSON, and its leaves with their paths.

    Raises:
        TreeError: keys that are neither strings nor integers, or too deep a tree.
    """
    tree.flatten(x)  # adopts nodes that only JAX has met so far
    writer = _Writer()
    return writer.node(x, ()), writer.leaves


def built(node: Any, leaf: Callable[[int], Any], where: str) -> Any:
    """The tree that ``node`` describes, of dicts, lists, tuples and QArrays; other nodes become dicts or lists.

    Raises:
        InvalidFileError: it is no description.
    """
    budget = [2_000_000]

    def make(node: Any, depth: int) -> Any:
        budget[0] -= 1
        if depth > DEEPEST or budget[0] < 0:
            raise ValueError("too deep or too large")
        if node is None:
            return None
        if type(node) is int:
            return leaf(node)
        kind = next(iter(node))
        rows = node["c"] if kind == "n" else node[kind]
        if kind in ("l", "t"):
            values = [make(v, depth + 1) for v in rows]
            return values if kind == "l" else tuple(values)
        if kind == "q":
            values, scale, *least = rows
            return QArray(*(make(x, depth + 1) for x in (values, scale, *least)))
        if kind not in ("d", "n"):
            raise ValueError(f"a node of kind {kind!r}")
        pairs = [(k, make(v, depth + 1)) for k, v in rows]
        if any(type(k) not in (str, int) for k, _ in pairs):
            raise ValueError("a key that is neither string nor integer")
        if kind == "n" and [k for k, _ in pairs] == list(range(len(pairs))):
            return [v for _, v in pairs]
        return dict(pairs)

    try:
        return make(node, 0)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, StopIteration, RecursionError) as error:
        raise InvalidFileError(
            f"checkpoint: {where}: its description of the tree is damaged", got=repr(error)
        ) from None
