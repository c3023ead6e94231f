"""The kinds of faults: what could be wrong at a node of Python's syntax, as the text that would stand there.

Each function of the table below looks at one node and gives what may be written in its place. The emitters of machine
code are Python, too: a step left out there is an instruction left out. Knows no file and no test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

# What a fault is: its kind, and what stands in the place of the node.
Found = tuple[str, ast.AST]

_DERIVATIVES: Final = re.compile(r"(^|\.)(_?jvp\w*|transpose|tangents|linearize|vjp|by_\w+|_?transposed\w*)(\.|$)")
_PLACES: Final = re.compile(r"offset|place|pointer|address|start|(^|_)(at|ptr|pos|row|column|index|where)$")
_STRIDES: Final = re.compile(r"stride|step|itemsize|nbytes|pitch|size$|dilation|lanes")
_LOCKS: Final = re.compile(
    r"(\b|_)(lock|unlock|mutex|fence|barrier|COMPILING|acquire|release|LOCKS?|cond_signal|cond_wait)(\b|_)"
)
# Exchanged arguments of these are another type, and an error wherever the line runs at all.
_TYPED: Final = frozenset((
    "isinstance", "issubclass", "getattr", "setattr", "hasattr", "at", "load", "store", "store_masked", "load_masked",
    "gather", "loop", "call", "intrinsic", "word", "put", "pointer", "integer", "partial", "map", "zip", "filter",
    "replace", "emit", "derive",
))  # fmt: skip
_AXES: Final = re.compile(r"ax[ei]s|dims?$|dimensions?$|perm|shape|strides|sizes|order")
_MASKS: Final = re.compile(r"mask|valid|inside|lanes|outside|active|live|held")
_COPIES: Final = re.compile(r"inplace|in_place|donat|alias|overwrit|may_|owned|shared|unique|kept")

_BOUNDS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_TURNED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_ONE_SIDED: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.MatMult)


def _pairs(text: str) -> dict[str, str]:
    """Each word of ``a:b`` to the other."""
    both = [pair.split(":") for pair in text.split()]
    return {p[i]: p[1 - i] for p in both for i in (0, 1)}


_ORDERS: Final = _pairs("lt:le gt:ge ult:ule ugt:uge ceil:floor")
# Methods and functions by the one that is easily taken for it, and LLVM's words.
_NAMES: Final = {"sum": "prod", "lshr": "__rshift__"} | _ORDERS | _pairs(
    "eq:ne sdiv:udiv srem:urem maximum:minimum max:min any:all add:sub argmin:argmax logical_and:logical_or"
)  # fmt: skip
_WORDS: Final = _pairs(
    "slt:sle sgt:sge ult:ule ugt:uge olt:ole ogt:oge oeq:ueq une:one smin:smax umin:umax fadd:fsub add:sub sext:zext "
    "ashr:lshr sitofp:uitofp fptosi:fptoui minimum:minnum maximum:maxnum EQ:NE LT:LE GT:GE"
)
_CLAMPS: Final = {"min", "max", "clip", "minimum", "maximum", "clamp"}


def changes(node: ast.AST, function: str, *, rules: bool = False) -> Iterator[Found]:
    """All faults that may be planted at ``node``, which lies in ``function`` (its qualified name).

    ``rules``: whether the file has rules of derivatives.
    """
    for look in _LOOKS.get(type(node), ()):
        yield from look(node, function)
    if rules and _DERIVATIVES.search(function):
        yield from _derivative(node)


def _text(node: ast.AST | None) -> str:
    return "" if node is None else ast.unparse(node)


def _name(node: ast.AST) -> str:
    """The last name of ``a.b.c``, ``c`` or ``c[...]``."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _with(node: Any, **fields: Any) -> Any:
    new = deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _plus(node: ast.expr, n: int) -> ast.expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + n)
    return ast.BinOp(node, ast.Add() if n > 0 else ast.Sub(), ast.Constant(abs(n)))


# --- statements ---


def _step(node: Any, function: str) -> Iterator[Found]:
    """A statement that only does something."""
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
        return
    text = _text(node)
    called = _name(node.value) if isinstance(node, ast.Expr) else ""
    locked = isinstance(node, ast.Expr) and _LOCKS.search(text.split("\n")[0])
    advanced = isinstance(node, ast.AugAssign) and _PLACES.search(_name(node.target))
    checked = called in ("require", "counted", "fits", "carried", "check", "unique")
    kind = "dropped lock" if locked else "stale pointer" if advanced else "removed guard" if checked else "dropped step"
    yield kind, ast.Pass()


