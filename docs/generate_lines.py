"""Writes the lines that docs/the_core.md links to: ``(file.py#L12 "Class.method")`` leads to where that is defined.

With ``--check`` it says only whether they are right.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parent / "the_core.md"
LINK = re.compile(r'\]\(([^)#\s]+\.py)#L(\d+) "([^"]+)"\)')


def lines(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, int]]:
    """The classes, functions and names that a file defines, and the lines where they begin."""
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            yield prefix + statement.name, statement.lineno
        elif isinstance(statement, ast.Assign):
            yield from ((prefix + t.id, statement.lineno) for t in statement.targets if isinstance(t, ast.Name))
        if isinstance(statement, ast.ClassDef):
            yield from lines(statement.body, f"{prefix}{statement.name}.")


def main() -> None:
    text = PAGE.read_text()

    def linked(found: re.Match[str]) -> str:
        file, _, name = found.groups()
        known = dict(lines(ast.parse((PAGE.parent / file).read_text()).body))
        return f']({file}#L{known[name]} "{name}")'

    new = LINK.sub(linked, text)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new)
    elif new != text:
        sys.exit(f"{PAGE.name} links to other lines than it says: run python docs/generate_lines.py")


if __name__ == "__main__":
    main()
