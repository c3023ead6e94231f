"""`jax.lax`'s primitives, ``sin_p`` and the like: each is the op of nxjax that equations of programs hold.

So ``eqn.primitive is lax.sin_p`` says what it says in JAX, and a dictionary by primitive is looked up the same way. A
primitive that JAX has and nxjax has not, because functions write it in other ops, is a `Spelled` one: it can be bound
and written into programs, but no function of nxjax writes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, final

from nxjax.trace.core import OPS

# module -> ops in it; a name before a colon is JAX's, if it is another.
_OPS: Final = {
    "ops.arithmetic": "abs add atan2 cbrt div integer_pow max min mul neg nextafter pow rem rsqrt sign sqrt square sub "
    "add_jaxvals:add",
    "ops.elementary": "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log1p logistic sin sinh tan tanh",
    "ops.bitwise": "and clz not or population_count shift_left shift_right_arithmetic shift_right_logical xor",
    "ops.compare": "eq ge gt le lt ne",
    "ops.complex": "complex conj imag real",
    "ops.rounding": "ceil floor is_finite reduce_precision round",
    "ops.special": "bessel_i0e bessel_i1e digamma erf erf_inv erfc lgamma polygamma zeta",
    "ops.incomplete": "igamma igamma_grad_a igammac regularized_incomplete_beta",
    "ops.select": "clamp select_n",
    "ops.convert": "bitcast_convert_type convert_element_type",
    "ops.identity": "copy optimization_barrier stop_gradient",
    "ops.shape": "broadcast_in_dim reshape rev transpose",
    "ops.create": "iota",
    "ops.slicing": "concatenate dynamic_slice dynamic_update_slice pad slice split",
    "ops.indexing": "gather",
    "ops.scatter": "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub",
    "ops.reduce": "reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor",
    "ops.argreduce": "argmax argmin",
    "ops.cumulative": "cumlogsumexp cummax cummin cumprod cumsum",
    "ops.sort": "sort top_k",
    "ops.dot": "dot_general",
    "ops.conv": "conv_general_dilated",
    "ops.window": "reduce_window_max reduce_window_min reduce_window_sum select_and_gather_add select_and_scatter_add",
    "ops.fft": "fft",
    "ops.collectives": "axis_index pmax pmin psum",
    "ops.exchanges": "all_gather all_to_all ppermute reduce_scatter",
    "ops.sharding": "sharding_constraint",
    "ops.random": "random_bits random_fold_in random_seed random_split threefry2x32",
    "ops.linalg_triangular": "cholesky triangular_solve",
    "ops.linalg_eigen": "eig eigh",
    "ops.linalg_hessenberg": "hessenberg tridiagonal",
    "ops.linalg_schur": "schur",
    "ops.linalg_lu": "lu lu_pivots_to_permutation",
    "ops.linalg_qr": "geqrf householder_product",
    "ops.linalg_svd": "svd",
    "transforms.call": "jit",
    "transforms.checkpoint": "name remat:checkpoint",
    "transforms.control.cond": "cond",
    "transforms.control.scan": "scan",
    "transforms.control.while_loop": "while",
    "transforms.control.reduce": "reduce",
    "transforms.control.implicit": "linear_solve:custom_linear_solve",
    "transforms.custom_jvp": "custom_jvp_call",
    "transforms.custom_vjp": "custom_lin custom_vjp_call",
}


def _table() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for module, names in _OPS.items():
        for entry in names.split():
            theirs, _, ours = entry.partition(":")
            found[f"{theirs}_p"] = (f"nxjax.{module}", ours or theirs)
    return found


_HOMES: Final = _table()


def _lax(name: str, **renamed: str) -> Callable[..., Any]:
    """The function `lax` has of that name, with JAX's names of parameters as it takes them."""

    def function(*xs: Any, **params: Any) -> Any:
        given = {renamed.get(k, k): v for k, v in params.items() if renamed.get(k, k) and v is not None}
        home, _, own = f"nxjax.lax.{name}".rpartition(".")
        return getattr(importlib.import_module(home), own)(*xs, **given)

    return function


def _several(name: str) -> Callable[..., Any]:
    """As `_lax`, for a function of one list of arrays."""
    return lambda *xs, **params: getattr(importlib.import_module("nxjax.lax"), name)(xs, **params)


def _total_order(name: str) -> Callable[..., Any]:
    def function(x: Any, y: Any) -> Any:
        lax = importlib.import_module("nxjax.lax")
        keys = [_ordered(v) for v in (x, y)]
        return getattr(lax, name)(*keys)

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


def _random_gamma(key: Any, alpha: Any, *, log_space: bool = False, **_: Any) -> Any:
    random = importlib.import_module("nxjax.random")
    return (random.loggamma if log_space else random.gamma)(key, alpha, dtype=alpha.dtype)


# JAX's name -> what it computes, and whether the result is a list.
_SPELLED: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    "cholesky_update": (_lax("linalg.cholesky_update"), False),
    "ormqr": (_lax("linalg.ormqr"), False),
    "symmetric_product": (_lax("linalg.symmetric_product"), False),
    "tridiagonal_solve": (_lax("linalg.tridiagonal_solve"), False),
    "approx_top_k": (lambda x, **k: _approx_top_k(x, **k), True),
    "device_put": (_device_put, True),
    "eq_to": (_total_order("eq"), False),
    "le_to": (_total_order("le"), False),
    "lt_to": (_total_order("lt"), False),
    "mulhi": (_lax("mulhi"), False),
    "qr": (_lax("linalg.qr"), True),
    "random_gamma": (_random_gamma, False),
    "rng_bit_generator": (_lax("rng_bit_generator", out_sharding=""), True),
    "rng_uniform": (_lax("rng_uniform"), False),
    "squeeze": (_lax("squeeze"), False),
    "stack": (_several("stack"), False),
    "stage": (_lax("stage"), False),
    "tile": (_lax("tile"), False),
    "unstack": (_lax("unstack"), True),
    "create_token": (_lax("create_token"), False),
    "after_all": (_lax("after_all"), False),
    "dce_sink": (_lax("dce_sink"), False),
}


def _approx_top_k(x: Any, **params: Any) -> Any:
    lax = importlib.import_module("nxjax.lax")
    params = dict(params)
    params.pop("fallback", None)
    is_max = params.pop("is_max_k")
    return (lax.approx_max_k if is_max else lax.approx_min_k)(x, **params)


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


NAMES: Final = tuple(sorted((*_HOMES, *(f"{n}_p" for n in _SPELLED))))


def find(name: str, module: str = "nxjax.lax") -> Any:
    """The primitive that JAX calls ``name``.

    Raises:
        AttributeError: there is none.
    """
    home = _HOMES.get(name)
    if home is not None:
        importlib.import_module(home[0])
        value: Any = OPS[home[1]]
    elif name.removesuffix("_p") in _SPELLED and name.endswith("_p"):
        value = Spelled(name.removesuffix("_p"), *_SPELLED[name.removesuffix("_p")])
    else:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __getattr__(name: str) -> Any:
    return find(name, __name__)
