"""Program text: print and parse. The inverse of each other, but for the values of consts, which are given apart.

    { lambda c:f32[4] ; a:f32[3] b:f32[]. let
        d:f32[3] = sin a
        e:f32[3] = mul[] d 2.0:f32[]
      in (e,) }

Knows ops by name only. Parameters are Python literals, dtypes (``f32``), registered frozen dataclasses and programs; a
parameter that is a Python function prints as ``<function name>`` and cannot be parsed.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, final

import numpy as np

from nxjax.errors import NxError, ProgramError
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, find_op
from nxjax.trace.depth import raise_recursion_limit
from nxjax.trace.kinds import fields_of, is_dataclass
from nxjax.trace.params import PARAM_CLASSES, Printed, param_class
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType, parse_type

__all__ = ["canonical_text", "param_class", "parse_program", "to_text"]


def variable_name(n: int) -> str:
    name = ""
    n += 1
    while n:
        n, digit = divmod(n - 1, 26)
        name = chr(97 + digit) + name
    # Words of the grammar and numbers are not names.
    return name + "_" if name in ("let", "in", "lambda", "inf", "nan") else name


@final
class _Printer:
    """Writes the parts of the text one after the other, so that no part is copied once per level of nesting."""

    def __init__(self, source: bool, canonical: bool) -> None:
        self.source = source
        self.canonical = canonical
        self.parts: list[str] = []

    def text(self, program: Program) -> str:
        self.program(program, "")
        return "".join(self.parts)

    def program(self, program: Program, indent: str) -> None:
        names: dict[Var, str] = {}

        def bind(v: Var) -> str:
            names[v] = variable_name(len(names))
            return f"{names[v]}:{v.type}"

        def atom(a: Atom) -> str:
            return names[a] if isinstance(a, Var) else self.literal(a)

        consts = " ".join(map(bind, program.constvars))
        write = self.parts.append
        write(f"{{ lambda {consts + ' ' if consts else ''}; {' '.join(map(bind, program.inputs))}. let\n")
        inner = indent + "    "
        for e in program.equations:
            # Inputs first: an equation's outputs are not in scope in it.
            ins = "".join(f" {atom(a)}" for a in e.inputs)
            outs = " ".join(map(bind, e.outputs))
            write(f"{inner}{outs} = {e.op.name}")
            self.params(e.op.unpack_params(e.params), inner)
            write(f"{ins}{self.comment(e)}\n")
        outs = ", ".join(atom(a) for a in program.outputs) + ("," if len(program.outputs) == 1 else "")
        write(f"{indent}  in ({outs}) }}")

    def comment(self, e: Equation) -> str:
        if self.canonical:
            return ""
        scope = f" @{e.scope}" if e.scope else ""
        return f"{scope}  # {e.source}" if self.source and e.source else scope

    def literal(self, a: Literal) -> str:
        return f"{_scalar_text(a.value)}:{a.type}"

    def params(self, params: dict[str, Any], indent: str) -> None:
        if not params:
            return
        write = self.parts.append
        inner = indent + "  "
        long = any(_holds_program(v) for v in params.values())
        before, between, after = (f"[\n{inner}", f"\n{inner}", f"\n{indent}]") if long else ("[", " ", "]")
        for i, (key, value) in enumerate(sorted(params.items())):
            write(f"{between if i else before}{key}=")
            self.value(value, inner)
        write(after)

    def value(self, v: Any, indent: str) -> None:
        if isinstance(v, Program):
            self.program(v, indent)
        elif isinstance(v, (np.dtype, ArrayType)):
            self.parts.append(dtypes.short_name(v) if isinstance(v, np.dtype) else repr(v))
        elif isinstance(v, Printed):
            self.several(v.param_name, v.param_fields(self.canonical).items(), indent)
        elif isinstance(v, enum.Enum):
            self.parts.append(f"{type(v).__name__}.{v.name}")
        elif is_dataclass(v):
            self.several(type(v).__name__, ((name, getattr(v, name)) for name in fields_of(v)), indent)
        elif isinstance(v, tuple):
            several: tuple[Any, ...] = v
            self.several("", ((None, x) for x in several), indent, "," if len(several) == 1 else "")
        else:
            self.parts.append(self.scalar(v))

    def several(self, name: str, items: Iterable[tuple[str | None, Any]], indent: str, end: str = "") -> None:
        """``name(key=value, ...)``."""
        write = self.parts.append
        write(f"{name}(")
        for i, (key, value) in enumerate(items):
            write(f"{', ' if i else ''}{'' if key is None else f'{key}='}")
            self.value(value, indent)
        write(f"{end})")

    def scalar(self, v: Any) -> str:
        if isinstance(v, float) and v != v:
            return "nan"
        if v is None or isinstance(v, (bool, int, float, complex, str)):
            return repr(v)
        if isinstance(v, np.generic):
            return repr(v.item())
        name = getattr(v, "__qualname__", type(v).__name__)
        # Two functions of one name are two programs, so identity takes part in the canonical text.
        return f"<{name} {id(v):x}>" if self.canonical else f"<{name}>"


def _holds_program(v: Any) -> bool:
    """True where a program lies in a parameter's value, which is then printed over several lines."""
    if isinstance(v, tuple):
        return any(map(_holds_program, v))  # pyright: ignore[reportUnknownArgumentType]
    if is_dataclass(v):
        return any(_holds_program(getattr(v, name)) for name in fields_of(v))
    return isinstance(v, Program)


