"""The arguments of a jitted function: which are static, donated or placed, and what those of a call are called.

Knows nothing of how a function is traced or run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import DtypeError, ParameterError, StaticArgumentError
from nxjax.trace import tree
from nxjax.trace.array import type_of
from nxjax.trace.sharding import Sharding
from nxjax.trace.wrapping import name_of
from nxjax.transforms.jit_options import shardings_of, static_key


@final
class Arguments(NamedTuple):
    """What `jit` was told of the arguments of ``fun``, by position and by name."""

    fun: Callable[..., Any]
    static_argnums: tuple[int, ...] = ()
    static_argnames: frozenset[str] = frozenset()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: frozenset[str] = frozenset()
    in_shardings: Any = None

    @property
    def name(self) -> str:
        return name_of(self.fun)

    @property
    def are_plain(self) -> bool:
        """Whether all are arrays to the program."""
        return not self.static_argnums and not self.static_argnames

    def dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Arguments without the static ones."""
        if self.are_plain:
            return args, kwargs
        fixed = _places(self.static_argnums, args)
        return (
            tuple([a for i, a in enumerate(args) if i not in fixed]),
            {k: v for k, v in kwargs.items() if k not in self.static_argnames},
        )

    def statics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The static arguments, as a hashable part of the cache key."""
        found: list[tuple[Any, Any]] = []
        for i in self.static_argnums:
            if -len(args) <= i < len(args):
                found.append((i % len(args), args[i]))
        found += [(k, kwargs[k]) for k in sorted(self.static_argnames & kwargs.keys())]
        for name, value in found:
            try:
                hash(value)
            except TypeError:
                raise StaticArgumentError(
                    f"jit: static argument {name!r} of {self.name} is not hashable",
                    got=f"{type(value).__name__}: {str(value)[:60]}",
                    expected="a value with __hash__ and __eq__",
                    fix="pass a tuple instead of a list, or make the argument traced",
                ) from None
        return tuple((name, static_key(value), value) for name, value in found)

    def names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """What the flat arguments that are not static are called."""
        dynamic_args, dynamic_kwargs = self.dynamic(args, kwargs)
        names: list[str] = []
        try:
            parameters = list(inspect.signature(self.fun).parameters)
        except (TypeError, ValueError):
            parameters = []
        fixed = _places(self.static_argnums, args)
        positions = [i for i in range(len(args)) if i not in fixed]
        for i, arg in zip(positions, dynamic_args, strict=True):
            names += tree.path_names(arg, parameters[i] if i < len(parameters) else f"argument {i}")
        for k in sorted(dynamic_kwargs):
            names += tree.path_names(dynamic_kwargs[k], k)
        return names

    def donated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """The positions of flat arguments that are gone after a call."""
        if not self.donate_argnums and not self.donate_argnames:
            return ()
        fixed, wanted = _places(self.static_argnums, args), _places(self.donate_argnums, args)
        flags: list[bool] = []
        for i, arg in enumerate(args):
            if i not in fixed:
                flags += [i in wanted] * len(tree.leaves(arg))
        for k in sorted(kwargs):
            if k not in self.static_argnames:
                flags += [k in self.donate_argnames] * len(tree.leaves(kwargs[k]))
        return tuple(i for i, flag in enumerate(flags) if flag)

    def shardings(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Sharding | None]:
        """What in_shardings says of each flat argument; empty where it was not given."""
        if self.in_shardings is None:
            return []
        dynamic_args, dynamic_kwargs = self.dynamic(args, kwargs)
        if tree.leaves(dynamic_kwargs):
            raise ParameterError(
                "jit: arguments by name cannot be given where there are in_shardings",
                got=sorted(dynamic_kwargs),
                fix="pass them by position",
            )
        wanted = self.in_shardings
        if isinstance(wanted, list):
            wanted = tuple(wanted)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(wanted, tuple) and len(wanted) != len(dynamic_args):  # pyright: ignore[reportUnknownArgumentType]
            raise ParameterError(
                "jit: in_shardings does not fit the arguments",
                got=f"{len(wanted)} entries for {len(dynamic_args)} arguments",  # pyright: ignore[reportUnknownArgumentType]
                expected="one entry per argument that is not static, or one for all",
            )
        return shardings_of(wanted, dynamic_args, "jit: in_shardings")

    def no_array(
        self, error: DtypeError, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
    ) -> DtypeError:
        """The error for an argument that is no array, with its name."""
        for name, x in zip(self.names(args, kwargs), leaves, strict=False):
            try:
                type_of(x, "jit")
            except DtypeError:
                return DtypeError(
                    f"jit: argument {name} of {self.name} is not an array",
                    got=error.got,
                    expected=error.expected,
                    fix=error.fix,
                )
        return error


def _places(positions: Sequence[int], args: Sequence[Any]) -> set[int]:
    """``positions``, counted from the start or the end, of arguments that were given."""
    return {i % len(args) for i in positions if -len(args) <= i < len(args)}
