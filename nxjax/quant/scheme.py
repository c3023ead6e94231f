"""A policy's answer for one equation: the storage of each tensor. Names no op."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from nxjax.errors import ParameterError, Shown
from nxjax.ops.quant_grid import ROUNDINGS, Rounding
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation, Var
from nxjax.trace.types import ArrayType

ACTIVATIONS: Final = (dtypes.int8, dtypes.int16)
FLOAT8: Final = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
WEIGHTS: Final = (dtypes.int4, dtypes.int8, *FLOAT8)


@final
@dataclass(frozen=True)
class Scheme:
    """How one equation computes.

    Attributes:
        activations: storage of activations: int8 (any zero point), int16 (zero point 0), a float8, or None for float.
        weights: storage of weights: int8, int4, a float8, or None for float.
        dynamic: take the range of an activation from its values at each call instead of from calibration; the products
            are then float.
        per_channel: convolution weights have one scale per output channel, not a single one.
        dense_per_channel: the same for matrix products.
        group: weight-only schemes: this many weights along the summed dimension share a scale; None for all of them.
        rounding: of the integer rescaling, "double" or "single".

    Raises:
        ParameterError: storage types that do not fit together.

    >>> Scheme(activations=None, weights="int4", group=32).integer
    False
    >>> Scheme().activations.name, Scheme().integer
    ('int8', True)
    """

    activations: DType | None = dtypes.int8
    weights: DType | None = dtypes.int8
    dynamic: bool = False
    per_channel: bool = True
    dense_per_channel: bool = True
    group: int | None = None
    rounding: Rounding = "double"

    def __post_init__(self) -> None:
        for name in ("activations", "weights"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, dtypes.as_dtype(getattr(self, name)))
        for name, value, allowed in (
            ("activations", self.activations, (*ACTIVATIONS, *FLOAT8)),
            ("weights", self.weights, WEIGHTS),
        ):
            if value is not None and value not in allowed:
                raise ParameterError(
                    f"Scheme: {name}",
                    got=value,
                    expected=", ".join(dtypes.short_name(d) for d in allowed) + " or None",
                )
        if self.group is not None and (type(self.group) is not int or self.group < 1):
            raise ParameterError("Scheme: group", got=self.group, expected="a number of weights, 1 or more, or None")
        if self.activations in FLOAT8 and not self.dynamic:
            raise ParameterError(
                "Scheme: float8 activations have the range of each call", got=self, fix="say dynamic=True"
            )
        if self.activations == dtypes.int16 and self.dynamic:
            raise ParameterError(
                "Scheme: int16 activations have the ranges of calibration", got=self, fix="dynamic=False, or int8"
            )
        if self.rounding not in ROUNDINGS:
            raise ParameterError("Scheme: rounding", got=self.rounding, expected=" or ".join(ROUNDINGS))
        if self.integer and self.weights not in (dtypes.int8, dtypes.int4):
            raise ParameterError(
                "Scheme: integer activations go with integer weights", got=self.weights, expected="int8 or int4"
            )

    def __call__(self, op: str, scope: str, types: tuple[ArrayType, ...]) -> Scheme:
        """As a policy: the same for every equation."""
        return self

    @property
    def integer(self) -> bool:
        """Activations on calibrated integer grids: the whole equation is integer arithmetic."""
        return self.activations in ACTIVATIONS and not self.dynamic

    @property
    def exceptions(self) -> dict[str, Scheme | str | None]:
        """Layers that compute otherwise, as a policy that a search found may have: none.

        >>> Scheme().exceptions
        {}
        """
        return {}


PRESETS: Final[dict[str, Scheme]] = {
    "int8": Scheme(),
    "int16x8": Scheme(activations=dtypes.int16),
    "dynamic-int8": Scheme(dynamic=True, dense_per_channel=True),
    "int8-weights": Scheme(activations=None, dense_per_channel=True),
    "int4-weights": Scheme(activations=None, weights=dtypes.int4, dense_per_channel=True, group=32),
    "fp8": Scheme(activations=dtypes.float8_e4m3fn, weights=dtypes.float8_e4m3fn, dynamic=True, dense_per_channel=True),
}
# What other tools call the same.
_MEANT: Final = {
    **dict.fromkeys(
        ("8bit", "8-bit", "i8", "w8a8", "uint8", "qint8", "static", "static-int8", "ptq", "full-int8"), "int8"
    ),
    **dict.fromkeys(("16x8", "a16w8", "w8a16", "int16"), "int16x8"),
    **dict.fromkeys(("dynamic", "dynamic-range", "qdynamic"), "dynamic-int8"),
    **dict.fromkeys(("weights", "weight-only", "weight-only-int8", "int8-weight-only"), "int8-weights"),
    **dict.fromkeys(
        ("4bit", "4-bit", "int4", "w4a16", "w4", "awq", "gptq", "int4-weight-only", "nf4", "q4"), "int4-weights"
    ),
    **dict.fromkeys(("float8", "e4m3", "f8", "float8_e4m3fn"), "fp8"),
}
# policy(op name, scope, operand types) -> Scheme, the name of a preset, or None to leave the equation in float.
Policy = Callable[[str, str, tuple[ArrayType, ...]], Scheme | str | None]


def preset(name: str) -> Scheme:
    """A scheme by its name.

    >>> preset("int16x8").activations.name
    'int16'
    """
    try:
        return PRESETS[name]
    except KeyError:
        near = _MEANT.get(name.lower()) or next(iter(difflib.get_close_matches(name.lower(), PRESETS, 1, 0.5)), None)
        fix = f"did you mean {near!r}?" if near else "quantize(f, policy): a preset, a Scheme, or a function of the op"
        if name.lower() in ("fp16", "float16", "bf16", "bfloat16", "half"):
            fix = "floats need no calibration: cast the parameters and inputs with x.astype(...)"
        known = f'{", ".join(PRESETS)}; quantize has "auto", too'
        raise ParameterError("quantize: no such preset", got=repr(name), expected=known, fix=fix) from None


def as_policy(policy: Any) -> Policy:
    """A policy from a preset's name, a `Scheme`, or a function."""
    if isinstance(policy, str):
        policy = preset(policy)
    if not callable(policy) or not _takes_three(policy):
        raise ParameterError(
            "quantize: policy",
            got=policy if callable(policy) else type(policy).__name__,
            expected=f"one of {', '.join(PRESETS)}, a Scheme, or a function of (op, scope, types)",
        )
    return cast(Policy, policy)


