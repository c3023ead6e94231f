"""`nx.debug.breakpoint`, a debugger with the values of a running program, and `nx.debug.log`."""

from __future__ import annotations

import logging as _logging
import pdb
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, final

import numpy as np

from nxjax.errors import Shown, is_internal
from nxjax.trace import tree
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.transforms.callback import debug_callback


@final
class DebugEffect(Shown):
    """JAX's name for the effect of `debug.print` and `debug.callback`; here a flag of their ops."""


@final
class OrderedDebugEffect(Shown):
    """As `DebugEffect`, of callbacks that keep their order."""


def _is_array(x: Any) -> bool:
    return isinstance(x, (Array, np.ndarray))


def _user_frames(limit: int) -> list[FrameType]:
    """The user's own frames, innermost first."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(found) < limit:
        if not is_internal(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


class _Prompt(pdb.Pdb):
    """Python's debugger at a line that is not running any more: variables can be looked at, not stepped through.

    ``u`` and ``d`` go to the callers and back, ``c`` goes on, ``q`` ends the program with `SystemExit`.
    """

    def __init__(self, places: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.prompt = "(nxdb) "
        self.places = places
        self.place = 0
        self._enter()

    def _enter(self) -> None:
        where, values, names = self.places[self.place]
        self.curframe = None
        self.values = values
        self.names_ = {**names, **values}
        self.message(f"> {where}")

    def run_loop(self) -> None:
        self.cmdloop()

    def default(self, line: str) -> Any:
        line = line.removeprefix("!").strip()
        try:
            try:
                value = eval(line, self.names_)
                if value is not None:
                    self.message(repr(value))
            except SyntaxError:
                exec(line, self.names_)
        except Exception as error:
            self.error(f"{type(error).__name__}: {error}")

    def do_p(self, arg: str) -> Any:
        """p expression: its value."""
        self.default(arg)

    do_pp = do_p

    def do_list(self, arg: str) -> Any:
        """l(ist): the line."""
        self.message(self.places[self.place][0])

    do_l = do_ll = do_longlist = do_list

    def do_where(self, arg: str) -> Any:
        """w(here): the lines that called, the present one marked."""
        for i, (where, _, _) in enumerate(self.places):
            self.message(f"{'->' if i == self.place else '  '} {where}")

    do_w = do_bt = do_where

    def _move(self, step: int, none: str) -> None:
        if not 0 <= self.place + step < len(self.places):
            self.error(none)
            return
        self.place += step
        self._enter()

    def do_up(self, arg: str) -> Any:
        """u(p): to the caller."""
        self._move(1, "Oldest frame")

    def do_down(self, arg: str) -> Any:
        """d(own): back to what it called."""
        self._move(-1, "Newest frame")

    do_u, do_d = do_up, do_down

    def do_args(self, arg: str) -> Any:
        """a(rgs): the local variables."""
        for name, value in self.values.items():
            self.message(f"{name} = {value!r}")

    do_a = do_args

    def do_continue(self, arg: str) -> Any:
        """c(ontinue): let the program go on."""
        return True

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> Any:
        """q(uit): end the program."""
        raise SystemExit(0)

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> Any:
        """End of the input: go on."""
        return True

    def do_next(self, arg: str) -> Any:
        """Compiled code has no lines to step through."""
        self.error("a compiled program has no next line; c goes on to the next breakpoint")

    do_n = do_s = do_step = do_next


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    stdin: Any = None,
    stdout: Any = None,
    **_: Any,
) -> None:
    """Open a debugger when the program gets here, compiled or not, with the values of the surrounding variables.

    Args:
        num_frames: how many enclosing calls you can inspect; by default all.
        ordered: keep the order of breakpoints and other ordered callbacks.
        stdin, stdout: for commands and answers.
        backend, filter_frames, token: accepted as in JAX.

    Commands: ``p x``, any Python expression, ``u``, ``d``, ``w``, ``a``, ``c`` and ``q``.

    >>> import io
    >>> @nx.jit
    ... def f(x):
    ...     y = x + 1
    ...     breakpoint(stdin=io.StringIO("p y\\nc\\n"), stdout=out, num_frames=1)
    ...     return y
    >>> out = io.StringIO()
    >>> y = f(1.0)
    >>> "Array(2." in out.getvalue()
    True
    """
    frames = _user_frames(num_frames or 20)
    heads = [f"{f.f_code.co_filename}({f.f_lineno}){f.f_code.co_name}()" for f in frames]
    names = [f.f_globals for f in frames]
    traced: list[dict[str, Any]] = []
    still: list[dict[str, Any]] = []
    for f in frames:
        held = dict(f.f_locals) if f.f_locals is not f.f_globals else {}
        arrays = {n: v for n, v in held.items() if tree.leaves(v) and all(map(_is_array, tree.leaves(v)))}
        traced.append(arrays)
        still.append({n: v for n, v in held.items() if n not in arrays})

    def stop(values: Any) -> None:
        places = [
            (head, {**others, **own}, known)
            for head, own, others, known in zip(heads, values, still, names, strict=True)
        ]
        _Prompt(places, stdin=stdin, stdout=stdout).run_loop()

    debug_callback(stop, traced, ordered=ordered)


@entry
def log(
    fmt: str, *args: Any, ordered: bool = False, level: int = _logging.INFO, logger: Any = None, **kwargs: Any
) -> None:
    """Log when the program gets here, with its values.

    Args:
        fmt: as of `str.format`.
        level, logger: of `logging`; the logger ``nxjax.debug`` by default.

    >>> nx.jit(lambda x: log("x = {}", x))(1.0)
    """
    out = logger if logger is not None else _logging.getLogger("nxjax.debug")

    def write(*values: Any, **named: Any) -> None:
        out.log(level, fmt.format(*values, **named))

    debug_callback(write, *args, ordered=ordered, **kwargs)
