"""`Module`, the base of all layers: a pytree whose leaves are its parameters, called like a function.

Knows no layer. Layers hold arrays, other modules and settings; the arrays are what `jit`, `grad`, `vmap` and `quantize`
see, in ``lambda model, x: model(x)``. Nothing about a module ever changes: an update is a new module.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np

from nxjax import random
from nxjax.errors import ImmutableArrayError, ParameterError, ShapeError, TreeError
from nxjax.numpy.shapes import expand_dims
from nxjax.trace import tree
from nxjax.trace.annotations import DeviceLike, PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.lazy import add_hint, replacement_hint
from nxjax.trace.tree_nodes import register_node

M = TypeVar("M", bound="Module")


def _holds_arrays(value: Any) -> bool:
    """Whether an attribute is part of the tree: an array, a module, or a container of them."""
    return any(isinstance(leaf, (Array, np.ndarray)) for leaf in tree.leaves(value)) or any(
        isinstance(node, Module) for node in tree.leaves(value, is_leaf=lambda v: isinstance(v, Module))
    )


class _ModuleType(type):
    """Closes a module once its ``__init__`` is through: which attributes are children is settled then, for good."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """What `help` and completion show: the parameters of ``__init__``, and not those of ``__call__`` below."""
        own = cls.__init__  # type: ignore[misc]
        taken = [] if own is object.__init__ else list(inspect.signature(own).parameters.values())[1:]
        return inspect.Signature(taken, return_annotation=cls.__name__)

    def __call__(cls: type[M], *args: Any, **kwargs: Any) -> M:
        try:
            module: M = super().__call__(*args, **kwargs)  # type: ignore[misc]
        except TypeError as error:
            add_hint(error, kwargs)
            raise
        children = tuple(n for n, v in module.__dict__.items() if _holds_arrays(v))
        for name, value in module.__dict__.items():
            if name not in children:
                _hashable(module, name, value)
        module.__dict__["_children"] = children
        return module


def _hashable(module: Module, name: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise TreeError(
            f"{type(module).__name__}: attribute {name!r} is neither a parameter nor hashable",
            got=type(value).__name__,
            expected="an array, a module, a container of them, or a hashable setting",
            fix="keep settings in tuples and strings, numbers in nx arrays",
        ) from None


class Module(metaclass=_ModuleType):
    """A layer or network: call it with an array. Subclasses set attributes in ``__init__`` and define ``__call__``.

    Attributes with arrays or modules (also in lists, tuples and dicts) are children of the tree. Everything else is a
    setting, part of the structure, and must be hashable. After ``__init__`` you cannot assign attributes. `replace` and
    `with_parameters` return changed copies, and `nx.tree.map` works on modules as on any tree.

    >>> class Scale(Module):
    ...     def __init__(self, size):
    ...         self.factor = nx.ones(size)
    ...
    ...     def __call__(self, x):
    ...         return x * self.factor
    >>> loss = lambda model, x: nx.sum(model(x) ** 2)
    >>> nx.grad(loss)(Scale(2), nx.array([1.0, 3.0])).factor.tolist()
    [2.0, 18.0]
    """

    keyed: ClassVar[bool] = False  # takes ``key=``
    _children: tuple[str, ...]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register_node(cls, _flatten, lambda aux, children: _rebuild(cls, aux, children))

    def __call__(self, x: PyTree) -> PyTree:
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    def __setattr__(self, name: str, value: Any) -> None:
        if "_children" in self.__dict__:
            _refuse(self, name)
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        more = replacement_hint(f"model.{name}")
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(said + more) if more else AttributeError(said, name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        _refuse(self, name)

    def replace(self, **attributes: object) -> Self:
        """A copy with other values of existing attributes.

        >>> from nxjax.nn import Linear
        >>> Linear(2, 1).replace(bias=None).bias is None
        True
        """
        unknown = sorted(set(attributes) - set(self.__dict__))
        if unknown:
            known = [n for n in self.__dict__ if n != "_children"]
            raise ParameterError(f"{type(self).__name__}: no attribute to replace", got=unknown, expected=known)
        copy = object.__new__(type(self))
        copy.__dict__.update({**self.__dict__, **attributes})
        copy.__dict__["_children"] = tuple(
            n for n in self.__dict__ if n != "_children" and _holds_arrays(getattr(copy, n))
        )
        return copy

    def named_parameters(self) -> dict[str, Any]:
        """Every array by its path, such as ``"layers.0.weight"``.

        >>> from nxjax.nn import Linear, ReLU, Sequential
        >>> list(Sequential(Linear(2, 3), ReLU()).named_parameters())
        ['layers.0.weight', 'layers.0.bias']
        """
        return {tree.keystr(path, simple=True, separator="."): x for path, x in tree.leaves_with_path(self)}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """A copy with these arrays, by the names of `named_parameters`. All must be given, in their shapes."""
        known = self.named_parameters()
        name = type(self).__name__
        if set(parameters) != set(known):
            missing, extra = sorted(set(known) - set(parameters)), sorted(set(parameters) - set(known))
            raise TreeError(
                f"{name}: other parameters", got=f"missing {missing}, unknown {extra}", expected=list(known)
            )
        values = [as_value(parameters[n], f"{name}: {n}") for n in known]
        for path, value in zip(known, values, strict=True):
            if value.shape != np.shape(known[path]):
                raise ShapeError(f"{name}: parameter {path}", got=value.type, expected=np.shape(known[path]))
        return tree.unflatten(tree.structure(self), values)

    def to(self, device: DeviceLike) -> Self:
        """A copy with its parameters on ``device``, as from `nx.device_put`.

        Raises:
            ExecutionError: the device is not here; the message says why.

        >>> from nxjax.nn import Linear
        >>> Linear(2, 1).to(nx.devices("cpu")[0]).weight.device
        cpu:0
        """
        from nxjax.runtime import device_put

        return device_put(self, device)

    @property
    def size(self) -> int:
        """The number of parameters.

        >>> from nxjax.nn import Linear
        >>> Linear(4, 2).size
        10
        """
        return sum(int(np.prod(np.shape(x))) for x in tree.leaves(self))

    def _settings(self) -> str:
        """The arguments that `repr` shows."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()})"


