"""The error family, and the user's source line that every error names.

This file knows nothing of arrays, ops or transforms: it turns *what was got*, *what was expected* and *how to mend it*
into one message, and finds the line of the user's own code to put beside it. Classes carry the names and the base
classes that JAX programs already catch.
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

    ``what`` says what is wrong and names the op or transform; ``got``, ``expected`` and ``fix`` are one line each.
    ``more`` are further lines, with their labels.
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
    """Shapes that do not fit the op. Both TypeError and ValueError, because JAX raises either."""


class DtypeError(NxError, TypeError):
    """A dtype the op does not take, or operands whose dtypes differ."""


class AxisError(NxError, ValueError, IndexError):
    """An axis outside the array's rank, or named twice."""


class ParameterError(NxError, ValueError, TypeError):
    """A static parameter with a value the op or transform cannot take."""


class SettingError(ParameterError, AttributeError):
    """A setting that does not exist. Also an AttributeError, which JAX raises."""


class SamplerDtypeError(DtypeError, ValueError):
    """A dtype that a sampler of `nx.random` cannot draw. Also a ValueError, which JAX raises."""


class MissingRuleError(ParameterError, AttributeError):
    """A function with a derivative or a batching rule of its own was called before it had one."""


class JAXTypeError(NxError, TypeError):
    """JAX's base of errors about traced values and keys."""


class JAXIndexError(NxError, IndexError):
    """JAX's base of errors about indices."""


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where Python needs a concrete one."""


class TracerPlaceError(ConcretizationTypeError, AttributeError):
    """A traced value was asked where it lies; `hasattr` and `getattr` with a default find nothing."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value in `if`, `while`, `and`, `or`, `not` or `assert`."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value used as a Python index or size."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value handed to NumPy or another library."""


class NonConcreteBooleanIndexError(ConcretizationTypeError, JAXIndexError):
    """Indexing with a traced boolean mask: the result's shape would depend on values."""


class UnexpectedTracerError(JAXTypeError):
    """A traced value that outlived the function it was traced in."""


class LeakedTracerError(UnexpectedTracerError):
    """`checking_leaks` found traced values that somebody holds after their function has returned."""


class NonFiniteError(NxError, FloatingPointError):
    """`debug_nans` or `debug_infs` found a NaN, or an infinity.

    Attributes:
        op: the name of the op that made the first; empty where it came in from outside.
        index: where in the op's result the first is.
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
    """Operands whose dtypes have no common one, or differ while ``numpy_dtype_promotion`` is "strict"."""


class TransformDisabledError(NxError, RuntimeError):
    """Something was traced under ``no_tracing``, or run under ``no_execution``."""


class TreeError(NxError, ValueError, TypeError):
    """Two pytrees that should have the same structure do not."""


def needs_function(where: str, fun: object, instead: str) -> None:
    """Refuse what cannot be called; ``instead`` is a call as it should be."""
    if not callable(fun):
        raise ParameterError(f"{where}: needs a function", got=described(fun), expected=instead)


class GradientError(NxError, TypeError, ValueError):
    """`grad` of something that has no gradient: non-scalar output, integer input, no reverse-mode rule."""


class StaticArgumentError(NxError, ValueError, TypeError):
    """A static argument of `jit` that is not hashable, or an index that names no argument."""


class AxisSpecError(NxError, ValueError, TypeError):
    """`in_axes`, `out_axes` or an axis name of `vmap` that does not fit the arguments."""


class ShardingError(NxError, ValueError, TypeError):
    """A mesh, a partition spec or a sharding that does not fit the mesh or the array it is for."""


class CarryTypeError(NxError, TypeError):
    """The carry of a loop changes its type from one step to the next."""


class BranchTypeError(NxError, TypeError):
    """The branches of `cond` or `switch` give results of different types."""


class ImmutableArrayError(NxError, TypeError):
    """An Array was assigned to in place."""


class KeyTypeError(NxError, TypeError, ValueError):
    """Something that is not a random key was used as one, or the other way round."""


class MissingExtraError(NxError, ImportError):
    """An optional dependency that the call needs is not installed, or has an unsupported version."""


class LoweringError(NxError, NotImplementedError):
    """An op that the chosen executor or format has no rule for."""


class UnsupportedOpsError(LoweringError):
    """Equations of a program that an NPU has no instruction for: all of them in one message, one each in ``rows``."""

    rows: tuple[object, ...] = ()


class PlacementError(NxError, RuntimeError):
    """Ops that cannot run where they have to: ``strict`` compilation that would leave some to the host, or a pin of
    `nx.Hybrid` that cannot be kept, or ops that none of its units takes. All of them, one each in ``rows``."""

    rows: tuple[object, ...] = ()


class MemoryLimitError(NxError, MemoryError):
    """A program's activations do not fit the memory that it is given."""


class DeviceMemoryError(MemoryLimitError):
    """A program does not fit in a device's memory, as the device's own compiler found out.

    Attributes:
        required, available: bytes, where the compiler said them.
        buffers: (bytes, what) of the largest, where they are known.
    """

    required: int | None = None
    available: int | None = None
    buffers: tuple[tuple[int, str], ...] = ()


class TileMemoryError(MemoryLimitError):
    """A program needs more memory on a tile of an IPU than the tile has: what lies there in ``rows``, largest first."""

    tile: int = 0
    needed: int = 0
    available: int = 0
    rows: tuple[object, ...] = ()


class ExecutionError(NxError, RuntimeError):
    """A compiled program failed while it ran, or a vendor's tool did.

    Attributes:
        refused: whether ``got`` is the tool's own word against the program; if not, it did not come to answer.
        command: how the tool was called; empty where none was.
        status: the tool's exit status; None where it has none.
    """

    refused: bool = False
    command: str = ""
    status: int | None = None


class FigureError(NxError, KeyError):
    """A figure that a cost does not have."""

    # That of KeyError would quote the whole message.
    __str__ = Exception.__str__


class ProcessLostError(ExecutionError):
    """Another of the processes that compute together has died, ended with an error or does not answer."""


class ProgramError(NxError, ValueError, TypeError):
    """A Program that is not well formed, or a text that is not a Program."""


class NestingError(NxError, RecursionError):
    """Traced functions in traced functions, deeper than the stack allows for: mostly one that calls itself."""


class InvalidFileError(NxError, ValueError):
    """A file that is damaged, not of its format, or holds what nxjax cannot read."""


class KernelError(NxError, ValueError):
    """A custom op or a kernel of one that is not what it says: it fails its own test and is not registered."""


class VerificationError(NxError, AssertionError):
    """A compiled program that is not what it was made from: a defect of nxjax, found before the program ran."""


# JAX's name for a failure of compiled code.
JaxRuntimeError = ExecutionError
# JAX's name for a program that is not well formed.
JaxprTypeError = ProgramError
# JAX's name for what cannot be said of symbolic sizes: here every use of one is a `LoweringError`.
InconclusiveDimensionOperation = LoweringError
