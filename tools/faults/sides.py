"""Which sides of each decision tests take: of conditions in the sources, and of branches in code that is emitted.

A line that ran says little: `a and b` may never have been false by `b`, and what an emitter writes may never have
branched. So each operand of a condition is looked at by itself, and a comparison of numbers with a constant has an
edge, which is missing where they were never equal. Emitted code notes in memory which way it goes, by the line that
wrote it. Runs in a child of this process, over a copy of the tree; what compares texts of emitted code fails there.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import json
import operator
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Final, final

import pytest

from tools.faults import children

TRUE, FALSE, LESS, EQUAL, MORE = 1, 2, 4, 8, 16
_SECONDS: Final = 3600.0
_OPERATORS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ORDER: Final = list(_OPERATORS)
Place = tuple[str, int, str]  # path, line, text


@final
class Decisions(ast.NodeTransformer):
    """Conditions of one file as calls that note what they give; the numbers of new ones come from ``take``."""

    def __init__(self, take: Callable[[int, str], int]) -> None:
        self._take = take

    def _noted(self, e: ast.expr, text: str, function: str, *given: Any) -> ast.expr:
        number = ast.Constant(self._take(e.lineno, text))
        return ast.copy_location(ast.Call(ast.Name(function, ast.Load()), [number, *given], []), e)

    def condition(self, e: ast.expr) -> ast.expr:
        """``e`` where its truth alone counts."""
        if isinstance(e, ast.BoolOp) or (isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not)):
            return self.visit(e)
        if isinstance(e, ast.Constant) or (isinstance(e, ast.Name) and e.id == "TYPE_CHECKING"):
            return e
        text = ast.unparse(e)
        if isinstance(e, ast.Compare) and len(e.ops) == 1 and type(e.ops[0]) in _OPERATORS:
            order = ast.Constant(_ORDER.index(type(e.ops[0])))
            return self._noted(e, text, "_sides_compare", order, self.visit(e.left), self.visit(e.comparators[0]))
        return self._noted(e, text, "_sides_truth", self.generic_visit(e))

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        node.values = [self.condition(v) for v in node.values]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        node.operand = self.condition(node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return self.condition(node)

    def _tested(self, node: Any) -> Any:
        test = node.test
        node.test = ast.Constant(True)  # what is in it is not visited twice
        self.generic_visit(node)
        node.test = self.condition(test)
        return node

    visit_If = visit_While = visit_IfExp = _tested

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        wanted, node.ifs = node.ifs, []
        self.generic_visit(node)
        node.ifs = [self.condition(e) for e in wanted]
        return node


@final
class _Loader(SourceFileLoader):
    """Reads a module with its conditions noted."""

    def __init__(self, name: str, path: str, seen: Seen) -> None:
        super().__init__(name, path)
        self._seen = seen

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._seen.changed(Path(self.path)), self.path, "exec", dont_inherit=True)


@final
class Seen:
    """What was seen of the conditions below ``folders``: an import hook."""

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self._root, self._folders = root, tuple(f"{root}/{f}" for f in folders)
        self.places: list[Place] = []
        self.masks: list[int] = []
        builtins.__dict__.update(_sides_truth=self._truth, _sides_compare=self._compare)

    def changed(self, path: Path) -> ast.Module:
        """The tree of a file with its conditions noted."""

        def take(line: int, text: str) -> int:
            self.places.append((path.relative_to(self._root).as_posix(), line, text))
            self.masks.append(0)
            return len(self.masks) - 1

        return ast.fix_missing_locations(Decisions(take).visit(ast.parse(path.read_bytes(), str(path))))

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name.startswith("nxjax.") else None
        if spec is None or not (spec.origin or "").startswith(self._folders):
            return None
        spec.loader = _Loader(name, str(spec.origin), self)
        return spec

    def _truth(self, number: int, x: Any) -> Any:
        with suppress(Exception):  # what has no truth is used for something else
            self.masks[number] |= TRUE if x else FALSE
        return x

    def _compare(self, number: int, order: int, a: Any, b: Any) -> Any:
        if isinstance(a, int | float) and isinstance(b, int | float):
            self.masks[number] |= LESS if a < b else MORE if a > b else EQUAL
        return self._truth(number, _OPERATORS[_ORDER[order]](a, b))


def _has_constant(text: str) -> bool:
    """Whether a side of a comparison is a number above 1, or a name in capitals: a threshold."""
    found = ast.walk(ast.parse(text, mode="eval"))
    names = [n.id if isinstance(n, ast.Name) else n.attr for n in found if isinstance(n, ast.Name | ast.Attribute)]
    numbers = [n.value for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Constant)]
    return any(n.isupper() and len(n) > 1 for n in names) or any(isinstance(n, int | float) and n > 1 for n in numbers)


def missing(mask: int, text: str) -> str:
    """What was not seen of a condition, or nothing."""
    if not mask & (TRUE | FALSE):
        return "never asked"
    if mask & (TRUE | FALSE) != TRUE | FALSE:
        return "only true" if mask & TRUE else "only false"
    return "no edge" if mask & (LESS | MORE) and not mask & EQUAL and _has_constant(text) else ""


# --- code that is emitted ---


@final
class Emitted:
    """Lets machine code write down which way its branches and loops go: a byte for each side of each line."""

    SIZE: Final = 1 << 20

    def __init__(self, root: Path) -> None:
        self._root = root
        self._memory = (ctypes.c_uint8 * self.SIZE)()
        self._bytes: dict[tuple[Place, int], int] = {}

    def sides(self) -> list[tuple[Place, list[int]]]:
        return [(place, [int(v) for v in self._memory[at : at + n]]) for (place, n), at in self._bytes.items()]

    def _at(self, what: str, sides: int) -> int:
        frame: Any = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        while frame.f_code.co_filename.endswith(("kernels/cpu/ir.py", "contextlib.py", "faults/sides.py")):
            frame = frame.f_back
        path = frame.f_code.co_filename.removeprefix(f"{self._root}/")
        key = ((path, int(frame.f_lineno), what), sides)
        return ctypes.addressof(self._memory) + self._bytes.setdefault(key, 4 * len(self._bytes))

    def attach(self) -> None:
        """From now on functions that are written note what they do.

        Machine code from a cache would not, and what is kept there would write to this memory in other processes.
        """
        from nxjax.config import config
        from nxjax.kernels.cpu.ir import Function, Loop, Value

        config.update("cache_dir", "")
        branch, if_, loop = Function.branch_if, Function.if_, Function.loop
        outer = self

        def note(f: Function, base: int, side: Value) -> None:
            place = f.cast("inttoptr", side.convert("i64", signed=False) + base, "ptr")
            f.line(f"store volatile i8 1, ptr {place.name}, align 1")

        def branch_if(f: Function, condition: Value, yes: str, no: str) -> None:
            note(f, outer._at("branch", 2), condition)
            branch(f, condition, yes, no)

        def noted_if(f: Function, condition: Value) -> Any:
            note(f, outer._at("if", 2), condition)
            return if_(f, condition)

        @contextmanager
        def noted_loop(
            f: Function, lo: Value | int, hi: Value | int, step: Value | int = 1, *given: Any, **named: Any
        ) -> Generator[Loop]:
            if any(isinstance(x, Value) for x in (lo, hi, step)):
                first, end = f.value(lo, "i64"), f.value(hi, "i64")
                turns = first.lt(end).convert("i64", signed=False)
                turns = turns + (first + f.value(step, "i64")).lt(end).convert("i64", signed=False)
                note(f, outer._at("loop", 3), turns)
            with loop(f, lo, hi, step, *given, **named) as written:
                yield written

        Function.branch_if, Function.if_, Function.loop = branch_if, noted_if, noted_loop  # type: ignore[method-assign]


def unseen(what: str, sides: Sequence[int]) -> str:
    """What emitted code never did, or nothing; loops may go round never, once or more often."""
    if what == "loop":
        often = [n for n, side in zip(("never", "once", "more often"), sides, strict=True) if side]
        return "" if len(often) > 1 else f"goes round {often[0]} only" if often else "is never reached"
    return "" if all(sides) else "is never reached" if not any(sides) else f"is never {'true' if sides[0] else 'false'}"


# --- the command ---


def observed(tree: Path, folders: Sequence[str], tests: Iterable[str]) -> tuple[int, dict[str, Any]]:
    """The status of ``tests`` in this process, which has imported nothing of ``tree``; and what `text` takes."""
    seen, emitted = Seen(tree, folders), Emitted(tree)
    sys.meta_path.insert(0, seen)
    emitted.attach()
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", *tests])
    conditions = [[*p, m] for p, m in zip(seen.places, seen.masks, strict=True)]
    return int(status), {"conditions": conditions, "emitted": [[*p, s] for p, s in emitted.sides()]}


def measured(root: Path, folders: Sequence[str], tests: Sequence[str]) -> children.Outcome:
    """`observed` over a copy of ``root``."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tree = Path(folder)
        children.copy_of(root, tree)

        def work(report: Path) -> int:
            status, found = observed(tree, folders, tests)
            report.write_text(json.dumps(found))
            return status

        return children.run(tree, work, _SECONDS)


def text(report: dict[str, Any], folders: Sequence[str]) -> str:
    """What no test does, by file and line, and counts."""
    lines: dict[tuple[str, int], list[str]] = {}
    for path, line, said, mask in report["conditions"]:
        if what := missing(mask, said):
            lines.setdefault((path, line), []).append(f"{what}: {said}")
    written = [e for e in report["emitted"] if e[0].startswith(tuple(folders))]
    for path, line, kind, sides in written:
        if what := unseen(kind, sides):
            lines.setdefault((path, line), []).append(f"emitted {kind} {what}")
    found = [f"{path}:{line}: {said[:120]}" for (path, line), all_ in sorted(lines.items()) for said in all_]
    counts = f"{len(report['conditions'])} conditions and {len(written)} emitted branches"
    return "\n".join([*found, f"{counts}, {len(found)} without a side or an edge"])
