"""`jax.lax`'s primitives, ``sin_p`` and the like: each is the op of nxjax that equations of programs hold.

So ``eqn.primitive is lax.sin_p`` says what it says in JAX, and a dictionary by primitive is looked up the same way. A
primitive that JAX has and nxjax has not, because functions write it in other ops, is a `Spelled` one: it can be bound
and written into programs, but no function of nxjax writes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, final

from nxjax.ops.vocabulary import FUNCTIONS, LISTED
from nxjax.trace.core import get_op
from nxjax.trace.lazy import missing_attribute

# Ops that JAX calls as we do, beside those that are a function of `lax`; and those that it calls otherwise.
_SAME: Final = """
    add all_gather all_to_all argmax argmin axis_index bitcast_convert_type broadcast_in_dim cholesky clamp
    concatenate cond conv_general_dilated convert_element_type copy cumlogsumexp cummax cummin cumprod cumsum
    custom_jvp_call custom_lin custom_vjp_call dot_general dynamic_slice dynamic_update_slice eig eigh fft gather
    geqrf hessenberg householder_product integer_pow iota jit lu lu_pivots_to_permutation mul name
    optimization_barrier pad pmax pmin pow ppermute psum random_bits random_fold_in random_seed random_split reduce
    reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_scatter reduce_sum
    reduce_window_max reduce_window_min reduce_window_sum reduce_xor reshape rev round scan scatter scatter_add
    scatter_max scatter_min scatter_mul scatter_sub schur select_and_gather_add select_and_scatter_add select_n
    sharding_constraint slice sort split stop_gradient svd threefry2x32 top_k transpose triangular_solve tridiagonal
    while
"""
_RENAMED: Final = {"add_jaxvals": "add", "remat": "checkpoint", "linear_solve": "custom_linear_solve"}
_NONE: Final = frozenset(("random_gamma_grad",))  # functions whose op is no primitive of JAX
_OWN: Final = sorted({*_SAME.split(), *(FUNCTIONS["lax"][name] for name in LISTED["lax"])} - _NONE)
_OPS: Final = {f"{name}_p": op for name, op in [*zip(_OWN, _OWN, strict=True), *_RENAMED.items()]}


def _lax(name: str, **renamed: str) -> Callable[..., Any]:
    """The function `lax` has of that name, with JAX's names of parameters as it takes them."""

    def function(*xs: Any, **params: Any) -> Any:
        given = {renamed.get(k, k): v for k, v in params.items() if renamed.get(k, k) and v is not None}
        home, _, own = f"nxjax.lax.{name}".rpartition(".")
        return getattr(importlib.import_module(home), own)(*xs, **given)

    return function


def _total_order(name: str) -> Callable[..., Any]:
    def function(x: Any, y: Any) -> Any:
        return _lax(name)(_ordered(x), _ordered(y))

    return function


def _ordered(x: Any) -> Any:
    """Integers in the order that IEEE 754 gives all floats, NaNs included."""
    lax = importlib.import_module("nxjax.lax")
    np = importlib.import_module("nxjax.numpy")
    x = np.asarray(x)
    if not np.issubdtype(x.dtype, np.floating):
        return x
    bits = lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")
    lowest = np.iinfo(bits.dtype).min
    return np.where(bits < 0, np.bitwise_xor(np.bitwise_not(bits), lowest), bits)


def _device_put(*xs: Any, devices: Any = (None,), **_: Any) -> list[Any]:
    put = importlib.import_module("nxjax.runtime").device_put
    return [put(x, d) for x, d in zip(xs, devices, strict=True)]


def _call(*xs: Any, call_jaxpr: Any, **_: Any) -> Any:
    return importlib.import_module("nxjax.core").eval_jaxpr(call_jaxpr, getattr(call_jaxpr, "consts", ()), *xs)


def _approx_top_k(x: Any, **params: Any) -> Any:
    lax = importlib.import_module("nxjax.lax")
    params.pop("fallback", None)
    is_max = params.pop("is_max_k")
    return (lax.approx_max_k if is_max else lax.approx_min_k)(x, **params)


# Functions of `lax` that are primitives in JAX, with one result.
_OF_LAX: Final = """
    linalg.cholesky_update linalg.ormqr linalg.symmetric_product linalg.tridiagonal_solve mulhi rng_uniform squeeze
    stage tile create_token after_all dce_sink
"""
# JAX's name -> what it computes, and whether the result is a list.
_SPELLED: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    **{name.rpartition(".")[2]: (_lax(name), False) for name in _OF_LAX.split()},
    "approx_top_k": (_approx_top_k, True),
    "call": (_call, True),
    "closed_call": (_call, True),
    "device_put": (_device_put, True),
    "eq_to": (_total_order("eq"), False),
    "le_to": (_total_order("le"), False),
    "lt_to": (_total_order("lt"), False),
    "qr": (_lax("linalg.qr"), True),
    "rng_bit_generator": (_lax("rng_bit_generator", out_sharding=""), True),
    "stack": (lambda *xs, **params: _lax("stack")(xs, **params), False),
    "unstack": (_lax("unstack"), True),
}


@final
class Spelled:
    """A primitive of JAX that is written in other ops here: `bind` gives their result."""

    call_primitive = map_primitive = False

    def __init__(self, name: str, function: Callable[..., Any], several: bool) -> None:
        self.name = name
        self.function = function
        self.multiple_results = several

    def bind(self, *args: Any, **params: Any) -> Any:
        """The result; parameters by JAX's names."""
        y = self.function(*args, **params)
        return list(y) if self.multiple_results else y

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        return dict(params)

    def __repr__(self) -> str:
        return self.name


NAMES: Final = tuple(sorted((*_OPS, *(f"{n}_p" for n in _SPELLED))))


def find(name: str, module: str = "nxjax.lax") -> Any:
    """The primitive that JAX calls ``name``.

    Raises:
        AttributeError: there is none.
    """
    own = name.removesuffix("_p")
    if name in _OPS:
        value: Any = get_op(_OPS[name])
    elif own in _SPELLED and name.endswith("_p"):
        value = Spelled(own, *_SPELLED[own])
    elif own in FUNCTIONS["lax"] and own not in _NONE and name.endswith("_p"):  # an op that was made later
        value = get_op(FUNCTIONS["lax"][own])
    else:
        raise missing_attribute(module, name)
    globals()[name] = value
    return value


def __getattr__(name: str) -> Any:
    return find(name, __name__)
