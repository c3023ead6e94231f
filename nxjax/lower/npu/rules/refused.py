"""Ops that no NPU has, and what to write instead: the reasons in errors and reports."""

from __future__ import annotations

from typing import Any, Final

from nxjax.lower.npu.builder import GraphBuilder, Rule, Unsupported


def _refused(reason: str, suggestion: str) -> Rule:
    def rule(b: GraphBuilder, out: Any, *xs: Any, **params: Any) -> Any:
        raise Unsupported(reason, suggestion)

    return rule


# The ops, why, and what to write instead.
_ROWS: Final = (
    ("scatter scatter_add scatter_mul scatter_min scatter_max scatter_sub",
     "it writes at computed places, which NPUs do not",
     "choose with nx.numpy.where, or multiply with a one-hot matrix"),
    ("random_bits random_seed random_split random_fold_in random_wrap random_unwrap threefry2x32 random_clone "
     "random_gamma_grad", "random numbers are not drawn on an NPU", "draw them outside and pass them in"),
    ("pure_callback io_callback debug_callback check",
     "Python functions do not run on an NPU", "call it outside of the compiled function"),
    ("cholesky lu qr svd eig eigh geqrf triangular_solve hessenberg schur tridiagonal qr_pivots custom_linear_solve "
     "custom_root", "factorizations have no NPU instruction", "compute it outside of the compiled function"),
    ("fft", "there is no NPU instruction for {op}", "multiply with the constant matrix of the transform"),
    ("shift_left shift_right_arithmetic shift_right_logical clz population_count bitcast_convert_type",
     "bits are not reachable on an NPU", "use arithmetic: // and * by powers of two"),
    ("psum pmax pmin ppermute all_gather all_to_all reduce_scatter axis_index",
     "an NPU graph runs on one device", "combine the results outside of the compiled function"),
    ("polygamma zeta igamma igammac atan2 regularized_incomplete_beta",
     "there is no NPU instruction for {op}", "compute it outside, or replace it by a polynomial or a table"),
    ("lgamma digamma erf_inv bessel_i0e bessel_i1e acos acosh asin asinh atan atanh",
     "there is no NPU instruction for {op}",
     "nx.quantize(f, 'int8') makes a table of it; or compute it outside, or replace it by a polynomial"),
)  # fmt: skip
# A report names the part of an expansion that is refused.
RULES: Final[dict[str, Rule]] = {
    op: _refused(reason.format(op=op), fix) for ops, reason, fix in _ROWS for op in ops.split()
}