def _takes_three(policy: Callable[..., Any]) -> bool:
    try:
        inspect.signature(policy).bind("", "", ())
    except TypeError:
        return False
    except ValueError:
        # What has no signature may take them all the same.
        return True
    return True


@final
class Layered(Shown):
    """A policy with exceptions for named layers.

    Attributes:
        base: the policy of all other layers, or a preset's name.
        exceptions: layer name (as in `QuantPlan.names`) -> its answer.

    >>> policy = Layered("int8", {"dot_general_1": "int16x8"})
    >>> policy.of_layer("dot_general_1", "dot_general", "", ()), policy("dot_general", "", ()) == preset("int8")
    ('int16x8', True)
    """

    def __init__(self, base: Policy | Scheme | str, exceptions: Mapping[str, Scheme | str | None]) -> None:
        self.base = as_policy(base)
        self.exceptions = dict(exceptions)

    def __call__(self, op: str, scope: str, types: tuple[ArrayType, ...]) -> Scheme | str | None:
        return self.base(op, scope, types)

    def of_layer(self, name: str, op: str, scope: str, types: tuple[ArrayType, ...]) -> Scheme | str | None:
        """The answer for the layer called ``name``: its own, or that of the layer it is a part of."""
        parts = name.split("/")
        for n in range(len(parts), 0, -1):
            layer = "/".join(parts[:n])
            if layer in self.exceptions:
                return self.exceptions[layer]
        return self.base(op, scope, types)


def in_float(op: str, scope: str, types: tuple[ArrayType, ...]) -> None:
    """The policy that leaves everything in float."""


def without(policy: Policy, parts: Collection[str]) -> Layered:
    """``policy``, which leaves in float what is called so, or is a part of what is."""
    base, exceptions = (policy.base, policy.exceptions) if isinstance(policy, Layered) else (policy, {})
    inside = lambda name: any(f"{name}/".startswith(f"{part}/") for part in parts)
    kept = {name: answer for name, answer in exceptions.items() if not inside(name)}
    return Layered(base, {**kept, **dict.fromkeys(parts)})


def resolve_policy(policy: Policy, e: Equation, names: Mapping[Var, str]) -> Scheme | None:
    """The policy's answer for one equation."""
    op, types = e.op.name, tuple(a.type for a in e.inputs)
    if isinstance(policy, Layered):
        answer = policy.of_layer(names[e.outputs[0]], op, e.scope, types)
    else:
        answer = policy(op, e.scope, types)
    if isinstance(answer, str):
        return preset(answer)
    if answer is not None and not isinstance(answer, Scheme):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError(
            f"quantize: the policy's answer for {op}",
            got=type(answer).__name__,
            expected="a Scheme, the name of a preset, or None",
        )
    stored = answer is not None and not answer.activations is answer.weights is None
    return answer if stored else None