def _if(node: ast.If, function: str) -> Iterator[Found]:
    if not node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
        yield "removed guard", _with(node, test=ast.Constant(False))
    yield "wrong condition", _with(node, test=_not(node.test))


def _not(test: ast.expr) -> ast.expr:
    return (
        test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)
    )


def _lock(node: ast.With, function: str) -> Iterator[Found]:
    if len(node.items) == 1 and node.items[0].optional_vars is None and _LOCKS.search(_text(node.items[0])):
        yield "dropped lock", ast.If(ast.Constant(True), node.body, [])


def _return(node: ast.Return, function: str) -> Iterator[Found]:
    if (
        _COPIES.search(function.rsplit(".", 1)[-1])
        and node.value is not None
        and not isinstance(node.value, ast.Constant)
    ):
        yield "lost copy", _with(node, value=ast.Constant(True))


# --- expressions ---


def _compare(node: ast.Compare, function: str) -> Iterator[Found]:
    op = node.ops[0]
    if len(node.ops) == 1 and type(op) in _BOUNDS:
        yield "wrong bound", _with(node, ops=[_BOUNDS[type(op)]()])
    if type(op) in _TURNED:
        yield (
            "lost copy" if _COPIES.search(function) else "wrong condition",
            _with(node, ops=[_TURNED[type(op)](), *node.ops[1:]]),
        )


def _both(node: ast.BoolOp, function: str) -> Iterator[Found]:
    for i in range(len(node.values)):
        rest = [v for k, v in enumerate(node.values) if k != i]
        kind = "missing mask" if _MASKS.search(_text(node.values[i])) else "wrong condition"
        yield kind, rest[0] if len(rest) == 1 else _with(node, values=rest)


def _choice(node: ast.IfExp, function: str) -> Iterator[Found]:
    yield "wrong condition", node.body
    yield "wrong condition", node.orelse


def _unary(node: ast.UnaryOp, function: str) -> Iterator[Found]:
    inner = node.operand
    if isinstance(node.op, ast.Not):
        yield "wrong condition", inner
    elif isinstance(node.op, ast.Invert):
        yield "missing mask", inner
    elif isinstance(node.op, ast.USub) and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.FloorDiv):
        if isinstance(inner.left, ast.UnaryOp) and isinstance(inner.left.op, ast.USub):
            yield "wrong bound", _with(inner, left=inner.left.operand)  # rounded down instead of up
    elif isinstance(node.op, ast.USub) and not isinstance(inner, ast.Constant):
        yield "wrong operation", inner


def _binary(node: ast.BinOp, function: str) -> Iterator[Found]:
    left, op, right = node.left, node.op, node.right
    words = isinstance(left, ast.Constant | ast.JoinedStr) and not isinstance(getattr(left, "value", 0), int | float)
    if words or isinstance(right, ast.JoinedStr | ast.List | ast.Tuple) or isinstance(left, ast.List | ast.Tuple):
        return
    if isinstance(op, _ONE_SIDED):
        yield "swapped operand", _with(node, left=right, right=left)
    if type(op) in _OPERATORS:
        yield "wrong operation", _with(node, op=_OPERATORS[type(op)]())
    if isinstance(op, ast.Add | ast.Sub) and isinstance(right, ast.Constant) and right.value == 1:
        yield "wrong bound", left
    if isinstance(op, ast.Add) and (_PLACES.search(_name(left)) or _PLACES.search(_name(right))):
        yield "stale pointer", left
        yield "stale pointer", right
    if isinstance(op, ast.Mult):
        for side, other in ((left, right), (right, left)):
            if _STRIDES.search(_name(side)):
                yield "wrong stride", other
                yield "wrong stride", _with(node, left=_plus(side, 1), right=other)
    if isinstance(op, ast.Mod):
        yield "missing clamp", left
    if isinstance(op, ast.BitAnd):
        yield "missing mask", left
        yield "missing mask", right