def _refuse(module: Module, name: str) -> NoReturn:
    raise ImmutableArrayError(
        f"{type(module).__name__}: modules cannot be changed",
        got=f"assignment to {name!r}",
        fix=f"make a new one: module.replace({name}=...), or nx.tree.map over the module",
    )


@lru_cache(1024)
def _keys(children: tuple[str, ...]) -> tuple[tree.GetAttrKey, ...]:
    return tuple(map(tree.GetAttrKey, children))


def _flatten(module: Module) -> tuple[tuple[Any, ...], Any, tuple[tree.GetAttrKey, ...]]:
    """Children, the structure (names and settings), and the children's path keys. Runs in every call of a model."""
    own = module.__dict__
    children = own["_children"]
    settings = tuple([(n, v) for n, v in own.items() if n not in children and n != "_children"])
    return tuple([own[n] for n in children]), (children, settings, tuple(own)), _keys(children)


def _rebuild(cls: type[M], structure: Any, values: Sequence[Any]) -> M:
    children, settings, order = structure
    found = {**dict(zip(children, values, strict=True)), **dict(settings), "_children": children}
    module = object.__new__(cls)
    module.__dict__.update({n: found[n] for n in order})
    return module


# --- initial values ---


class _Draws:
    """Keys of layers that are given none: one seed for the process, and a count."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, value: int) -> None:
        self.root = random.key(value)
        self.count = itertools.count()

    def next(self) -> Array:
        return random.fold_in(self.root, next(self.count))


_draws: _Draws | None = None


def seed(value: int = 0) -> None:
    """Reset the keys of layers without ``key=``, so that the same layers get equal parameters.

    >>> seed(0)
    >>> first = nx.nn.Linear(2, 2).weight
    >>> seed(0)
    >>> bool(nx.array_equal(first, nx.nn.Linear(2, 2).weight))
    True
    """
    global _draws
    _draws = _draws or _Draws()
    _draws.start(value)


def keys(key: Any, count: int) -> list[Array]:
    """``count`` keys of a layer: from the one it is given, else from the next of the process."""
    global _draws
    if key is None:
        _draws = _draws or _Draws()
        key = _draws.next()
    return list(random.split(key, count))


def uniform(key: Any, shape: tuple[int, ...], fan_in: int, dtype: Any = None) -> Array:
    """Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): LeCun et al., "Efficient backprop" (1998), up to a factor."""
    bound = 1 / np.sqrt(max(fan_in, 1))
    return random.uniform(key, shape, dtype or float, -bound, bound)


# --- checks that layers share ---


def pair(module: str, name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """Two ints from one int or two: kernel sizes, strides, paddings."""
    found = (value, value) if isinstance(value, (int, np.integer)) else value
    ints = isinstance(found, (tuple, list)) and len(found) == 2 and all(isinstance(v, (int, np.integer)) for v in found)
    if not ints or min(found) < least:
        raise ParameterError(f"{module}: {name}", got=repr(value), expected=f"an int or two, at least {least}")
    return int(found[0]), int(found[1])


def one(value: tuple[int, int]) -> str:
    """A pair as `repr` shows it: one number for two equal ones."""
    return str(value[0] if value[0] == value[1] else value)


def positive(module: str, **sizes: Any) -> None:
    """Refuse sizes that are no positive ints."""
    for name, value in sizes.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"{module}: {name}", got=repr(value), expected="a positive int")


def image(module: Module, x: Any, channels: int | None = None) -> tuple[Array, bool]:
    """An input ``[n, c, h, w]`` or ``[c, h, w]`` as the former, and whether the batch was added."""
    value = as_value(x, type(module).__name__)
    if value.ndim not in (3, 4) or (channels is not None and value.shape[-3] != channels):
        c = "c" if channels is None else str(channels)
        raise ShapeError(
            f"{module!r}: input does not fit",
            got=value.type,
            expected=f"[n, {c}, h, w] or [{c}, h, w]",
            fix="channels come before rows and columns; transpose images that have them last",
        )
    if value.ndim == 4:
        return value, False

    return expand_dims(value, 0), True


def per_image(module: Module, x: Any, f: Callable[[Array], Array], channels: int | None = None) -> Array:
    """``f`` of a batch of images, also for a single one."""
    value, added = image(module, x, channels)
    y = f(value)
    return y[0] if added else y
