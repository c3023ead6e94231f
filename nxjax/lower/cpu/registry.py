"""Rules by the op's name: which file has which, imported when a program first has one of its ops.

A file of rules brings the kernels that it writes; to import all of them takes longer than to compile most programs.
Knows no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nxjax.kernels.cpu import ops
from nxjax.trace.lazy import load
from nxjax.trace.program import Equation

if TYPE_CHECKING:
    from nxjax.lower.cpu.lapack import Routine

Rule = Callable[..., Sequence[Any]]
MODULES: Final[Mapping[str, frozenset[str]]] = {
    "elementwise": ops.NAMES | {"stop_gradient"},
    **{
        file: frozenset(names.split())
        for file, names in {
            "shape": "broadcast_in_dim iota reshape rev slice transpose",
            "reduce": "reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor",
            "conv": "conv_general_dilated",
            "dot": "dot_general",
            "block_dot": "block_dot",
            "cached_attention": "cached_attention",
            "choose": "select_and_gather_add select_and_scatter_add",
            "pool": "reduce_window_max reduce_window_min reduce_window_sum",
            "quant": "qadd qavgpool qconv qmul qsub quantize_dequantize requantize",
            "quant_dot": "qdot qmatmul",
            "quant_rows": "qmean qsoftmax qsum qunary",
            "random": "random_bits random_clone random_split random_unwrap random_wrap",
            "linalg": "cholesky eigh geqrf householder_product lu svd triangular_solve",
            "fft": "fft",
            "incomplete": "igamma igamma_grad_a igammac random_gamma_grad regularized_incomplete_beta",
            "cumulative": "cumlogsumexp cummax cummin cumprod cumsum",
            "gather": "gather",
            "join": "concatenate pad split",
            "scatter": "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub",
            "slicing": "dynamic_slice dynamic_update_slice",
            "search": "searchsorted",
            "sort": "sort top_k",
            "control": "cond scan while",
            "effects": "check debug_callback io_callback optimization_barrier pure_callback",
        }.items()
    },
}
# Ops that a library has a routine for, where kernels are slower: see `lapack`.
LIBRARY: Final = frozenset((
    "cholesky", "eigh", "geqrf", "hessenberg", "householder_product", "lu", "qr_pivots", "schur", "svd",
    "triangular_solve", "tridiagonal",
))  # fmt: skip
_HOMES: Final = {name: file for file, names in MODULES.items() for name in names}
NAMES: Final = frozenset(_HOMES)

_rules: dict[str, Rule] = {}
_ready: set[str] = set()  # ops whose file has been imported to its end


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the ops of these names; `MODULES` says in which file."""

    def add(function: Rule) -> Rule:
        for name in names:
            other = _rules.get(name)
            # An import that Ctrl-C ends is done again, with functions of the same places.
            if other is not None and _place(other) != _place(function):
                raise AssertionError(f"two rules for {name}")
            if name not in NAMES:
                raise AssertionError(f"MODULES does not say where the rule for {name} is")
            _rules[name] = function
        return function

    return add


def _place(rule: Rule) -> tuple[str, str]:
    return rule.__module__, rule.__qualname__


def rule_of(name: str) -> Rule | None:
    """The rule for the op ``name``."""
    if name not in _ready and name in _HOMES:
        # Another thread may be in the middle of the file: a rule is there then, and what it calls is not.
        load(f"nxjax.lower.cpu.rules.{_HOMES[name]}")
        _ready.add(name)
    return _rules.get(name)


def routine_of(e: Equation, read: Sequence[bool]) -> Routine | None:
    """The library's routine for an equation, and which of its results anybody reads."""
    if e.op.name not in LIBRARY:
        return None
    from nxjax.lower.cpu import lapack

    return lapack.routine(e, read)
