"""Which file has the emitters of which elementwise ops, and what these cost. Must not import the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Which ops each file has emitters of, by what one takes beside an addition, roughly.
_CODE: Final = {
    # First, since what stands later counts: most are of real numbers.
    "math_complex": {
        30: "acos acosh asin asinh atan atanh cos cosh exp2 expm1 log log1p pow sign sin sinh sqrt tan tanh"
    },
    "ops_arithmetic": {
        1: """abs add bitcast_convert_type ceil convert_element_type copy eq floor ge gt le lt max min mul ne neg
            reduce_precision round select_n sign sub""",
        4: "div sqrt",
        30: "rem",
    },
    "ops_bits": {1: "and clz not or population_count shift_left shift_right_arithmetic shift_right_logical xor"},
    "ops_complex": {1: "abs add complex convert_element_type eq imag mul ne neg real square sub", 4: "div", 12: "exp"},
    "math_exp": {12: "exp exp2 expm1 logistic tanh", 20: "cosh sinh"},
    "math_log": {12: "cbrt log log1p", 30: "acosh asinh atanh"},
    "math_power": {30: "pow"},
    "math_trig": {12: "cos sin", 20: "acos asin atan atan2 tan"},
    "math_zeta": {60: "polygamma zeta"},
    "math_special": {1: "bessel_i0e bessel_i1e", 20: "erf erf_inv erfc", 30: "digamma lgamma"},
    "ops_quant": {
        1: """stored_bias stored_byte stored_cut stored_exponent stored_left stored_mantissa stored_pair stored_real
            stored_right stored_single""",
        4: "stored_average stored_move stored_product stored_quantize stored_rescale",
        8: "stored_sum",
    },
    "ops_quant_dot": {1: "stored_factor", 4: "stored_dense stored_matmul"},
    "ops_quant_rows": {1: "stored_share", 4: "stored_mean stored_softmax stored_table", 12: "stored_inverse"},
    "threefry": {1: "random_fold_in random_seed threefry"},
}
# Which of them are for complex numbers, beside others for real ones.
COMPLEX: Final = ("math_complex", "ops_complex")
# A file is imported when a program first has one of its ops.
MODULES: Final[Mapping[str, frozenset[str]]] = {
    file: frozenset(" ".join(names.values()).split()) for file, names in _CODE.items()
}
# Those that take more than an addition.
DEAR: Final[Mapping[str, int]] = {
    "rsqrt": 4,
    **{name: n for ops in _CODE.values() for n, names in ops.items() if n > 1 for name in names.split()},
}
# Transcendental functions: their code is long, and the same in every program.
FUNCTIONS: Final = frozenset({"integer_pow", "rsqrt"}).union(
    *(MODULES[file] for file in ("math_exp", "math_log", "math_power", "math_special", "math_trig", "math_zeta"))
)
