"""The error family, and the user's source line that every error names.

This file knows nothing of arrays, ops or transforms. It turns what was got, what was expected and the fix into one
message, and finds the line of the user's code. Classes have the names and base classes that JAX programs catch.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Final, final

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Frames of these files are never "the user's own line", though they may call back into user code.
_FOREIGN: Final = (os.sep + "optree" + os.sep, os.sep + "contextlib.py", os.sep + "functools.py", "<frozen")
_DEMOS: Final = (os.path.join(_PACKAGE, "demo"),)
_TRANSPARENT: Final = (*_DEMOS, os.path.join(_PACKAGE, "testing"))


@final
class Source:
    """A line of user code, held as code object and instruction so that keeping one costs no string work."""

    __slots__ = ("code", "instruction", "note")

    def __init__(self, code: CodeType, instruction: int, note: str = "") -> None:
        self.code = code
        self.instruction = instruction
        # What of this line it is, such as "the backward pass of log": only written where somebody debugs.
        self.note = note

    def noted(self, note: str) -> Source:
        """The same line, with a note."""
        return Source(self.code, self.instruction, note)

    def __reduce__(self) -> tuple[object, ...]:
        # Code cannot be pickled: what is read is the line of code that does nothing, with the names of this one.
        code = self.code
        return _unpickled, (code.co_filename, code.co_name, code.co_qualname, self.line, self.note)

    def shown(self) -> str:
        """The line with its text."""
        text = self.text
        return f"{self}: {text}" if text else str(self)

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def function(self) -> str:
        return self.code.co_qualname

    @property
    def line(self) -> int:
        for start, stop, line in self.code.co_lines():
            if start <= self.instruction < stop and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"

    __repr__ = __str__


def _unpickled(file: str, name: str, function: str, line: int, note: str) -> Source:
    code = (lambda: None).__code__
    return Source(code.replace(co_filename=file, co_name=name, co_qualname=function, co_firstlineno=line), 0, note)


# What calls these is the script that a command is installed as, and nobody's program.
_COMMANDS: Final = (os.path.join(_PACKAGE, "__main__.py"), os.path.join(_PACKAGE, "demo", "__main__.py"))
_COMMAND: Final = 2  # in place of True
_internal: dict[str, int] = {}


def is_internal(filename: str) -> int:
    """Not 0 for nxjax's own files and for helpers that only pass calls through; ``_COMMAND`` for a command's script."""
    known = _internal.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        inside = path.startswith(_PACKAGE) and not filename.startswith(_TRANSPARENT)
        known = inside or any(part in filename for part in _FOREIGN)
        known = _internal[filename] = _COMMAND if path in _COMMANDS else known
    return known


def exclude_from_sources(filename: str) -> None:
    """Lines of a file are no user's: a library whose callers want to read of their own."""
    _internal[filename] = True


def user_source(*, own: tuple[str, ...] = _TRANSPARENT) -> Source | None:
    """The innermost frame outside nxjax, or None when there is none.

    ``own``: folders of nxjax that count as outside, of demos and of what tests functions.
    """
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        code = frame.f_code
        internal = _internal.get(code.co_filename)
        if internal is None:
            internal = is_internal(code.co_filename)
        # What `dataclass` writes has no file, and is nobody's line.
        if (
            not internal
            and not code.co_qualname.startswith("__create_fn__")
            and (own is _TRANSPARENT or _is_outside(code, own))
        ):
            return Source(code, frame.f_lasti)
        if internal == _COMMAND:
            return None
        frame = frame.f_back
    return None


def _is_outside(code: CodeType, own: tuple[str, ...]) -> bool:
    path = os.path.abspath(code.co_filename)
    return path.startswith(own) or not path.startswith(_PACKAGE)


def described(x: object) -> str:
    """What a message says was given in place of something else: never the name of a class of nxjax's own."""
    kind = getattr(x, "type", None)
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        return f"an array, {kind}"
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"  # pyright: ignore[reportUnknownArgumentType]
    return type(x).__name__


_PLAIN: Final = (str, int, float, complex, os.PathLike, type(None))