def _scalar_text(value: Array) -> str:
    item = value.numpy().item()  # pyright: ignore[reportAttributeAccessIssue]
    return repr(item).replace(" ", "")


def to_text(program: Program, *, source: bool = False) -> str:
    """The readable text; with ``source``, each equation's user line as a comment."""
    return _Printer(source, False).text(program)


# What `_Printer.scalar` writes of an object that it knows nothing of.
IDENTITY: Final = re.compile(r"<[^<>\s]+ [0-9a-f]+>")


def canonical_text(program: Program) -> str:
    """The text without scopes and source lines: what a content hash is made of."""
    return _Printer(False, True).text(program)


def literal_text(a: Literal) -> str:
    """A literal as programs write it, without its type."""
    return _scalar_text(a.value)


def params_text(params: dict[str, Any]) -> str:
    """Parameters as programs write them, without programs among them."""
    printer = _Printer(False, False)
    printer.params({k: v for k, v in params.items() if v is not None and not isinstance(v, Program)}, "")
    return "".join(printer.parts)


_TOKEN: Final = r"""(?x)\s+ | \#[^\n]* |
    (?P<token>
      <[^>\s]*(?:\s[0-9a-f]+)?> |
      [a-z0-9_]+(?:<fry>)?\[[0-9,]*\]\*?(?:\{V:[^}\s]*\})? (?![a-zA-Z_]) |
      [A-Za-z_][A-Za-z0-9_]* |
      -?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan)j? |
      \(-?[\d.einfa+-]+j\) |
      '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" |
      @[^\s]+ | -inf | [{};.,:=()\[\]]
    )"""


_NAMED: Final = {"None": None, "True": True, "False": False}


