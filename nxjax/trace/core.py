"""The language: a value, an op, a trace, and how an op meets the current trace.

Stackless tracing: one *current* trace, kept in a context variable. Binding an op hands it to that trace; the trace
either interprets it with its own rule, with its parent as the current trace, or passes it on to the parent. A value
belongs to a trace when ``x.owner is trace``; there are no levels and no tags. The outermost trace computes.

This file names no op, transform or device. Two things are set from outside, by the package's ``__init__``: the
`execute` hook that the outermost trace calls, and the operators of `Array`.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol, Self, TypeVar, final

import numpy as np

from nxjax.errors import NxError, Shown, UnexpectedTracerError
from nxjax.trace.types import ArrayType, Shape

if TYPE_CHECKING:
    # A stub without a file: the names of what `nxjax.numpy` attaches.
    from nxjax.trace.members import ArrayMembers  # pyright: ignore[reportMissingModuleSource]
else:
    ArrayMembers = object

Types = ArrayType | tuple[ArrayType, ...]
R = TypeVar("R")


class _Typed:
    """Has a type."""

    __slots__ = ()

    type: ArrayType

    @property
    def aval(self) -> ArrayType:
        """JAX's name for `type`."""
        return self.type

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)


class Array(_Typed, ArrayMembers):
    """An array with a shape and a dtype: concrete or traced. Immutable. Abstract.

    Not an `abc.ABC`, because ``isinstance(x, Array)`` runs several times per op and costs ten times as much there.

    ``isinstance(x, nx.Array)`` holds for both. Operators, methods and indexing are attached by `nxjax.numpy`.

    >>> isinstance(nx.ones(2), nx.Array), isinstance(nx.numpy.arange(3)[0], nx.Array), isinstance(1.0, nx.Array)
    (True, True, False)
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 100  # NumPy's operators yield to ours

    @property
    def weak_type(self) -> bool:
        return self.type.weak

    @property
    def size(self) -> int:
        return self.type.size

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements of a concrete array, as a read-only NumPy array."""
        raise NotImplementedError


Arrays = Sequence[Array]
# Tangents or cotangents; None is zero.
Tangents = Sequence[Array | None]
# The dimension in which each value is batched; None: in none.
Dims = Sequence[int | None]


class Tracer(Array):
    """A value that stands for one inside a trace.

    >>> nx.jit(lambda x: print(isinstance(x, nx.core.Tracer), x.shape, x.dtype) or x)(nx.ones(3)).tolist()
    True (3,) float32
    [1.0, 1.0, 1.0]
    """

    # Named so as not to hide the array methods `trace` and `var`.
    __slots__ = ("owner", "type")
    owner: Trace

    def origin(self) -> str:
        """Where the value came from, for error messages."""
        raise NotImplementedError

    # JAX's name.
    _trace = property(lambda self: self.owner)

    def numpy(self) -> NoReturn:
        """Asked for by the outermost trace, which no tracer can reach unless it has escaped."""
        raise escaped_tracer_error(self, "eager execution")