def _call(node: ast.Call, function: str) -> Iterator[Found]:
    name, args = _name(node.func), node.args
    method = isinstance(node.func, ast.Attribute)
    if name in _NAMES and args and not node.keywords:
        new = deepcopy(node)
        if isinstance(new.func, ast.Attribute):
            new.func.attr = _NAMES[name]
        elif isinstance(new.func, ast.Name) and name in ("min", "max", "any", "all"):
            new.func.id = _NAMES[name]
        if _text(new) != _text(node):
            yield "wrong bound" if name in _ORDERS else "wrong operation", new
    if name in _CLAMPS and len(args) > 1:
        yield "missing clamp", args[0]
        yield "missing clamp", args[1]
    if (
        name == "intrinsic"
        and len(args) == 4
        and isinstance(args[0], ast.Constant)
        and str(args[0].value)[1:] in ("min", "max")
    ):
        yield "missing clamp", args[2]
        yield "missing clamp", args[3]
    if name == "range" and len(args) < 3:
        yield "wrong bound", _with(node, args=[*args[:-1], _plus(args[-1], -1)])
        yield (
            "wrong bound",
            _with(node, args=[_plus(args[0], 1), args[1]] if len(args) > 1 else [ast.Constant(1), args[0]]),
        )
    if name == "loop" and method and len(args) > 1:
        yield "wrong bound", _with(node, args=[args[0], _plus(args[1], -1), *args[2:]])
        yield "wrong bound", _with(node, args=[_plus(args[0], 1), *args[1:]])
        if len(args) > 2:
            yield "wrong stride", _with(node, args=[*args[:2], _plus(args[2], 1), *args[3:]])
    if name == "at" and len(args) > 1 and isinstance(node.func, ast.Attribute) and _name(node.func.value) == "f":
        yield "stale pointer", args[0]
        if len(args) > 2:
            yield "wrong stride", _with(node, args=[*args[:2], _plus(args[2], 1)])
    if name in ("store_masked", "load_masked") and len(args) > 2:
        yield "missing mask", _with(node, func=_with(node.func, attr=name.partition("_")[0]), args=args[:2])
    if name in ("select", "where", "select_n") and len(args) == 3:
        yield "missing mask", args[1]
        yield "missing mask", args[2]
        yield "swapped operand", _with(node, args=[args[0], args[2], args[1]])
    elif len(args) > 1 and name not in _TYPED:
        for i in range(len(args) - 1):
            a, b = args[i], args[i + 1]
            if (
                isinstance(a, ast.Name | ast.Attribute)
                and isinstance(b, ast.Name | ast.Attribute)
                and _text(a) not in ("f", "b", "self", "module")
            ):
                yield "swapped operand", _with(node, args=[*args[:i], b, a, *args[i + 2 :]])
    if name in ("copy", "ascontiguousarray", "list", "dict", "array") and len(args) == (
        0 if name == "copy" and method else 1
    ):
        inner = node.func.value if isinstance(node.func, ast.Attribute) and not args else args[0]
        if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript) or name in ("copy", "ascontiguousarray"):
            yield "lost copy", inner
    if name in ("reversed", "sorted", "argsort") and len(args) == 1:
        yield "wrong axis", ast.Call(ast.Name("list"), args, [])
    yield from _keywords(node)


def _keywords(node: ast.Call) -> Iterator[Found]:
    for i, k in enumerate(node.keywords):
        if k.arg is None:
            continue
        rest = [*node.keywords[:i], *node.keywords[i + 1 :]]
        if _MASKS.search(k.arg):
            yield "missing mask", _with(node, keywords=rest)
        elif k.arg in ("axis", "axes", "offset") and not isinstance(k.value, ast.Tuple | ast.List):
            new = _plus(k.value, -1 if k.arg == "axis" else 1)
            yield "wrong axis" if k.arg != "offset" else "stale pointer", _replaced(node, i, new)
        elif isinstance(k.value, ast.Constant) and type(k.value.value) is bool:
            yield (
                "lost copy" if k.arg == "copy" else "wrong constant",
                _replaced(node, i, ast.Constant(not k.value.value)),
            )


def _replaced(node: ast.Call, i: int, value: ast.expr) -> ast.Call:
    k = node.keywords[i]
    return _with(node, keywords=[*node.keywords[:i], ast.keyword(k.arg, value), *node.keywords[i + 1 :]])


