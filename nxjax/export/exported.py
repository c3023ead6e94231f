"""`Exported`: a function as StableHLO with its signature, callable, and what it needs to be differentiated.

Knows nothing of how it came to be (`lowering`) or of its bytes (`serialization`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.backends import registry
from nxjax.config.forks import cached_property
from nxjax.errors import GradientError, MissingExtraError, ParameterError, ShapeError, TreeError
from nxjax.export.body import ExportedBody, call_exported
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, readonly, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType
from nxjax.transforms.custom_vjp import custom_vjp
from nxjax.transforms.jit import jit

# Of JAX 0.10: what `calling_convention_version` may be.
minimum_supported_calling_convention_version: Final = 9
maximum_supported_calling_convention_version: Final = 10


@final
class DisabledSafetyCheck:
    """A check to skip when exporting or calling: `platform()`, or `custom_call(target)`.

    >>> DisabledSafetyCheck.custom_call("my_target").is_custom_call()
    'my_target'
    """

    def __init__(self, _impl: str) -> None:
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allow calls on platforms that it was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Allow a custom call without a stability guarantee in the module."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The allowed custom call, or None."""
        found = re.fullmatch(r"custom_call:(.+)", self._impl, re.S)
        return found.group(1) if found else None

    def __str__(self) -> str:
        return self._impl

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


