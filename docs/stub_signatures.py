"""How a public function looks in a stub: the signature of the source, in names that the stub imports."""

from __future__ import annotations

import builtins
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where the names of annotations come from. An annotation of these and builtins stands in the stub as in the source.
NAMED = {
    "collections.abc": "Callable Collection Hashable Iterable Iterator Mapping Sequence",
    "os": "PathLike",
    "typing": "IO Any Literal NamedTuple Never ParamSpec TypeVar overload",
    "nxjax.typing": "AccuracyLike ArrayLike ConvNumbersLike DTypeLike DeviceLike DotNumbersLike ModeLike PrecisionLike "
    "PyTree ShardingLike",
}
KNOWN = {*" ".join(NAMED.values()).split(), *vars(builtins), "Array", "None"}


def _written() -> dict[str, str]:
    """Name -> signature, overloads together, up to the last colon."""
    text = (Path(__file__).parent / "written_signatures.pyi").read_text()
    blocks = [b for b in text.split("\n\n") if "def " in b]
    return {re.findall(r"^def (\w+)", b, re.M)[0]: b.strip().removesuffix(" ...") for b in blocks}


WRITTEN = _written()
# Results that the source computes on, as NumPy types them.
RESULTS = {"can_cast": "builtins.bool", "finfo": "np.finfo[Any]", "iinfo": "np.iinfo[Any]"}


class Types:
    """Types as text, and the imports that the text needs."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self.hidden = hidden  # builtins that the module's own names hide
        self.imports: set[tuple[str, str]] = set()

    def text(self, t: Any) -> str:
        """The type as it is written; ``Any`` where it cannot be."""
        if t is None or t is type(None):
            return "None"
        if t is Any or isinstance(t, (typing.TypeVar, str)):
            return "Any"
        if t is Ellipsis:
            return "..."
        origin, args = typing.get_origin(t), typing.get_args(t)
        if origin in (typing.Union, types.UnionType):
            found = list(dict.fromkeys(self.text(a) for a in args))
            return "Any" if "Any" in found else " | ".join(found)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, args))}]"
        if origin is not None and origin.__module__ in ("builtins", "collections.abc", "numpy"):
            if origin.__name__ == "Callable":
                parts = "..." if args[0] is Ellipsis else f"[{', '.join(map(self.text, args[0]))}]"
                return f"Callable[{parts}, {self.text(args[1])}]"
            return f"{self.text(origin).split('[')[0]}[{', '.join(map(self.text, args))}]"
        if not isinstance(t, type):
            return "Any"
        if t.__module__ == "builtins":
            return f"builtins.{t.__name__}" if t.__name__ in self.hidden else t.__name__
        if t.__module__ == "collections.abc":
            return t.__name__
        if t.__module__ == "numpy":
            return f"np.{t.__name__}" + ("[Any]" if t.__name__ == "dtype" else "[Any, Any]" * (t.__name__ == "ndarray"))
        if t.__module__.startswith("nxjax.") and t.__qualname__ == t.__name__:
            self.imports.add((t.__module__, t.__name__))
            return t.__name__
        return "Any"


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as types; those that cannot be evaluated as Any."""
    found: dict[str, Any] = {}
    # `nxjax.numpy` has names like builtins; annotations mean those of Python.
    scope = {**vars(builtins), **function.__globals__, "bool": bool, "int": int, "float": float, "complex": complex}
    for name, annotation in function.__annotations__.items():
        try:
            found[name] = eval(annotation, scope) if isinstance(annotation, str) else annotation
        except (NameError, TypeError, SyntaxError):
            found[name] = Any
    return found


def default(value: Any) -> str:
    """A default as stubs show it."""
    plain = value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "..."
    return repr(value) if plain and len(repr(value)) < 40 else "..."


def written_type(function: Callable[..., Any], name: str, annotation: Any, known: Types) -> str:
    """An annotation as the source has it, if the stub has its names; otherwise the type that it means."""
    if isinstance(annotation, str) and set(re.findall(r"(?<!\.)\b[A-Za-z_]\w*", annotation)) <= KNOWN:
        return re.sub(r"\b[a-z]\w*", lambda m: f"builtins.{m[0]}" if m[0] in known.hidden else m[0], annotation)
    return known.text(hints(function).get(name, Any))


def parameter_type(function: Callable[..., Any], p: inspect.Parameter, known: Types) -> str:
    return written_type(function, p.name, p.annotation, known)


def typed_at_home(name: str, function: Callable[..., Any]) -> bool:
    """Whether the function's own annotations say what a stub would, so that a stub can import it as it is."""
    known = Types(frozenset(function.__globals__) & vars(builtins).keys())
    signature = inspect.signature(function)
    said = [parameter_type(function, p, known) for p in signature.parameters.values()]
    found = result(function, name, known)
    written_out = function.__code__.co_name == name and not hasattr(function, "__wrapped__")
    if not written_out or written_for(name, function) is not None or any("builtins." in t for t in (*said, found)):
        return False
    return found == written_type(function, "return", signature.return_annotation, known)


def parameters(function: Callable[..., Any], name: str, known: Types, skip: int = 0) -> str:
    """The parameter list."""
    parts: list[str] = []
    kinds = [p.kind for p in inspect.signature(function).parameters.values()][skip:]
    for i, p in enumerate(list(inspect.signature(function).parameters.values())[skip:]):
        type = parameter_type(function, p, known)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if p.kind is p.KEYWORD_ONLY and not any(k in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for k in kinds[:i]):
            parts.append("*")
        value = "" if p.default is p.empty else f" = {default(p.default)}"
        parts.append(f"{star}{p.name}: {type}{value}")
        if p.kind is p.POSITIONAL_ONLY and (i + 1 == len(kinds) or kinds[i + 1] is not p.POSITIONAL_ONLY):
            parts.append("/")
    return ", ".join(parts)


def first_line(value: Any) -> str:
    """The first line of a docstring, as a docstring; a line without one is a stub's body."""
    text = (inspect.getdoc(value) or "").split("\n")[0].replace("\\", "\\\\").replace('"', '\\"')
    return f'    """{text}"""' if text else "    ..."


def result(function: Callable[..., Any], name: str, known: Types) -> str:
    """The type of the result; ``Any`` for one array or several, since each call knows which."""
    found = RESULTS.get(name) or written_type(function, "return", function.__annotations__.get("return", Any), known)
    return "Any" if found in ("Array | tuple[Array, ...]", "Array | list[Array]") else found


def written_for(name: str, function: Callable[..., Any]) -> str | None:
    """What is written for a function of this name, if it is this one: its first parameter is called the same."""
    found = WRITTEN.get(name)
    first = next(iter(inspect.signature(function).parameters), "")
    return found if found is not None and f"def {name}({first}:" in found else None


def function_stub(name: str, function: Callable[..., Any], known: Types) -> str:
    """``def name(...) -> ...:`` and its first line."""
    written = written_for(name, function)
    if written is not None:
        head = written if "bool" in known.hidden else written.replace("builtins.bool", "bool")
    else:
        head = f"def {name}({parameters(function, name, known)}) -> {result(function, name, known)}:"
    return f"{head}\n{first_line(function)}"
