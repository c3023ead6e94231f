"""Ops that no NPU has, and what to write instead: the reasons in errors and reports."""

from __future__ import annotations

from typing import Any, Final

from nxjax.lower.npu.builder import Builder, Rule, Unsupported


def _refused(reason: str, suggestion: str) -> Rule:
    def rule(b: Builder, out: Any, *xs: Any, **params: Any) -> Any:
        raise Unsupported(reason, suggestion)

    return rule


_SORT = _refused("no NPU sorts", "return the scores and sort them on the host, or take argmax or reduce_max")
_SCATTER = _refused(
    "it writes at computed places, which NPUs do not", "choose with nx.numpy.where, or multiply with a one-hot matrix"
)
_RANDOM = _refused("random numbers are not drawn on an NPU", "draw them outside and pass them in")
_CALLBACK = _refused("Python functions do not run on an NPU", "call it outside of the compiled function")
_LINALG = _refused("factorizations have no NPU instruction", "compute it outside of the compiled function")
_FFT = _refused("there is no NPU instruction for it", "multiply with the constant matrix of the transform")
_BITS = _refused("bits are not reachable on an NPU", "use arithmetic: // and * by powers of two")
_COLLECTIVE = _refused("an NPU graph runs on one device", "combine the results outside of the compiled function")
_SPECIAL = "compute it outside, or replace it by a polynomial or a table"
_FUNCTION = "nx.quantize(f, 'int8') makes a table of it; or compute it outside, or replace it by a polynomial"


def _functions(suggestion: str, *names: str) -> dict[str, Rule]:
    """Elementary functions, by name: a report names the part of an expansion that is refused."""
    return {name: _refused(f"there is no NPU instruction for {name}", suggestion) for name in names}


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("sort", "top_k"), _SORT),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max", "scatter_sub"), _SCATTER),
    **dict.fromkeys(
        ("random_bits", "random_seed", "random_split", "random_fold_in", "random_wrap", "random_unwrap"), _RANDOM
    ),
    **dict.fromkeys(("threefry2x32", "random_clone", "random_gamma_grad"), _RANDOM),
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback", "check"), _CALLBACK),
    **dict.fromkeys(("cholesky", "lu", "qr", "svd", "eig", "eigh", "geqrf", "triangular_solve"), _LINALG),
    **dict.fromkeys(("hessenberg", "schur", "tridiagonal", "qr_pivots", "custom_linear_solve", "custom_root"), _LINALG),
    "fft": _FFT,
    **dict.fromkeys(("shift_left", "shift_right_arithmetic", "shift_right_logical", "clz", "population_count"), _BITS),
    "bitcast_convert_type": _BITS,
    **dict.fromkeys(
        ("psum", "pmax", "pmin", "ppermute", "all_gather", "all_to_all", "reduce_scatter", "axis_index"), _COLLECTIVE
    ),
    **_functions(_SPECIAL, "polygamma", "zeta", "igamma", "igammac", "atan2", "regularized_incomplete_beta"),
    **_functions(_FUNCTION, "lgamma", "digamma", "erf_inv", "bessel_i0e", "bessel_i1e"),
    **_functions(_FUNCTION, "acos", "acosh", "asin", "asinh", "atan", "atanh"),
}