def _python_value(word: str) -> Any:
    """The value of a number, a string or a name of Python's.

    Not by `ast`: in Python 3.11, threads that make syntax trees at the same time disturb one another (SystemError).
    """
    if word in _NAMED:
        return _NAMED[word]
    if word[0] in "'\"":
        return word[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
    if "j" in word:
        return complex(word)
    return int(word) if word.lstrip("-").isdigit() else float(word)


@final
class _Parser:
    """Recursive descent over the token list."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        token = re.compile(_TOKEN)  # here: most processes parse nothing
        position = 0
        while position < len(text):
            match = token.match(text, position)
            if match is None:
                line = text.count("\n", 0, position) + 1
                raise ProgramError(f"program text: line {line} is not understood", got=text[position : position + 40])
            if match["token"]:
                self.tokens.append(match["token"])
            position = match.end()
        self.at = 0
        self.level = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def expect(self, token: str) -> None:
        got = self.next()
        if got != token:
            near = " ".join(self.tokens[max(0, self.at - 6) : self.at + 3])
            raise ProgramError("program text: unexpected word", got=f"{got!r} near `{near}`", expected=repr(token))

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def program(self, values: Arrays) -> Program:
        env: dict[str, Var] = {}
        self.level += 1
        raise_recursion_limit(self.level, "program text")
        self.expect("{")
        self.expect("lambda")
        consts = list(self.bindings(env, ";"))
        inputs = list(self.bindings(env, "."))
        self.expect("let")
        equations: list[Equation] = []
        while not self.accept("in"):
            equations.append(self.equation(env))
        self.expect("(")
        outputs: list[Atom] = []
        while not self.accept(")"):
            outputs.append(self.atom(env))
            self.accept(",")
        self.expect("}")
        self.level -= 1
        if len(values) != len(consts):
            raise ProgramError(
                "program text: consts need values",
                got=len(values),
                expected=len(consts),
                fix="parse_program(text, consts=[...])",
            )
        return Program(inputs, equations, outputs, consts, values)

    def bindings(self, env: dict[str, Var], end: str) -> Iterator[Var]:
        while not self.accept(end):
            name = self.next()
            self.expect(":")
            env[name] = Var(parse_type(self.next()))
            yield env[name]

    def atom(self, env: dict[str, Var]) -> Atom:
        word = self.next()
        if self.peek() != ":":
            if word not in env:
                raise ProgramError("program text: unknown variable", got=repr(word))
            return env[word]
        self.expect(":")
        type = parse_type(self.next())
        item = {"True": True, "False": False}.get(word)
        number = complex(word.strip("()")) if "j" in word else None
        if item is None:
            item = number if number is not None else int(word) if type.dtype in dtypes.INTEGER else float(word)
        return Literal(wrap(np.asarray(item).astype(type.dtype), type.weak))

    def equation(self, env: dict[str, Var]) -> Equation:
        names: list[tuple[str, Var]] = []
        while not self.accept("="):
            name = self.next()
            self.expect(":")
            names.append((name, Var(parse_type(self.next()))))
        op_name = self.next()
        params: dict[str, Any] = {}
        # Before its parameters are read: their classes come with it.
        op = find_op(op_name.removesuffix("[]"))
        if op is None:
            raise ProgramError("program text: no such op", got=repr(op_name))
        # An empty list of parameters is lexed together with the name.
        if not op_name.endswith("[]") and self.accept("["):
            while not self.accept("]"):
                key = self.next()
                self.expect("=")
                params[key] = self.value()
        inputs: list[Atom] = []
        while self._more_inputs():
            inputs.append(self.atom(env))
        scope = self.next()[1:] if self.peek().startswith("@") else ""
        env.update(names)
        return Equation(op, tuple(inputs), tuple(v for _, v in names), op.pack_params(params), None, scope)

    def _more_inputs(self) -> bool:
        word = self.peek()
        if word in ("in", "=", "") or word.startswith("@"):
            return False
        ahead = self.tokens[self.at + 1 : self.at + 4]
        if ahead[:1] != [":"]:
            return True
        # `name:type` opens the next equation; `1.0:type` is a literal.
        return not re.fullmatch(r"[a-z]+_?", word) or word in ("inf", "nan")

    def value(self) -> Any:
        word = self.peek()
        if word == "{":
            return self.program(())
        if word == "(":
            self.next()
            items: list[Any] = []
            while not self.accept(")"):
                items.append(self.value())
                self.accept(",")
            return tuple(items)
        self.next()
        if word.startswith("<"):
            raise ProgramError("program text: a Python function cannot be parsed", got=word)
        if re.fullmatch(r"[a-z0-9_]+(<fry>)?\[[0-9,]*\]\*?(\{V:[^}]*\})?", word):
            return parse_type(word)
        if word in PARAM_CLASSES:
            return self.instance(PARAM_CLASSES[word])
        if word in ("inf", "-inf", "nan"):
            return float(word)
        if word == "key" or (word not in ("None", "True", "False") and re.fullmatch(r"[a-z][a-z0-9_]*", word)):
            return dtypes.from_short_name(word)
        return _python_value(word)

    def instance(self, cls: Any) -> Any:
        if self.accept("."):
            return cls[self.next()]
        self.expect("(")
        fields: dict[str, Any] = {}
        while not self.accept(")"):
            name = self.next()
            self.expect("=")
            fields[name] = self.value()
            self.accept(",")
        return cls(**fields)


def parse_program(text: str, consts: Arrays = ()) -> Program:
    """The program that ``text`` describes, checked.

    Args:
        text: as printed by `Program`.
        consts: values of the variables before ``;``.

    Raises:
        ProgramError: the text is not a program, or is not well typed.

    >>> program = nx.make_jaxpr(lambda x: x * 2)(1.0)
    >>> str(parse_program(str(program))) == str(program)
    True
    """
    try:
        parser = _Parser(text)
        program = parser.program(tuple(consts))
        if parser.peek():
            raise ProgramError("program text: words after the end", got=parser.peek())
        return program.check()
    except NxError:
        raise
    except Exception as error:  # parameters may be anything, and each op raises its own errors
        raise ProgramError(
            "program text: parameters or literals that no program has",
            got=f"{type(error).__name__}: {str(error)[:200]}",
            expected="a text as programs print",
        ) from None
