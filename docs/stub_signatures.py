"""How a public function looks in a stub: parameter names and defaults as they are, types by what the names mean.

The faces annotate operands as ``Any``, since they take whatever converts; a reader of the stub is told what does.
An annotation that says more than ``Any`` is kept.
"""

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

# Functions that take lists, shapes without elements, or types, where others take arrays.
LOOSE = frozenset(
    re.findall(
        r"\w+",
        """
    array asarray asanyarray ascontiguousarray copy empty_like full_like zeros_like ones_like result_type can_cast
    isdtype issubdtype promote_types finfo iinfo dtype iterable isscalar shape ndim size block save savez
    fromfunction from_dlpack frombuffer fromiter vectorize frompyfunc apply_along_axis apply_over_axes piecewise
    asarray_chkfinite stop_gradient psum pmean pmax pmin all_gather ppermute pshuffle psum_scatter all_to_all
    pbroadcast pcast pvary pswapaxes with_sharding_constraint optimization_barrier custom_linear_solve custom_root
    reduce reduce_window sort key_data wrap_key_data split_axis with_memory_space array_equal array_equiv tree_util
    where concatenate stack hstack vstack dstack column_stack row_stack select choose multi_dot einsum r_ c_ pargmax
    pargmin einsum_path wrap_key_data key_impl clone
""",
    )
)
OPERANDS = frozenset(
    re.findall(
        r"\w+",
        """
    x y a b x1 x2 arr ary m v ar1 ar2 a1 a2 q p element test_elements lhs rhs operand on_true on_false pred key keys
    scale mean variance bias updates scatter_indices update init_value min max minval maxval df loc
    concentration alpha lam logits fill_value condition indices values query value start stop N probs n sigma lower
    upper left right dfnum dfden
""",
    )
)
# Of `nxjax.scipy` alone, where they name no trees or functions.
SCIPY_OPERANDS = frozenset(
    re.findall(
        r"\w+",
        """
    A B C E N T Z Zxx beta c code_book cov cval d data dim dx e f fillvalue fs h in1 in2 input k kappa lmbda mu obs phi
    r theta z
""",
    )
)
AXES = "int | Sequence[int] | None"
SHAPES = "int | Sequence[int]"
BY_NAME = {
    "dtype": "DTypeLike | None",
    "preferred_element_type": "DTypeLike | None",
    "new_dtype": "DTypeLike",
    "index_dtype": "DTypeLike",
    "out_dtype": "DTypeLike | None",
    "axis": AXES,
    "axes": "Any",
    "shape": SHAPES,
    "weights": "ArrayLike | None",
    "initial": "ArrayLike | None",
}


def _written() -> dict[str, str]:
    """Name -> signature, overloads together, up to the last colon."""
    text = (Path(__file__).parent / "written_signatures.pyi").read_text()
    blocks = [b for b in text.split("\n\n") if "def " in b]
    return {re.findall(r"^def (\w+)", b, re.M)[0]: b.strip().removesuffix(" ...") for b in blocks}


WRITTEN = _written()
RESULTS = {
    "indices": "Any",
    "gradient": "Any",
    "atleast_1d": "Any",
    "atleast_2d": "Any",
    "atleast_3d": "Any",
    "can_cast": "builtins.bool",
    "finfo": "np.finfo[Any]",
    "iinfo": "np.iinfo[Any]",
    "fromfunction": "Any",
}


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


# Operands that may also be words.
WORDS = frozenset({("cond", "p"), ("interp", "left"), ("interp", "right"), ("percentile", "method")})


def guessed(owner: str, p: inspect.Parameter, home: str) -> str:
    """What an operand annotated as Any takes, of a function that ``home`` defines."""
    operands = OPERANDS | SCIPY_OPERANDS if home.startswith("nxjax.scipy.") else OPERANDS
    if (owner, p.name) in WORDS:
        return "Any"
    if owner in LOOSE or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
        found = BY_NAME.get(p.name, "Any") if p.name == "dtype" else "Any"
    elif p.name == "where":
        found = "ArrayLike | None"
    else:
        found = BY_NAME.get(p.name, "ArrayLike" if p.name in operands else "Any")
    if p.default is None and found != "Any" and "None" not in found:
        found += " | None"
    return found


def parameter_type(function: Callable[..., Any], name: str, p: inspect.Parameter, known: Types) -> str:
    written = known.text(hints(function).get(p.name, Any))
    found = guessed(name, p, function.__module__) if written == "Any" else written
    return f"{found} | None" if p.default is None and found != "Any" and "None" not in found.split(" | ") else found


def typed_at_home(name: str, function: Callable[..., Any]) -> bool:
    """Whether the function's own annotations say what a stub would, so that a stub can import it as it is."""
    scope = function.__globals__
    known = Types(frozenset(scope) & vars(builtins).keys())
    given = hints(function)
    said = [known.text(given.get(p, Any)) for p in (*inspect.signature(function).parameters, "return")]
    told = [parameter_type(function, name, p, known) for p in inspect.signature(function).parameters.values()]
    written_out = function.__code__.co_name == name and not hasattr(function, "__wrapped__")
    if not written_out or written_for(name, function) is not None or any("builtins." in t for t in said):
        return False
    return said == [*told, result(function, name, known)]


def parameters(function: Callable[..., Any], name: str, known: Types, skip: int = 0) -> str:
    """The parameter list."""
    parts: list[str] = []
    kinds = [p.kind for p in inspect.signature(function).parameters.values()][skip:]
    for i, p in enumerate(list(inspect.signature(function).parameters.values())[skip:]):
        type = parameter_type(function, name, p, known)
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
    given = hints(function)
    return RESULTS.get(name) or known.text(given.get("return", Any))


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
