"""What all commands have in common. Knows none of them."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import re
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, ParamSpec

_P = ParamSpec("_P")

# What a shell says of a command that a closed pipe has ended, and of one that Ctrl-C has.
CLOSED: Final = 128 + getattr(signal, "SIGPIPE", 13)
STOPPED: Final = 128 + signal.SIGINT


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the command, option or choice that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and what was meant, and end with status 2."""
        wrong = re.search(r"invalid choice: '([^']*)'|unrecognized arguments: (\S+)", message)
        word = (wrong[1] or wrong[2] or "") if wrong else ""
        options, commands = self._known()
        meant = _MEANT.get(word.lstrip("-").lower())
        near = (
            [meant] if meant else difflib.get_close_matches(word, options if word.startswith("-") else commands, 1, 0.5)
        )
        super().error(f"{message}\ndid you mean {near[0]}?" if near else message)

    def _known(self) -> tuple[list[str], list[str]]:
        """Options and choices of this parser and of its commands."""
        options, choices = list[str](), list[str]()
        for action in self._actions:
            options += action.option_strings
            choices += map(str, action.choices or ())
            if isinstance(action.choices, dict):
                for parser in action.choices.values():
                    more, inner = parser._known()
                    options, choices = options + more, choices + inner
        return list(dict.fromkeys(options)), list(dict.fromkeys(choices))


# What other tools call a command, and what is done in Python.
_MEANT: Final = {
    **dict.fromkeys(("targets", "devices", "chips", "list", "status"), "nxjax info --all"),
    **dict.fromkeys(("docs", "man", "error"), "nxjax explain"),
    **dict.fromkeys(("compile", "convert", "export"), "nx.compile(f, target=...)(x), in Python"),
    "quantize": "nx.quantize(f, calibrate=batches), in Python",
    "v": "nxjax --version",
}


def command(main: Callable[_P, int]) -> Callable[_P, int]:
    """Decorator of a command's function, which gives its status: it ends in silence where nobody reads on (``| head``).

    Not by the signal that other programs let this end them with: it would also come of other pipes and sockets.
    Ctrl-C ends it with one line.
    """

    @functools.wraps(main)
    def ended(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            try:
                status = main(*args, **kwargs)
            except SystemExit:  # of argparse
                sys.stdout.flush()
                raise
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return STOPPED
        except BrokenPipeError:
            closed = [s for s in (sys.stdout, sys.stderr) if _is_closed(s)]
            if not closed:
                raise
            # What is left to write goes nowhere, also when Python ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in closed:
                os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            return CLOSED

    return ended


def _is_closed(stream: Any) -> bool:
    """Whether ``stream`` is a pipe that nobody reads."""
    try:
        stream.flush()
        if hasattr(select, "poll"):
            asked = select.poll()
            asked.register(stream.fileno(), 0)
            return any(what & select.POLLERR for _, what in asked.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError):  # it has no number
        pass
    return False
