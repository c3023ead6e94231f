"""A model of a file as a function of its parameters, of its state if it has one, and of arrays.

Checks arguments against what the file says, names what is wrong, and compiles the walk. Knows no format.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.interop.graphs.values import NeedsValue, ValueInfo, constant, value
from nxjax.ops.convert import convert_element_type
from nxjax.quant.qarray import QArray, float_leaf
from nxjax.runtime import enable_x64
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.transforms.jit import jit

NDArray = np.ndarray[Any, Any]
_ATTRIBUTES: Final = {"parameters": "params", "state": "state"}
_KINDS: Final = (dtypes.BOOL, dtypes.INTEGER, dtypes.FLOAT, dtypes.COMPLEX)
_NUMBERS: Final = (bool, int, float, complex, list, tuple)
_FAMILIES: Final = (("floats", dtypes.FLOAT), ("whole numbers", dtypes.INTEGER), ("complex numbers", dtypes.COMPLEX))


def _dtype(x: Any) -> Any:
    """The dtype of the real numbers that an array holds or stands for."""
    return np.dtype(np.float32) if isinstance(x, QArray) else x.dtype if isinstance(x, Array) else np.asarray(x).dtype


def _is_array(x: Any) -> bool:
    """Whether a parameter can be ``x``: an array of any library, or a number."""
    return isinstance(x, (Array, QArray, bool, int, float, complex)) or (
        hasattr(x, "__array__") and hasattr(x, "shape")
    )


def _becomes(x: Any, own: Any) -> bool:
    """Whether ``x`` is given for the parameter ``own``: floats for floats, whole numbers for those of more bits."""
    if x.type.weak if isinstance(x, Array) else isinstance(x, (bool, int, float, complex)):
        return _order(_dtype(x)) <= _order(_dtype(own))
    whole = _dtype(own) in dtypes.INTEGER
    return _family(x) == _family(own) and (not whole or np.can_cast(_dtype(x), _dtype(own)))


def _family(x: Any) -> str:
    dtype = _dtype(x)
    return next((name for name, members in _FAMILIES if dtype in members), str(dtype))


def _order(dtype: Any) -> int:
    """Numbers of a kind are also numbers of the later ones: of bools, integers, floats, complex numbers."""
    return next((i for i, members in enumerate(_KINDS) if dtype in members), len(_KINDS))


def _numbers(x: Any, wanted: Any, where: str) -> NDArray:
    """Python numbers, or lists of them, as elements of a type that holds them."""
    made = None
    try:
        given = np.asarray(x)
    except ValueError:
        raise DtypeError(f"{where}: lists of different lengths", got=reprlib.repr(x)) from None
    # Python's integers of any size are objects.
    held = given.dtype in dtypes.NUMERIC or all(isinstance(v, int) for v in given.flat)
    if held and (given.dtype not in dtypes.COMPLEX or wanted in dtypes.COMPLEX):
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                made = given.astype(wanted)
            # As Python's numbers: they have no limits.
            exact = wanted in dtypes.INEXACT or (made.astype(object) == given.astype(object)).all()
            made = made if exact else None
        except (OverflowError, TypeError, ValueError):
            made = None
    if made is None:
        raise DtypeError(f"{where} has another dtype", got=reprlib.repr(x), expected=f"numbers that {wanted} holds")
    return made


class ImportedFunction(ABC):
    """``y = f(params, x)``, or ``state, y = f(params, state, x)`` for a model with variables.

    Attributes:
        params: the tensors of the file that can be trained, by name.
        state: what its variables hold at first, by name; None: it has none.
        inputs: name, dtype and dimensions of each further argument, in order.
        outputs: the same of the results.
    """

    params: Mapping[str, Array | QArray]
    state: dict[str, Array] | None
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]

    def __init__(self, format: str, name: str, sizes: Mapping[str, int], closed: bool) -> None:
        self._sizes, self._closed = dict(sizes), closed
        self.__name__ = self.__qualname__ = name
        self.__doc__ = self._described(format)
        # What the file has, whatever is put into ``params`` and ``state`` later.
        self._own: dict[str, dict[str, Any]] = {"parameters": dict(self.params), "state": dict(self.state or {})}
        self._by_value = False
        self._begin()

    def _begin(self) -> None:
        """What is filled by calls."""
        self._compiled = jit(self._traced)
        # The types of arguments that were checked: equal ones need no second look.
        self._checked: set[tuple[Any, ...]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_compiled", "_checked")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__setstate__(dict(vars(self)))
        return made

    def __deepcopy__(self, memo: Any) -> Self:
        # Arrays never change: what can is which of them lie in ``params`` and ``state``.
        made = self.__copy__()
        made.params = dict(self.params)
        made.state = None if self.state is None else dict(self.state)
        return made

    @abstractmethod
    def _walk(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any
    ) -> tuple[dict[str, Any] | None, tuple[Any, ...]]:
        """The state afterwards, and the results."""

    def _traced(self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any) -> Any:
        """`_planned`, of what fits the file: ``params`` and ``state`` of this function can have been changed."""
        return self._planned(*self._fitted(params, state), *xs)

    def _planned(self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any) -> Any:
        """What is compiled: `_walk`, or what is made of it."""
        return self._walk(params, state, *xs)

    def _described(self, format: str) -> str:
        lines = [f"{format} model {self.__name__}.", "", "Args:"]
        if not self._closed:
            lines.append(f"    params: {len(self.params)} tensors by name, as in ``.params``.")
        if self.state is not None:
            lines.append(f"    state: {len(self.state)} arrays by name, as in ``.state``.")
        lines += [f"    {p}" for p in self.inputs]
        first = [] if self.state is None else ["    the state afterwards, and"]
        return "\n".join([*lines, "", "Returns:", *first, *(f"    {p}" for p in self.outputs)])

    def float_params(self) -> dict[str, Array]:
        """The parameters as real numbers, to train them: those that the file stores as integers, too.

        In a call these are put on the file's grids, with straight-through derivatives. ``save`` writes the same.
        """
        return {k: float_leaf(v) for k, v in self.params.items()}

    @api_boundary
    def __call__(self, *args: Any, **named: Any) -> Any:
        """The result, or a tuple of them where there are several or none; behind the state where there is one."""
        rest = list(args)
        params = self.params if self._closed else self._tree(rest, "parameters", self.params)
        state = None if self.state is None else self._tree(rest, "state", self.state)
        types = tuple([x.type if type(x) is DeviceArray else None for x in rest])
        if named or types not in self._checked:
            xs = self._values(rest, named)
            if None not in types and not named and all(x is y for x, y in zip(xs, rest, strict=True)):
                self._checked.add(types)
        else:
            xs = rest
        arrays = all(isinstance(x, Array) for x in xs)
        with enable_x64():
            if self._by_value or not arrays:
                after, ys = self._walk(*self._fitted(params, state), *xs)
            else:
                try:
                    after, ys = self._compiled(params, state, *xs)
                except NeedsValue:
                    if any(not isinstance(x, DeviceArray) for x in xs):
                        raise
                    # Elements decide shapes here: op by op from now on.
                    self._by_value = True
                    after, ys = self._walk(*self._fitted(params, state), *xs)
        y = ys[0] if len(ys) == 1 else tuple(ys)
        return y if after is None else (after, y)

    def _tree(self, rest: list[Any], what: str, own: Mapping[str, Array | QArray]) -> Mapping[str, Any]:
        """The next argument, which holds arrays by the names of ``own``."""
        given = rest.pop(0) if rest else None
        if not isinstance(given, Mapping):
            which = "first" if what == "parameters" or self._closed else "second"
            shown = [*([] if self._closed else ["f.params"]), *(["f.state"] if self.state is not None else []), "x"]
            closed = ", or import with closed=True" if what == "parameters" else ""
            raise ParameterError(
                f"{self.__name__}: the {which} argument holds the {what}",
                got=type(given).__name__,
                expected="a dict of arrays by name",
                fix=f"call it as f({', '.join(shown)}){closed}",
            )
        if given is not own:
            given = {k: self._leaf(v) for k, v in given.items()}
            self._check(what, given)
        return given

    def _leaf(self, x: Any) -> Any:
        """What a caller gives as a parameter, as an array."""
        return x

    def _fitted(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Parameters and state in the file's dtypes; a `QArray` stays what it is."""
        held = self._converted("parameters", params)
        return held, None if state is None else self._converted("state", state)

    def _converted(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        self._check(what, given)
        own = self._own[what]
        return {
            k: v
            if isinstance(v, QArray) or v is own[k] or (isinstance(v, Array) and v.dtype == own[k].dtype)
            else convert_element_type(v, dtype=_dtype(own[k]))
            for k, v in given.items()
        }

    def _check(self, what: str, given: Mapping[str, Any]) -> None:
        """Names, shapes and kinds of numbers are those of the file."""
        own = self._own[what]
        if given.keys() != own.keys():
            other = sorted(map(str, given.keys() ^ own.keys()))
            raise ParameterError(
                f"{self.__name__}: other {what} than the file's",
                got=", ".join(other[:5]),
                expected=f"those of .{_ATTRIBUTES[what]}, as it was imported",
            )
        for k, v in given.items():
            if v is own[k]:
                continue
            if not _is_array(v):
                raise ParameterError(
                    f"{self.__name__}: {k} is no array", got=type(v).__name__, expected=f"an array {own[k].shape}"
                )
            if np.shape(v) != own[k].shape:
                raise ShapeError(f"{self.__name__}: {k} has another shape", got=np.shape(v), expected=own[k].shape)
            got, expected = _family(v), _family(own[k])
            if not _becomes(v, own[k]):
                raise DtypeError(
                    f"{self.__name__}: {k} has another kind of numbers", got=f"{got}: {getattr(v, 'dtype', v)}",
                    expected=f"{expected}, to become {_dtype(own[k])}",
                )  # fmt: skip

    def _changed(self, what: str, given: Any) -> dict[str, Any]:
        """What is to be saved and is not what the file has: floats for floats, whole numbers for whole numbers.

        Args:
            given: None: what ``params`` or ``state`` holds now.
        """
        if given is None:
            given = getattr(self, _ATTRIBUTES[what]) or {}
        if not isinstance(given, Mapping):
            raise ParameterError(
                f"{self.__name__}: save takes the {what} by name",
                got=type(given).__name__,
                expected=f"a dict of arrays, as .{_ATTRIBUTES[what]}",
            )
        own = self._own[what]
        given = {k: self._leaf(v) for k, v in given.items()}
        self._check(what, given)
        return {k: v for k, v in given.items() if v is not own[k]}

    def _values(self, args: list[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the file, each of the type that it says."""
        names = [p.name for p in self.inputs]
        unknown = named.keys() - set(names[len(args) :])
        if len(args) > len(names) or unknown:
            raise ParameterError(
                f"{self.__name__}: arguments that the model does not take",
                got=", ".join(sorted(unknown)) or f"{len(args)} arguments",
                expected=", ".join(map(str, self.inputs)) or "none",
            )
        missing = [n for n in names[len(args) :] if n not in named]
        if missing:
            raise ParameterError(
                f"{self.__name__}: arguments are missing",
                got=", ".join(missing),
                expected=", ".join(map(str, self.inputs)),
            )
        sizes = dict(self._sizes)
        every = [*args, *(named[n] for n in names[len(args) :])]
        return [self._value(p, x, sizes) for p, x in zip(self.inputs, every, strict=True)]

    def _value(self, port: ValueInfo, x: Any, sizes: dict[str, int]) -> Any:
        where = f"{self.__name__}: {port.name}"
        if x is None or (isinstance(x, (list, tuple)) and not port.is_array):
            return None if x is None else [constant(v) for v in x]
        if port.dtype == object:
            return np.asarray(x, object)
        wanted = port.dtype
        if isinstance(x, _NUMBERS) and wanted is not None and not isinstance(x, np.generic):
            y: Array = wrap(_numbers(x, wanted, where))
        elif isinstance(x, (np.ndarray, np.generic)):
            y = value(np.asarray(x))
        else:
            y = as_value(np.asarray(x) if isinstance(x, (list, tuple)) else x, where)
        if wanted is not None and y.dtype != wanted:
            # Outside of `enable_x64`, whole numbers of 64 bits have become 32 where they were traced.
            wider = {y.dtype, np.dtype(wanted)} <= dtypes.INTEGER and np.can_cast(y.dtype, wanted)
            if not (wider or (y.type.weak and _order(y.dtype) <= _order(wanted))):
                # Elsewhere `jit` makes 32 bits of 64, before this function sees them.
                inside = " inside of `with nx.enable_x64():`" if np.dtype(wanted).itemsize == 8 else ""
                fix = f".astype({np.dtype(wanted).name!r}){inside}"
                raise DtypeError(f"{where} has another dtype", got=y.type, expected=port, fix=fix)
            y = convert_element_type(y, dtype=wanted)
        if port.dims is not None:
            fits = len(port.dims) == y.ndim and all(
                n == (d if isinstance(d, int) else sizes.setdefault(d, n))
                for n, d in zip(y.shape, port.dims, strict=True)
            )
            if not fits:
                same = {k: v for k, v in sizes.items() if k in port.dims}
                raise ShapeError(
                    f"{where} has another shape", got=y.type, expected=f"{port}{f' with {same}' if same else ''}"
                )
        return y

    def __repr__(self) -> str:
        first = (*(() if self._closed else ("params",)), *(() if self.state is None else ("state",)))
        results = (*first[-1:], *map(str, self.outputs)) if self.state is not None else map(str, self.outputs)
        return f"{self.__name__}({', '.join((*first, *map(str, self.inputs)))}) -> {', '.join(results)}"