class Shown:
    """A base whose repr is the class and those of its public attributes that are plain values."""

    __slots__ = ()

    def __repr__(self) -> str:
        slots = [n for c in type(self).__mro__ for n in getattr(c, "__slots__", ())]
        names = [n for n in dict.fromkeys(("name", *slots, *getattr(self, "__dict__", ()))) if not n.startswith("_")]
        found = [(n, getattr(self, n, self)) for n in names]
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in found if isinstance(v, _PLAIN))})"


class NxError(Exception):
    """Base of every error nxjax raises on purpose.

    ``what`` says what is wrong and names the op or transform. ``got``, ``expected`` and ``fix`` are one line each.
    ``more`` has more lines, with their labels.
    """

    def __init__(
        self,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
        source: Source | None = None,
        more: Sequence[tuple[str, object]] = (),
    ) -> None:
        self.what = what
        self.more = tuple(more)
        self.got = got
        self.expected = expected
        self.fix = fix
        # Who calls a function of nxjax's has given it what is wrong, even if that function is written as a user's is.
        self.source = source or user_source(own=()) or user_source(own=_DEMOS)
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self.what]
        rows = (("got", self.got), ("expected", self.expected), ("at", self._where()), *self.more, ("fix", self.fix))
        lines += [f"  {label + ':':<9} {value}" for label, value in rows if value is not None]
        # A class of the user's own, or a private one, is explained as what it derives from.
        kinds = (c for c in type(self).__mro__ if c.__module__.startswith("nxjax.") and c.__name__[0] != "_")
        lines.append(f"  {'docs:':<10}nxjax explain {next(kinds).__name__}")
        return "\n".join(lines)

    def _where(self) -> str | None:
        return None if self.source is None else self.source.shown()


class ShapeError(NxError, TypeError, ValueError):
    """Shapes do not fit the op. Both TypeError and ValueError, because JAX raises either."""


class DtypeError(NxError, TypeError):
    """A dtype the op does not take, or operands whose dtypes differ."""


class AxisError(NxError, ValueError, IndexError):
    """An axis is outside the array's rank, or named twice."""


class ParameterError(NxError, ValueError, TypeError):
    """A static parameter has a value that the op or transform does not accept."""


class SettingError(ParameterError, AttributeError):
    """There is no such setting. Also an AttributeError, which JAX raises."""


class SamplerDtypeError(DtypeError, ValueError):
    """A sampler of `nx.random` cannot draw this dtype. Also a ValueError, which JAX raises."""


class MissingRuleError(ParameterError, AttributeError):
    """A function with a custom derivative or batching rule was called before its rule was defined."""


class JAXTypeError(NxError, TypeError):
    """JAX's base of errors about traced values and keys."""


class JAXIndexError(NxError, IndexError):
    """JAX's base of errors about indices."""


class ConcretizationTypeError(JAXTypeError):
    """Python needs a concrete value but got a traced one."""


class TracerPlaceError(ConcretizationTypeError, AttributeError):
    """A traced value has no device or sharding; `hasattr` and `getattr` with a default find nothing."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used in `if`, `while`, `and`, `or`, `not` or `assert`."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used as a Python index or size."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value was passed to NumPy or another library."""


class NonConcreteBooleanIndexError(ConcretizationTypeError, JAXIndexError):
    """Indexing with a traced boolean mask: the result's shape would depend on values."""


class UnexpectedTracerError(JAXTypeError):
    """A traced value was used outside the function that traced it."""


class LeakedTracerError(UnexpectedTracerError):
    """`checking_leaks` found traced values that are still referenced after their function returned."""


class NonFiniteError(NxError, FloatingPointError):
    """`debug_nans` or `debug_infs` found a NaN, or an infinity.

    Attributes:
        op: the name of the op that made the first one; empty if it was an input.
        index: of the first one in the op's result.
    """

    op: str = ""
    index: tuple[int, ...] = ()

    def say(self, label: str, text: str) -> None:
        """Add a line to the message."""
        self.more = (*self.more, (label, text))
        self.args = (self._message(),)


class KeyReuseError(JAXTypeError):
    """`debug_key_reuse` found a random key that is used twice."""


class TypePromotionError(DtypeError, ValueError):
    """The dtypes of the operands have no common dtype, or differ while ``numpy_dtype_promotion`` is "strict"."""


class TransformDisabledError(NxError, RuntimeError):
    """A function was traced under ``no_tracing``, or run under ``no_execution``."""


