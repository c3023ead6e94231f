"""Where faults can be planted: the nodes of a source file that matter, each with what may stand there instead.

What only changes speed, texts or types is left out by rule, since no test may depend on it: `SPEED`, `TEXTS`. Knows
syntax and names, and no test.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, final

from tools.faults.kinds import changes

# Reported apart; a file belongs to the first that it lies in.
FOLDERS: Final = (
    "nxjax/backends/cpu/native", "nxjax/backends/cpu", "nxjax/kernels/cpu", "nxjax/lower/cpu", "nxjax/lower/passes",
    "nxjax/ops", "nxjax/transforms", "nxjax/quant",
)  # fmt: skip
# Where functions named after derivatives are rules of derivatives.
RULES: Final = ("nxjax/ops/", "nxjax/transforms/")
# Equivalent by design, since only speed follows from it: sizes of blocks, estimates, hints.
SPEED_FILES: Final = ("kernels/cpu/knobs.py", "kernels/cpu/gemm_plan.py", "kernels/cpu/probe.py")
SPEED: Final = re.compile(
    r"(^|_)(cost|flops|grain|weight|weigh|dear|estimate|worth|pays|prefetch|hint|spins?|chunk_of|is_parallel|time_of|nanoseconds|"
    r"heuristic|unroll|stream|align|ahead|knobs|light|recent|at_once|maxsize|lru_cache|cache_info|speed|pause)(_|$)",
    re.I,
)  # fmt: skip
# Texts for people: what a thing is called or shown as, and what an error says.
TEXTS: Final = re.compile(
    r"^(__repr__|__str__|__format__|title|describe\w*|label|shown|named?|_repr\w*|_?explain\w*|reason|doc)$"
)
_SAID: Final = ("fix", "got", "expected", "doc", "what", "title", "label", "stacklevel")
_TYPES: Final = ("Final", "ClassVar", "cast", "TypeVar", "ParamSpec", "overload", "warn", "slots")


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one source file.

    Attributes:
        path: of the file.
        function: the qualified name of the function that it lies in; a class or empty, outside of functions.
        line: where it begins in the source that it was found in.
        kind: what is wrong.
        before: what stands there.
        after: what is planted.
        nth: which it is among equals of the function.
    """

    path: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    nth: int

    @property
    def id(self) -> str:
        """The same as long as the function has this text, whatever is written above it."""
        text = "\0".join((self.path, self.function, self.kind, self.before, self.after, str(self.nth)))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def folder(self) -> str:
        return next(f for f in FOLDERS if self.path.startswith(f + "/"))


@final
@dataclass(frozen=True, slots=True)
class Site:
    """A fault and the bytes of the source that it replaces."""

    fault: Fault
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


def sources(root: Path) -> list[str]:
    """The files that faults are planted in."""
    found = {p.relative_to(root).as_posix() for f in FOLDERS for p in (root / f).rglob("*.py")}
    return sorted(p for p in found if not p.endswith((*SPEED_FILES, "__init__.py")))


def sites(path: str, source: str) -> list[Site]:
    """All that may be planted in one file; what does not parse or says the same is left out."""
    walker = _Walker(path, source)
    walker.block(ast.parse(source), "")
    return walker.found


def difference(fault: Fault, source: str, changed: str) -> str:
    """The fault as a diff."""
    lines = unified_diff(source.splitlines(), changed.splitlines(), fault.path, fault.path, lineterm="", n=2)
    return "\n".join(lines)


