"""Ops that tiles do not run, and what to do instead: the reasons in errors."""

from __future__ import annotations

from typing import Final

_CALLBACK = ("Python functions do not run on tiles", "call it outside of the compiled function")
_COMPLEX = ("tiles have no complex numbers", "keep real and imaginary parts apart")
_COLLECTIVE = (
    "a collective names devices that this program is not mapped over",
    "compile the function for several IPUs, or combine the results outside of it",
)

REASONS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback", "check"), _CALLBACK),
    **dict.fromkeys(("complex", "conj", "real", "imag"), _COMPLEX),
    "fft": (
        "tiles have no complex numbers",
        "multiply real and imaginary parts with the constant matrices of the transform",
    ),
    **dict.fromkeys(
        (
            "psum",
            "psum_invariant",
            "pvary",
            "pmax",
            "pmin",
            "ppermute",
            "all_gather",
            "all_to_all",
            "reduce_scatter",
            "axis_index",
        ),
        _COLLECTIVE,
    ),
    **dict.fromkeys(
        ("hessenberg", "schur", "tridiagonal", "qr_pivots"),
        ("it runs on the host", "compute it outside"),
    ),
    "no_derivative": ("it stands for a rule that does not exist", "leave that derivative out of the function"),
    "eig": ("eigenvalues of a general matrix are complex", "use eigh on a symmetric matrix, or compute it outside"),
}