class TreeError(NxError, ValueError, TypeError):
    """Two pytrees must have the same structure, but do not."""


def needs_function(where: str, fun: object, instead: str) -> None:
    """Refuse what cannot be called; ``instead`` is a call as it should be."""
    if not callable(fun):
        raise ParameterError(f"{where}: needs a function", got=described(fun), expected=instead)


class GradientError(NxError, TypeError, ValueError):
    """`grad` of a function that has no gradient: non-scalar output, integer input, no reverse-mode rule."""


class StaticArgumentError(NxError, ValueError, TypeError):
    """A static argument of `jit` is not hashable, or an index names no argument."""


class AxisSpecError(NxError, ValueError, TypeError):
    """`in_axes`, `out_axes` or an axis name of `vmap` does not fit the arguments."""


class ShardingError(NxError, ValueError, TypeError):
    """A partition spec or sharding does not fit its mesh or its array, or a mesh is not valid."""


class CarryTypeError(NxError, TypeError):
    """The carry of a loop changes its type from one step to the next."""


class BranchTypeError(NxError, TypeError):
    """The branches of `cond` or `switch` return results of different types."""


class ImmutableArrayError(NxError, TypeError):
    """Arrays cannot be changed in place."""


class KeyTypeError(NxError, TypeError, ValueError):
    """Something that is not a random key was used as one, or the other way round."""


class MissingExtraError(NxError, ImportError):
    """An optional dependency that the call needs is not installed, or has an unsupported version."""


class LoweringError(NxError, NotImplementedError):
    """The chosen executor or format has no rule for an op."""


class UnsupportedOpsError(LoweringError):
    """An NPU has no instruction for some equations of a program. The message lists all of them, and ``rows`` has one
    row for each."""

    rows: tuple[object, ...] = ()


class PlacementError(NxError, RuntimeError):
    """Ops cannot run where they must: ``strict`` compilation would leave some to the host, a pin of `nx.Hybrid` cannot
    be kept, or none of its units supports them. ``rows`` has one row for each."""

    rows: tuple[object, ...] = ()


class MemoryLimitError(NxError, MemoryError):
    """A program's activations do not fit in the memory limit."""


class DeviceMemoryError(MemoryLimitError):
    """The device's compiler reports that a program does not fit in the device's memory.

    Attributes:
        required, available: bytes, if the compiler reports them.
        buffers: (bytes, what) of the largest, if known.
    """

    required: int | None = None
    available: int | None = None
    buffers: tuple[tuple[int, str], ...] = ()


class TileMemoryError(MemoryLimitError):
    """A program needs more memory on a tile of an IPU than the tile has. ``rows`` lists its tensors, largest first."""

    tile: int = 0
    needed: int = 0
    available: int = 0
    rows: tuple[object, ...] = ()


class ExecutionError(NxError, RuntimeError):
    """A compiled program failed while it ran, or a vendor's tool did.

    Attributes:
        refused: whether ``got`` is the tool's message about the program; if not, the tool gave no answer.
        command: of the tool; empty if there was none.
        status: the tool's exit status, or None.
    """

    refused: bool = False
    command: str = ""
    status: int | None = None


class FigureError(NxError, KeyError):
    """A cost does not have this figure."""

    # That of KeyError would quote the whole message.
    __str__ = Exception.__str__


class ProcessLostError(ExecutionError):
    """Another process of the computation died, ended with an error or does not answer."""


class ProgramError(NxError, ValueError, TypeError):
    """A Program is not well formed, or a text is not a Program."""


class NestingError(NxError, RecursionError):
    """Traced functions are nested deeper than the stack allows. Usually one calls itself."""


class InvalidFileError(NxError, ValueError):
    """A file is damaged, has another format, or contains something that nxjax cannot read."""


class KernelError(NxError, ValueError):
    """A custom op or its kernel failed its test and is not registered."""


class VerificationError(NxError, AssertionError):
    """A compiled program differs from its source. This is a bug in nxjax, found before the program ran."""


# JAX's name for a failure of compiled code.
JaxRuntimeError = ExecutionError
# JAX's name for a program that is not well formed.
JaxprTypeError = ProgramError
# JAX's name for what cannot be said of symbolic sizes: here every use of one is a `LoweringError`.
InconclusiveDimensionOperation = LoweringError