@final
@dataclass(frozen=True)
class SymbolicType:
    """The type of an argument or result with unknown sizes, in functions that JAX exported.

    Attributes:
        shape: sizes, or expressions such as ``b`` or ``2*b`` for unknown ones.

    >>> SymbolicType(("b", 3), np.dtype(np.float32))
    f32[b,3]
    """

    shape: tuple[int | str, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    def strong(self) -> SymbolicType:
        return self


ExportedType = ArrayType | SymbolicType


@final
@dataclass(frozen=True, eq=False)
class Exported:
    """A function lowered to StableHLO; made by `nx.export.export` and `nx.export.deserialize`.

    Attributes:
        fun_name: for messages.
        in_tree: structure of ``(args, kwargs)``.
        in_avals: types of the flat arguments. Python's numbers are float32 or int32 arguments without dimensions.
        out_tree, out_avals: of the results.
        platforms: where it may be called: "cpu", "tpu", "cuda", "rocm" or a plug-in's name.
        nr_devices: the number of devices that it was exported for; here one device computes everything.
        in_shardings, out_shardings: per argument and result a `NamedSharding` on an `AbstractMesh`, or None.
        mlir_module_serialized: the module as a versioned portable artifact, read by every StableHLO tool.
        module_kept_var_idx: the arguments that the module takes.
        calling_convention_version: 10, as JAX 0.10.
        uses_global_constants: whether the module has a platform index or dimension variables.
        disabled_safety_checks: given to `nx.export.export`.

    >>> exported = nx.export.export(nx.jit(lambda x: 2 * x))(nx.ShapeDtypeStruct((3,), nx.float32))
    >>> exported.in_avals, exported.out_avals, exported.has_vjp()
    ((f32[3],), (f32[3],), True)
    >>> exported.call(nx.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """

    fun_name: str
    in_tree: tree.TreeDef
    in_avals: tuple[ExportedType, ...]
    out_tree: tree.TreeDef
    out_avals: tuple[ExportedType, ...]
    platforms: tuple[str, ...]
    mlir_module_serialized: bytes
    module_kept_var_idx: tuple[int, ...]
    nr_devices: int = 1
    in_shardings: tuple[Any, ...] = ()
    out_shardings: tuple[Any, ...] = ()
    calling_convention_version: int = maximum_supported_calling_convention_version
    uses_global_constants: bool = False
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...] = ()
    ordered_effects: tuple[str, ...] = ()
    unordered_effects: tuple[str, ...] = ()
    _get_vjp: Callable[[Exported], Exported] | None = field(default=None, repr=False)

    @property
    def disabled_checks(self) -> tuple[DisabledSafetyCheck, ...]:
        """`disabled_safety_checks`, by their name in `nx.export.export`."""
        return self.disabled_safety_checks

    def __repr__(self) -> str:
        takes = ", ".join(map(repr, self.in_avals))
        gives = ", ".join(map(repr, self.out_avals))
        return f"Exported({self.fun_name}: ({takes}) -> ({gives}), platforms={self.platforms})"

    __str__ = __repr__

    def mlir_module(self) -> str:
        """The StableHLO text.

        Raises:
            LoweringError: the bytes are not a readable module.
            MissingExtraError: jaxlib is not installed.
        """
        _need_jaxlib()
        from nxjax.backends.xla import foreign, guard

        guard.checked(self.mlir_module_serialized)
        return foreign.text_of(self.mlir_module_serialized)

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """`in_shardings` on the devices of ``mesh``, whose axes must be those of the export."""
        return tuple(_placed(s, mesh) for s in self.in_shardings)

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """`out_shardings` on the devices of ``mesh``."""
        return tuple(_placed(s, mesh) for s in self.out_shardings)

    def has_vjp(self) -> bool:
        """Whether the function can be differentiated in reverse mode."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The exported function ``(*primals, *cotangents of results) -> cotangents of arguments``, all flat.

        Raises:
            GradientError: it was serialized without one.
        """
        return self._vjp

    @cached_property
    def _vjp(self) -> Exported:
        if self._get_vjp is None:
            raise GradientError(
                f"export: {self.fun_name} has no derivative",
                got="a file that was written without",
                fix="write it with exported.serialize(vjp_order=1), or 2 for second derivatives",
            )
        return self._get_vjp(self)

    def serialize(self, vjp_order: int = 0) -> bytes:
        """The bytes of the function, for `nx.export.deserialize` and `jax.export.deserialize`.

        Args:
            vjp_order: how many orders of reverse derivatives to include.

        Raises:
            GradientError: it does not have as many.
            TreeError: arguments or results have nodes that are not registered.
        """
        from nxjax.export.serialization import serialize

        return serialize(self, vjp_order)

    @api_boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; also inside `nx.jit`, `nx.grad` (see `has_vjp`) and `nx.vmap`.

        Raises:
            TreeError, ShapeError: the arguments differ from those of the export.
            ParameterError: it was exported for another platform.
        """
        leaves, found = tree.flatten((args, kwargs))
        if found != self.in_tree:
            self._other_tree(args, kwargs)
        values = [self._value(x, t) for x, t in zip(leaves, self.in_avals, strict=True)]
        self._check_types(values)
        self._check_platform()
        return tree.unflatten(self.out_tree, self._flat(*values))

    def _value(self, x: Any, said: ExportedType) -> Array:
        """An argument as a value: 64-bit NumPy arrays stay so where they were exported, Python's numbers yield."""
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype == said.dtype:
            return wrap(readonly(np.asarray(x)))
        value = as_value(x, f"call of {self.fun_name}")
        if value.weak_type and not value.shape and value.dtype != said.dtype:
            kinds = (dtypes.INTEGER, dtypes.FLOAT, dtypes.COMPLEX)
            if any(value.dtype in kind and said.dtype in kind for kind in kinds):
                return convert_element_type(value, dtype=said.dtype)
        return value

    @cached_property
    def body(self) -> ExportedBody:
        """What the op `call_exported` holds."""
        index = None
        if len(self.platforms) > 1:
            here = _platform()
            index = self.platforms.index(here) if here in self.platforms else 0
        return ExportedBody(
            self.mlir_module_serialized, self.module_kept_var_idx, self.in_avals, self.out_avals, index, self.fun_name
        )

    @cached_property
    def _flat(self) -> Callable[..., Sequence[Array]]:
        """The call on flat arguments, with its derivative."""

        def primal(*xs: Array) -> tuple[Array, ...]:
            return call_exported(*xs, body=self.body)

        def forward(*xs: Array) -> Any:
            # With the rule again: residuals may themselves be differentiated.
            return with_rule(*xs), xs

        def backward(xs: Sequence[Array], cts: Sequence[Array]) -> tuple[Any, ...]:
            vjp = self.vjp()
            wanted = vjp.in_avals[len(xs) :]
            given = [
                wrap(np.zeros(ct.shape, dtypes.float0)) if t.dtype == dtypes.float0 else ct
                for ct, t in zip(cts, wanted, strict=True)
            ]
            found: Any = vjp.call(*xs, *given)
            return tuple(None if ct.dtype == dtypes.float0 else ct for ct in tree.leaves(found))

        with_rule = custom_vjp(primal)
        with_rule.defvjp(forward, backward)

        def function(*xs: Array) -> Any:
            return with_rule(*xs)

        function.__name__ = function.__qualname__ = f"call_{self.fun_name}"
        return jit(function)

    def _other_tree(self, args: Any, kwargs: Any) -> None:
        for got, mark in ((len(args), "positional"), (sorted(kwargs), "keyword")):
            wanted = self._said()[0 if mark == "positional" else 1]
            expected = len(wanted) if mark == "positional" else sorted(wanted)
            if got != expected:
                raise TreeError(
                    f"call of {self.fun_name}: other {mark} arguments than it was exported with",
                    got=got,
                    expected=expected,
                )
        tree.flatten_up_to(self.in_tree, (tuple(args), kwargs), f"call of {self.fun_name}")
        raise TreeError(
            f"call of {self.fun_name}: another structure than it was exported with",
            got=tree.structure((tuple(args), kwargs)),
            expected=self.in_tree,
        )

    def _said(self) -> Any:
        return tree.unflatten(self.in_tree, list(self.in_avals))

    def _check_types(self, values: Sequence[Array]) -> None:
        wrong = [
            i
            for i, (x, t) in enumerate(zip(values, self.in_avals, strict=True))
            if x.dtype != t.dtype or not _fits(x, t)
        ]
        if wrong:
            names = tree.path_names(self._said()[0], "argument ") + tree.path_names(self._said()[1], "argument ")
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise ShapeError(
                f"call of {self.fun_name}: {names[wrong[0]]}{more} of another type than it was exported with",
                got=", ".join(f"{names[i].removeprefix('argument ')}: {values[i].type}" for i in wrong[:6]),
                expected=", ".join(f"{names[i].removeprefix('argument ')}: {self.in_avals[i]}" for i in wrong[:6]),
                fix="export it for these types too, one file each; an exported function has fixed types",
            )

    def _check_platform(self) -> None:
        _need_jaxlib()
        here = _platform()
        if here not in self.platforms and DisabledSafetyCheck.platform() not in self.disabled_safety_checks:
            raise ParameterError(
                f"call of {self.fun_name}: exported for another platform than this",
                got=f"{here}",
                expected=", ".join(self.platforms),
                fix=f"export it with platforms=({', '.join(map(repr, (*self.platforms, here)))})",
            )


def _fits(x: Array, said: ExportedType) -> bool:
    if len(x.shape) != len(said.shape):
        return False
    return all(isinstance(n, str) or n == k for k, n in zip(x.shape, said.shape, strict=True))


def _platform() -> str:
    """JAX's name for where programs run."""
    return registry.default().platform


def _need_jaxlib() -> None:
    from nxjax.backends.xla.client import available

    ok, reason = available()
    if not ok:
        raise MissingExtraError("export: StableHLO modules need jaxlib", got=reason, fix='pip install "nxjax[xla]"')


def _placed(sharding: Any, mesh: Any) -> Any:
    if sharding is None:
        return None
    own = sharding.mesh
    if (mesh.axis_names, mesh.axis_sizes) != (own.axis_names, own.axis_sizes):
        raise ParameterError("export: another mesh than it was exported with", got=mesh, expected=own)
    return sharding.update(mesh=mesh)
