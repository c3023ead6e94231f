"""`jax.numpy` on nxjax: NumPy's functions on immutable arrays, traceable and differentiable.

Functions are loaded, file by file, when they are first used; importing this package only gives arrays their operators
and methods. Promotion is JEP 9407's; see `promotion`.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from nxjax.numpy import methods as _methods
from nxjax.trace.core import Array as _Array
from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

# file -> the public names it holds, but for those that ops say of themselves
_FILES: dict[str, str] = {
    "scalar_types": """
        bool bool_ int4 int8 int16 int32 int64 int_ uint uint4 uint8 uint16 uint32 uint64 bfloat16 float16 float32
        float64 float_ float8_e4m3fn float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz complex64
        complex128 complex_ single double csingle cdouble generic number integer inexact floating complexfloating
        signedinteger unsignedinteger flexible character object_ dtype issubdtype isdtype result_type promote_types
        float8_e3m4 float8_e4m3 float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int1 int2 uint1 uint2
        ComplexWarning can_cast finfo iinfo e pi inf nan euler_gamma newaxis
        """,
    "creation": """
        array asarray copy astype zeros ones empty full zeros_like ones_like empty_like full_like array_repr array_str
        set_printoptions get_printoptions printoptions
        """,
    "ranges": "arange linspace logspace geomspace fromfunction eye identity tri vander",
    "buffers": "fromfile fromiter fromstring frombuffer from_dlpack",
    "files": "load save savez",
    "elementwise": """
        negative add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert
        invert positive square sign absolute abs fabs floor ceil trunc equal not_equal less less_equal greater
        greater_equal logical_and logical_or logical_xor logical_not
        """,
    "powers": """
        power pow float_power reciprocal log2 log10 logaddexp logaddexp2 hypot floor_divide remainder mod fmod divmod
        modf round around rint fix
        """,
    "floats": """
        isfinite isnan isinf isposinf isneginf isreal iscomplex iscomplexobj isrealobj isscalar isclose allclose
        array_equal array_equiv real imag conjugate conj angle signbit copysign frexp ldexp spacing nan_to_num rad2deg
        deg2rad degrees radians fmax fmin heaviside i0 clip
        """,
    "shapes": """
        shape ndim size iterable reshape ravel transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis
        expand_dims squeeze broadcast_shapes broadcast_to broadcast_arrays atleast_1d atleast_2d atleast_3d unstack
        """,
    "rearranging": "flip fliplr flipud rot90 roll tile repeat resize",
    "joining": """
        concatenate concat stack vstack hstack dstack column_stack block split array_split vsplit hsplit dsplit
        append delete insert trim_zeros ediff1d
        """,
    "statistics": "quantile nanquantile percentile nanpercentile median nanmedian cov corrcoef unwrap",
    "calculus": """
        diff gradient trapezoid interp convolve correlate bartlett blackman hamming hanning kaiser
        """,
    "padding": "pad",
    "polynomials": "polyval polyadd polysub polymul polydiv polyder polyint polyfit poly roots",
    "functional": "vectorize apply_along_axis apply_over_axes frompyfunc",
    "ufuncs": "ufunc",
    "integers": """
        left_shift right_shift bitwise_left_shift bitwise_right_shift bitwise_count gcd lcm packbits unpackbits
        """,
    "sorting": """
        sort argsort lexsort sort_complex partition argpartition searchsorted digitize bincount histogram_bin_edges
        histogram histogram2d histogramdd
        """,
    "sets": """
        unique unique_all unique_counts unique_inverse unique_values isin union1d setdiff1d intersect1d setxor1d
        """,
    "contractions": """
        dot matmul matvec vecmat vdot vecdot inner outer tensordot kron trace cross einsum einsum_path
        """,
    "grids": """
        diagonal diag diagflat tril triu tril_indices triu_indices tril_indices_from triu_indices_from diag_indices
        diag_indices_from mask_indices fill_diagonal meshgrid ix_ indices mgrid ogrid r_ c_ s_ index_exp
        """,
    "indexing": "take take_along_axis put_along_axis put place unravel_index ravel_multi_index",
    "reductions": """
        sum prod max min amax amin all any count_nonzero ptp mean average var std argmax argmin cumsum cumprod
        cumulative_sum cumulative_prod
        """,
    "nan_reductions": """
        nansum nanprod nanmax nanmin nanmean nanvar nanstd nanargmax nanargmin nancumsum nancumprod
        """,
    "standard": "__array_namespace_info__",
    "selection": "where select piecewise choose extract compress nonzero flatnonzero argwhere",
}
_HOMES = _homes(_FILES)
_MODULES = ("linalg", "fft")
_find, _ = _lazy(__name__, _HOMES, _MODULES)

_methods.attach()

__array_api_version__ = "2024.12"


def __getattr__(name: str) -> _Any:
    if name in _HOMES or name in _MODULES:
        return _find(name)
    if name == "__all__":
        listed = _importlib.import_module("nxjax.ops.vocabulary").LISTED["numpy"]
        return sorted({*_HOMES, *listed, *_MODULES, "ndarray"})
    if name == "ndarray":
        found = _Array
    elif name in _importlib.import_module("nxjax.ops.vocabulary").FUNCTIONS["numpy"]:
        found = getattr(_importlib.import_module("nxjax.numpy.elementwise"), name)
    else:
        return _find(name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __getattr__("__all__")