def _subscript(node: ast.Subscript, function: str) -> Iterator[Found]:
    if not isinstance(node.ctx, ast.Load):
        return
    inner = node.slice
    if isinstance(inner, ast.Slice):
        if inner.step is not None and _text(inner.step) == "-1" and inner.lower is inner.upper is None:
            yield "wrong axis", node.value
        elif inner.upper is not None:
            yield "wrong bound", _with(node, slice=_with(inner, upper=_plus(inner.upper, -1)))
        elif inner.lower is not None:
            yield "wrong bound", _with(node, slice=_with(inner, lower=_plus(inner.lower, 1)))
    elif _AXES.search(_name(node.value)):
        text = _text(inner)
        if text in ("-1", "0"):
            yield "wrong axis", _with(node, slice=ast.Constant(0 if text == "-1" else -1))
        elif not isinstance(inner, ast.Constant | ast.Tuple):
            yield "wrong axis", _with(node, slice=_plus(inner, -1))


def _constant(node: ast.Constant, function: str) -> Iterator[Found]:
    value = node.value
    if isinstance(value, bool):
        yield "wrong constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "wrong constant", ast.Constant(value + 1)
    elif isinstance(value, float) and value:
        yield "wrong constant", ast.Constant(value * 1.001)
        yield "wrong constant", ast.Constant(-value)
    elif isinstance(value, str) and value in _WORDS:
        yield "wrong operation", ast.Constant(_WORDS[value])
    elif isinstance(value, str) and "seq_cst" in value:
        yield "dropped lock", ast.Constant(value.replace("seq_cst", "monotonic"))


def _ordered(node: ast.JoinedStr, function: str) -> Iterator[Found]:
    """LLVM's text with places to fill in; a text that is joined later says its order of memory here."""
    for i, part in enumerate(node.values):
        if not isinstance(part, ast.Constant) or not isinstance(part.value, str):
            continue
        new = part.value.replace("seq_cst", "monotonic")
        kind = "dropped lock"
        if new == part.value:
            kind = "wrong operation"
            new = re.sub(r"\b[a-z]+\b", lambda m: _WORDS.get(m[0], m[0]), part.value, count=3)
        if new != part.value:
            yield kind, _with(node, values=[*node.values[:i], ast.Constant(new), *node.values[i + 1 :]])


def _filtered(node: Any, function: str) -> Iterator[Found]:
    for i, g in enumerate(node.generators):
        for k in range(len(g.ifs)):
            rest = _with(g, ifs=[t for j, t in enumerate(g.ifs) if j != k])
            yield "missing mask", _with(node, generators=[*node.generators[:i], rest, *node.generators[i + 1 :]])


# --- derivatives ---


def _derivative(node: ast.AST) -> Iterator[Found]:
    """In a rule of a derivative: a sign, a factor, a term, the tangent of another operand."""
    if (
        isinstance(node, ast.Return)
        and isinstance(node.value, ast.Call | ast.Name)
        and _text(node.value) not in ("NotImplemented",)
    ):
        if isinstance(node.value, ast.Name) or _name(node.value) in (
            "mul",
            "div",
            "add",
            "sub",
            "dot",
            "convert",
            "select_n",
        ):
            yield "wrong derivative", _with(node, value=ast.UnaryOp(ast.USub(), node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name, args = node.func.id, node.args
        if name == "neg" and len(args) == 1:
            yield "wrong derivative", args[0]
        elif name in ("mul", "add", "sub", "div") and len(args) == 2:
            yield "wrong derivative", args[0]
            if name == "mul":
                yield "wrong derivative", args[1]
        elif name in ("conj", "conjugate", "real") and len(args) == 1:
            yield "wrong derivative", args[0]
    elif isinstance(node, ast.Lambda):
        yield "wrong derivative", _with(node, body=ast.UnaryOp(ast.USub(), node.body))
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        yield "wrong derivative", _with(node, elts=node.elts[::-1])


_Look = Callable[[Any, str], Iterator[Found]]
_LOOKS: Final[dict[type[ast.AST], tuple[_Look, ...]]] = {
    ast.Expr: (_step,),
    ast.AugAssign: (_step,),
    ast.If: (_if,),
    ast.With: (_lock,),
    ast.Return: (_return,),
    ast.Compare: (_compare,),
    ast.BoolOp: (_both,),
    ast.IfExp: (_choice,),
    ast.UnaryOp: (_unary,),
    ast.BinOp: (_binary,),
    ast.Call: (_call,),
    ast.Subscript: (_subscript,),
    ast.Constant: (_constant,),
    ast.JoinedStr: (_ordered,),
    ast.ListComp: (_filtered,),
    ast.GeneratorExp: (_filtered,),
    ast.SetComp: (_filtered,),
    ast.DictComp: (_filtered,),
}
