"""The ops that the NumPy face calls, by name, each file loaded when its first op is used.

Importing `nxjax.numpy` must cost next to nothing, and the op files are most of the package: so this module answers
``vocabulary.sin`` by importing the file that holds `sin` and remembering it. Knows file names only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FILES: dict[str, str] = {
    name: file
    for file, names in {
        "argreduce": "argmax argmin",
        "arithmetic": "neg add sub mul div rem pow integer_pow max min abs sign square sqrt cbrt atan2 nextafter",
        "bitwise": "and_ or_ xor not_ shift_left shift_right_logical shift_right_arithmetic population_count",
        "compare": "eq ne lt le gt ge",
        "complex": "real imag complex",
        "conv": "conv_general_dilated",
        "convert": "convert_element_type bitcast_convert_type",
        "create": "iota",
        "cumulative": "cumsum cumprod",
        "dot": "dot_general",
        "elementary": "exp exp2 expm1 log log1p logistic sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh",
        "fft": "fft",
        "identity": "stop_gradient",
        "indexing": "gather",
        "linalg_eigen": "eigh eig",
        "linalg_lu": "lu",
        "linalg_qr": "geqrf qr",
        "linalg_svd": "svd",
        "linalg_triangular": "triangular_solve cholesky",
        "power": "pow_integers",
        "random": "random_unwrap",
        "reduce": "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or",
        "rounding": "floor ceil round is_finite",
        "scatter": "scatter scatter_add scatter_mul scatter_max scatter_min",
        "select": "select_n",
        "shape": "broadcast_in_dim reshape transpose rev",
        "slicing": "slice pad concatenate dynamic_slice",
        "sort": "sort",
        "special": "bessel_i0e bessel_i1e",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    file = _FILES.get(name)
    if file is None:
        raise AttributeError(f"no op is called {name!r}")
    op = globals()[name] = getattr(import_module(f"nxjax.ops.{file}"), name)
    return op
