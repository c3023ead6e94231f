"""Sizes that stand open: what nxjax does not export, said where a JAX program asks for it."""

from __future__ import annotations

from typing import Any, NoReturn, final

from nxjax.errors import LoweringError, Shown


def _refused(what: str, got: object) -> NoReturn:
    raise LoweringError(
        f"export: {what}: every size is known when a function is traced",
        got=got,
        expected="integers",
        fix="make the function nx.bucketed, or export it once per shape; functions that JAX exported with symbolic "
        "shapes can be read and called",
    )


def symbolic_shape(shape_spec: str | None, *, constraints: Any = (), scope: Any = None, like: Any = None) -> Any:
    """Shapes with named sizes are read (`nx.export.deserialize`) but not written.

    Args:
        shape_spec: as in JAX. Numbers are returned unchanged.

    Raises:
        LoweringError: a size that is a name.

    >>> symbolic_shape("3, 4")
    (3, 4)
    """
    parts = [p.strip() for p in str(shape_spec or "").strip("() ").split(",")]
    sizes = [p for p in parts if p]
    if all(p.isdigit() for p in sizes):
        return tuple(int(p) for p in sizes)
    _refused("symbolic_shape", repr(shape_spec))


def symbolic_args_specs(args: Any, shapes_specs: Any, constraints: Any = (), scope: Any = None) -> Any:
    """As `symbolic_shape`: always an error.

    Raises:
        LoweringError: always.

    >>> try:
    ...     symbolic_args_specs((1.0,), "b")
    ... except LoweringError as error:
    ...     print(error.args[0].splitlines()[0])
    export: symbolic_args_specs: every size is known when a function is traced
    """
    _refused("symbolic_args_specs", repr(shapes_specs)[:80])


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size in ``in_avals`` of a function that JAX exported is an expression, which is a string.

    >>> is_symbolic_dim(3), is_symbolic_dim("2*b")
    (False, True)
    """
    return isinstance(p, str)


@final
class SymbolicScope(Shown):
    """For symbolic sizes, which nxjax does not export. Making one is an error that says what to do.

    Raises:
        LoweringError: always.

    >>> try:
    ...     SymbolicScope()
    ... except LoweringError as error:
    ...     print(error.args[0].splitlines()[0])
    export: SymbolicScope: every size is known when a function is traced
    """

    def __init__(self, constraints_str: Any = ()) -> None:
        _refused("SymbolicScope", repr(constraints_str)[:80])