class _Walker:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._rules = path.startswith(RULES)
        self._data = source.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: Counter[tuple[str, ...]] = Counter()
        self.found: list[Site] = []

    def block(self, node: ast.AST, function: str, within: str = "") -> None:
        """``node``'s children; ``function`` is the name around them, ``within`` what the names in it begin with."""
        for child in self._inside(node, function):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not (SPEED.search(child.name) or TEXTS.match(child.name)):
                    name = within + child.name
                    self.block(child, name, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
                continue
            if isinstance(child, ast.stmt | ast.expr):
                self._plant(child, function)
            self.block(child, function, within)

    def _inside(self, node: ast.AST, function: str) -> Iterator[ast.AST]:
        """The children that are more than speed, texts and types."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None)
            yield from (s for s in node.body if self._matters(s, function))
        elif isinstance(node, ast.ClassDef):
            yield from (s for s in node.body if self._matters(s, function))
        elif isinstance(node, ast.AnnAssign):
            yield from () if node.value is None else (node.value,)
        elif isinstance(node, ast.Assert):
            yield node.test
        else:
            yield from (c for c in ast.iter_child_nodes(node) if self._matters(c, function))

    def _matters(self, node: ast.AST, function: str) -> bool:
        match node:
            case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.arguments():
                return isinstance(node, ast.arguments)
            case ast.Expr(value=ast.Constant()):
                return False
            case ast.keyword(arg=name):
                return name not in _SAID and not SPEED.search(name or "")
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                if SPEED.search(_last(target)) or _last(target) in ("__slots__", "__all__", "name", "aliases"):
                    return False
                # Whole numbers of a module are sizes that were measured, or places that all users agree on.
                return bool(function) or not _is_number(node.value)
            case ast.If(test=test):
                return "TYPE_CHECKING" not in ast.unparse(test) and not self._speed(test)
            case ast.Expr(value=ast.Call() as call) | (ast.Call() as call):
                name = _last(call.func)
                return not (SPEED.search(name) or name in _TYPES or name.endswith("Error"))
            case ast.Compare() | ast.BoolOp() | ast.IfExp() | ast.BinOp():
                return not self._speed(node)
            case ast.expr_context() | ast.operator() | ast.cmpop() | ast.unaryop() | ast.boolop():
                return False
            case _:
                return True

    def _speed(self, node: ast.AST) -> bool:
        """Whether names in an expression say that it weighs what is faster."""
        return any(SPEED.search(_last(n)) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))

    def _plant(self, node: Any, function: str) -> None:
        if isinstance(node, ast.FormattedValue):
            return
        for kind, new in changes(node, function, rules=self._rules):
            target, text = node, ast.unparse(new)
            if isinstance(node, ast.If) and isinstance(new, ast.If):
                target, text = node.test, ast.unparse(new.test)
            start, end = self._at(target.lineno, target.col_offset), self._at(target.end_lineno, target.end_col_offset)
            if isinstance(node, ast.With):
                last = node.items[-1].context_expr
                end, text = self._at(last.end_lineno, last.end_col_offset), "if True"
            elif isinstance(new, ast.BinOp | ast.BoolOp | ast.IfExp | ast.UnaryOp | ast.Compare | ast.Lambda):
                text = f"({text})"
            before = self._data[start:end].decode()
            if text == before or ast.unparse(target) == text.strip("()"):
                continue
            key = (function, kind, before, text)
            self._seen[key] += 1
            fault = Fault(self._path, function, target.lineno, kind, before, text, self._seen[key])
            self.found.append(Site(fault, start, end, text))

    def _at(self, line: int | None, column: int | None) -> int:
        return self._starts[(line or 1) - 1] + (column or 0)


def _last(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return _last(value)
        case ast.Call(func=func):
            return _last(func)
        case _:
            return ""


def _is_number(node: ast.AST | None) -> bool:
    return node is not None and all(
        isinstance(n, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        or (isinstance(n, ast.Constant) and type(n.value) is int)
        for n in ast.walk(node)
    )


def chosen(found: Iterable[Site], seed: int, count: int) -> list[Site]:
    """``count`` of them by chance, folders and kinds in turn, at most one of a line and two of a function.

    The order is that of hashes with the seed, so that a change of the sources changes little of the choice.
    """
    strata: dict[str, dict[str, list[Site]]] = defaultdict(lambda: defaultdict(list))
    for s in found:
        strata[s.fault.folder][s.fault.kind].append(s)
    for kinds in strata.values():
        for rest in kinds.values():
            rest.sort(key=lambda s: _drawn(seed, s.fault.id))
    taken: list[Site] = []
    lines: set[tuple[str, int]] = set()
    functions: Counter[tuple[str, str]] = Counter()
    turn = 0
    while len(taken) < count and any(rest for kinds in strata.values() for rest in kinds.values()):
        for folder in sorted(strata):
            # All kinds once, in an order of the folder's own, before any comes again.
            kinds = sorted(strata[folder], key=lambda k: _drawn(seed, f"{folder} {k}"))
            rest = strata[folder][kinds[turn % len(kinds)]]
            while rest and len(taken) < count:
                s = rest.pop()
                line, function = (s.fault.path, s.fault.line), (s.fault.path, s.fault.function)
                if line not in lines and functions[function] < 2:
                    lines.add(line)
                    functions[function] += 1
                    taken.append(s)
                    break
        turn += 1
    return taken


def _drawn(seed: int, what: str) -> bytes:
    return hashlib.sha256(f"{seed} {what}".encode()).digest()