class Op(ABC):
    """One operation, and everything it must answer.

    ``infer`` is required, and one of ``expand`` and ``stablehlo``. A rule that is not written follows from ``expand``:
    the transforms apply themselves to the smaller ops it is made of.

    Shapes in rules: ``primals``/``tangents``/``args`` are tuples with one entry per operand; a tangent that is None is
    zero. Results are one value, or a tuple where ``multi`` is set.
    """

    name: ClassVar[str]
    multi: ClassVar[bool] = False  # gives a tuple of results
    effect: ClassVar[bool] = False  # must run even when no result is used
    nested: ClassVar[bool] = False  # holds programs; called eagerly, it is compiled as a whole
    updates: ClassVar[bool] = False  # gives its first operand with a part of it changed
    pulls_zeros: ClassVar[bool] = False  # is transposed even when all cotangents are zero
    plain_call: ClassVar[bool] = False  # only calls a program, as `jit` does: that may stand in its place
    call_for_transforms: ClassVar[bool] = False  # to a device, a call of it is the program that it calls
    # Only a host computes it, by its rule ``host``; its ``stablehlo`` rule says so in an error.
    host_only: ClassVar[bool] = False
    # `infer` says along which mesh axes results vary; of other ops they vary along those of the operands (`vma`).
    infers_vma: ClassVar[bool] = False
    # Accepts any keyword parameter.
    any_params: ClassVar[bool] = False
    # How an op that a program defined is quantized: "expand" in its pieces, "table" as a table; "" like any other.
    quantized: str = ""
    # NaN operands give ordinary numbers, since integers have no NaN.
    absorbs_nan: ClassVar[bool] = False
    # May give a NaN where no operand has one.
    makes_nan: ClassVar[bool] = True
    # What an op without `transpose` advises where a gradient is asked for.
    instead_of_transpose: ClassVar[str] = "use nx.jvp, or give the function a rule with nx.custom_vjp"
    # Calls a function that has a derivative rule of the user's.
    users_rule: ClassVar[bool] = False
    # Its program runs on padding too, where a division by zero or an index means nothing.
    runs_on_padding: ClassVar[bool] = False
    # Public functions are made from its attributes `FACES`.
    has_faces: ClassVar[bool] = False
    # JAX's name of a parameter -> ours, or "" for one that has no counterpart.
    aliases: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def infer(self, *types: ArrayType, **params: Any) -> Any:
        """Result type(s), or a typed error that names the op."""

    def eval(self, *xs: np.ndarray[Any, Any], **params: Any) -> Any:
        """The meaning, in NumPy."""
        raise NotImplementedError

    def expand(self, *xs: Array, **params: Any) -> Any:
        """Itself in smaller ops."""
        raise NotImplementedError

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        """Result and tangent; runs with the tangents' own trace as the current one."""
        raise NotImplementedError

    def partial_eval(self, trace: Any, args: Arrays, known: tuple[bool, ...], /, **params: Any) -> Any:
        """For ops that hold programs: compute what ``known`` operands determine, and stage the rest in ``trace``."""
        raise NotImplementedError

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Tangents:
        """Cotangents of the linear operands (those that are `UndefinedPrimal`), None for the others."""
        raise NotImplementedError

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        """Result(s) and the dimension(s) in which they are batched, or None."""
        raise NotImplementedError

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        """Emit StableHLO through the builder ``b``; ``xs`` are typed SSA names, ``out`` the result type(s)."""
        raise NotImplementedError

    # --- what some ops can do besides: asked for by `has`, never by a test of names ---

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        """As `batch` along a mesh axis or a named one, for ops that exchange values along it or hold programs."""
        raise NotImplementedError

    def host(self, *xs: np.ndarray[Any, Any], **params: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """The results as Python computes them on the host, while a compiled program runs."""
        raise NotImplementedError

    def with_token(self, params: dict[str, Any], thread: Any) -> tuple[dict[str, Any], int, int]:
        """For ops with effects inside: parameters for one more operand and result, a token, and where these stand.

        ``thread`` does the same to a program.
        """
        raise NotImplementedError

    def called(self, *args: Any, **params: Any) -> tuple[Any, Sequence[Any]] | None:
        """The program whose results are those of the op, and what it takes of ``args``; None where it cannot say."""
        raise NotImplementedError

    # --- derived ---

    rules: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        faces = [] if cls.has_faces else [name for name in FACES if name in vars(cls)]
        if faces:
            raise NxError(
                f"{cls.__name__}: no public function is made from this class of ops",
                got=", ".join(faces),
                expected="a class that derives from Elementwise",
                fix="derive from Unary, Binary or Composed of nxjax.ops.base, or write the function by hand",
            )
        cls.rules = frozenset(rule for rule in RULES if getattr(cls, rule) is not getattr(Op, rule))

    def __init__(self) -> None:
        place = _imported_line()
        # An import that Ctrl-C ends is done again, line by line.
        if self.name in OPS and (place is None or _lines.get(self.name) != place):
            raise NxError(f"op {self.name!r} is defined twice")
        OPS[self.name] = self
        _lines[self.name] = place

    def __reduce__(self) -> Any:
        """Copies and pickles are the op itself, found by its name: what an op is compared by is its identity."""
        return get_op, (self.name,)

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def has(self, rule: str) -> bool:
        return rule in self.rules

    def __call__(self, *args: Array, **params: Any) -> Any:
        return _current.get().process(self, args, params)

    def __repr__(self) -> str:
        return self.name

    # --- JAX's names: an op is what JAX calls a primitive ---

    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False
    multiple_results = property(lambda self: self.multi)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the op to values, with parameters by our names or by JAX's; several results are a list.

        Parameters of JAX that have no counterpart here are left out.
        """
        from nxjax.trace.array import as_value

        y = self(*(as_value(x, self.name) for x in args), **self.renamed_params(params))
        return list(y) if self.multi else y

    def renamed_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as the rules take them, of those by our names or by JAX's."""
        known = self._parameters()
        given: dict[str, Any] = {}
        for name, value in params.items():
            ours = self.aliases.get(name, name)
            if ours and (value is not None or ours in known):
                given[ours] = value
        return self.pack_params(given)

    def pack_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters as the rules take them, of those that programs print and `bind` takes."""
        return params

    def unpack_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `pack_params`."""
        return params

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """What `bind` takes to repeat an equation with these parameters."""
        return dict(params)

    def with_defaults(self, params: dict[str, Any]) -> dict[str, Any]:
        """``params``, and what is left out of them as `infer` has it."""
        defaults = {name: p.default for name, p in self._parameters().items() if p.default is not p.empty}
        return {**defaults, **params}

    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that `infer` spells out."""
        found = _spelled.get(type(self))
        if found is None:
            signature = inspect.signature(self.infer).parameters
            found = {name: p for name, p in signature.items() if p.kind is p.KEYWORD_ONLY}
            _spelled[type(self)] = found
        return found


RULES: Final = (
    "infer", "eval", "expand", "jvp", "partial_eval", "transpose", "batch", "batch_axis", "stablehlo", "host",
    "with_token", "called",
)  # fmt: skip
# What an elementwise op says of its public functions.
FACES: Final = ("arguments", "example", "lax", "numpy", "scipy")
# Every op by name: what the program parser and the generated pages read. Execution never looks here.
OPS: Final[dict[str, Op]] = {}
_spelled: dict[type[Op], dict[str, inspect.Parameter]] = {}
# Where each was made: a line of one of nxjax's modules that runs when it is imported; None elsewhere.
_lines: dict[str, tuple[str, int] | None] = {}


def _imported_line() -> tuple[str, int] | None:
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return (name, frame.f_lineno) if frame is not None and name.startswith("nxjax.") else None


@final
class UndefinedPrimal(_Typed):
    """Marks, in `Op.transpose`, an operand that the op is linear in: it has a type but no value."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.type})"


class Trace(Shown, ABC):
    """Interprets ops. ``parent`` is the trace that was current when this one was made; None for the outermost."""

    __slots__ = ("parent",)
    parent: Trace | None

    # JAX's name of what tells traces apart.
    main = property(lambda self: self)

    @abstractmethod
    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        """Apply ``op``."""

    def ancestors(self) -> list[Trace]:
        """This trace and all above it."""
        found: list[Trace] = []
        trace: Trace | None = self
        while trace is not None:
            found.append(trace)
            trace = trace.parent
        return found


def _no_execute(op: Op, args: Arrays, params: dict[str, Any]) -> Any:
    raise NxError(f"{op.name}: no executor is installed", fix="import nxjax before using its parts")


class Watcher(Protocol):
    """Looks at everything that runs, while somebody debugs."""

    def execute(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        """As the hook of `install_execute`, which `installed_execute` gives."""
        ...

    def call(self, program: Any, args: Arrays, run: Callable[[], Any], name: str, names: Sequence[str] = ()) -> Any:
        """The results of ``run()``, which computes ``program`` of ``args``; ``names`` are those of the last ones."""
        ...


_execute: Callable[[Op, Arrays, dict[str, Any]], Any] = _no_execute
_unwatched = _execute
_watcher: Watcher | None = None


def install_execute(hook: Callable[[Op, Arrays, dict[str, Any]], Any]) -> None:
    """Say how the outermost trace computes. Called once, by the package's ``__init__``."""
    global _execute, _unwatched
    _unwatched = hook
    _execute = hook if _watcher is None else _watcher.execute


def install_watcher(watcher: Watcher | None) -> None:
    """Have everything that runs from now on pass by ``watcher``; None: by nobody, which costs nothing."""
    global _execute, _watcher
    _watcher = watcher
    _execute = _unwatched if watcher is None else watcher.execute


def current_watcher() -> Watcher | None:
    return _watcher


def installed_execute() -> Callable[[Op, Arrays, dict[str, Any]], Any]:
    """What `install_execute` was given."""
    return _unwatched


def _unknown(name: str) -> None:
    """Loads no op: what stands until `install_vocabulary` was called."""


_load: Callable[[str], None] = _unknown


def install_vocabulary(load: Callable[[str], None]) -> None:
    """Say how the op of a name is loaded: ``load`` imports what makes it, if there is one. Called once, as above."""
    global _load
    _load = load


def find_op(name: str) -> Op | None:
    """The op of this name, or None. Imports its module if that was not done yet."""
    # Also where it is there: another thread may be in the middle of its module.
    _load(name)
    return OPS.get(name)


def get_op(name: str) -> Op:
    """As `find_op`, where the op has to be there."""
    op = find_op(name)
    if op is None:
        raise NxError(f"there is no op {name!r} here", fix="define it, or import what defines it, before loading")
    return op


_compiler: Callable[[], Any] | None = None


def install_compiler(find: Callable[[], Any]) -> None:
    """Say who compiles programs: ``find`` gives the compiler when one is first needed. Called once, as above."""
    global _compiler
    _compiler = find


def current_compiler() -> Any:
    """What `install_compiler` was given; see `transforms.jit_stages.Compiler` for its contract."""
    if _compiler is None:
        raise NxError("jit: no compiler is installed", fix="import nxjax before using its parts")
    return _compiler()


@final
class EvalTrace(Trace):
    """The outermost trace: computes."""

    __slots__ = ()

    def __init__(self) -> None:
        self.parent = None

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        return _execute(op, args, params)


EVAL: Final = EvalTrace()
_current: ContextVar[Trace] = ContextVar("nxjax_trace", default=EVAL)
current_trace = _current.get


@final
class use(Shown):
    """``with use(trace):`` makes ``trace`` the current one."""

    __slots__ = ("token", "trace")
    token: Token[Trace]

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __enter__(self) -> None:
        self.token = _current.set(self.trace)

    def __exit__(self, *exc: object) -> None:
        _current.reset(self.token)


# Other state of a running trace: `scope` and `axes` add theirs.
AROUND: Final[list[ContextVar[Any]]] = []


def run_in_trace(trace: Trace, function: Callable[[], R]) -> R:
    """What ``function`` gives where ``trace`` is the current one.

    Unlike `use`, whose methods are Python's, it leaves nothing behind wherever a signal's handler raises. So what
    begins a trace takes this, and what is inside of one may take `use`.
    """
    outer = _current.get()
    around = [(v, v.get()) for v in AROUND] if outer is EVAL else ()  # the outermost one puts all back
    try:
        _current.set(trace)
        return function()
    except BaseException:
        for variable, value in around:
            variable.set(value)
        raise
    finally:
        _current.set(outer)  # one call of C's, so that nothing is raised before it is done


def escaped_tracer_error(x: Tracer, where: str) -> UnexpectedTracerError:
    """The error for a tracer met outside its trace."""
    return UnexpectedTracerError(
        f"{where}: a traced value has left the function it was traced in",
        got=f"{x.type} {x.origin()}",
        expected="only values made in this call",
        fix="return the value from the transformed function instead of storing it in a global, attribute or list",
    )
