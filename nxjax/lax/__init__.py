"""`jax.lax`'s functions under their own names: strict about shapes and dtypes, thin over the ops.

Functions are loaded, file by file, when they are first used.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from nxjax.ops.vocabulary import FUNCTIONS as _FUNCTIONS
from nxjax.ops.vocabulary import LISTED as _LISTED
from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "elementwise": """
        RoundingMethod add bitcast_convert_type clamp convert_element_type integer_pow mul mulhi pow reciprocal
        reduce_precision round select select_n
        """,
    "shapes": """
        broadcast broadcast_in_dim broadcast_like broadcast_shapes broadcast_to_rank broadcasted_iota collapse
        concatenate empty expand_dims full full_like iota pad reshape rev shape_as_value split squeeze stack
        tile transpose unstack
        """,
    "slices": """
        dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice
        dynamic_update_slice_in_dim gather index_in_dim index_take scatter scatter_add scatter_apply scatter_max
        scatter_min scatter_mul scatter_sub slice slice_in_dim
        """,
    "reductions": """
        argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce reduce_and reduce_max reduce_min
        reduce_or reduce_prod reduce_sum reduce_xor
        """,
    "structural": "approx_max_k approx_min_k optimization_barrier sort sort_key_val stop_gradient top_k",
    "algebra": "PrecisionLike batch_matmul dot dot_general fft ragged_dot",
    "convolution": """
        ConvGeneralDilatedDimensionNumbers conv conv_general_dilated conv_general_dilated_local
        conv_general_dilated_patches conv_general_permutations conv_general_shape_tuple conv_shape_tuple
        conv_transpose conv_transpose_shape_tuple conv_with_general_padding padtype_to_pads
        """,
    "windows": "reduce_window reduce_window_shape_tuple",
    "products": """
        AccuracyMode DotAlgorithm RaggedDotDimensionNumbers Tolerance ragged_dot_general
        scaled_dot
        """,
    "generators": "RandomAlgorithm rng_bit_generator rng_uniform",
    "staging": "after_all composite create_token dce_sink dtype platform_dependent stage",
    "sharding": "with_sharding_constraint",
    "nxjax.ops.dimension_numbers": """
        ConvDimensionNumbers GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers conv_dimension_numbers
        """,
    "nxjax.ops.dot": "DotDimensionNumbers",
    "nxjax.ops.precision": "DotAlgorithmPreset Precision",
    "nxjax.ops.fft": "FftType",
    "nxjax.transforms.collectives": """
        all_gather all_to_all axis_index axis_size pargmax pargmin pbroadcast pcast pmax pmean pmin ppermute
        pshuffle psum psum_scatter pswapaxes pvary
        """,
    "nxjax.transforms.control.cond": "cond switch",
    "nxjax.transforms.control.implicit": "custom_linear_solve custom_root",
    "nxjax.transforms.control.mapping": "associative_scan map",
    "nxjax.transforms.control.scan": "scan",
    "nxjax.transforms.control.while_loop": "fori_loop while_loop",
}
_HOMES = _homes(_FILES)
_MODULES = ("linalg",)
# Primitives that JAX names in `jax.lax.linalg`.
_LINALG = frozenset(
    ("cholesky_p", "cholesky_update_p", "eig_p", "eigh_p", "geqrf_p", "hessenberg_p", "householder_product_p", "lu_p",
     "lu_pivots_to_permutation_p", "ormqr_p", "qr_p", "schur_p", "svd_p", "symmetric_product_p", "triangular_solve_p",
     "tridiagonal_p", "tridiagonal_solve_p")
)  # fmt: skip

__all__ = sorted({*_HOMES, *_LISTED["lax"], *_MODULES})
_find, _ = _lazy(__name__, _HOMES, _MODULES)


def __getattr__(name: str) -> _Any:
    if name in _FUNCTIONS["lax"] and name not in _HOMES:
        found = getattr(_importlib.import_module("nxjax.lax.elementwise"), name)
    elif name.endswith("_p") and not name.startswith("_"):
        found = _importlib.import_module("nxjax.lax.primitives").find(name)
    else:
        return _find(name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    primitives = _importlib.import_module("nxjax.lax.primitives").NAMES
    return sorted({*__all__, *(name for name in primitives if name not in _LINALG)})
