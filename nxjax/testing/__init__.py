"""The laws that every op and function must satisfy, as public checks.

Test a new op with `check_op`. Each failure is a `LawBroken` whose message names the law.
"""

from nxjax.testing.comparison import LawBroken, assert_close, executors, tolerance
from nxjax.testing.functions import Traces, check_batch, check_grads, checked_programs, count_traces
from nxjax.testing.fuzzing import Fuzzed, fuzz
from nxjax.testing.laws import Bad, Sample, bad, check_op, sample
from nxjax.testing.programs import RandomProgram, random_program

__all__ = [
    "Bad",
    "Fuzzed",
    "LawBroken",
    "RandomProgram",
    "Sample",
    "Traces",
    "assert_close",
    "bad",
    "check_batch",
    "check_grads",
    "check_op",
    "checked_programs",
    "count_traces",
    "executors",
    "fuzz",
    "random_program",
    "sample",
    "tolerance",
]
