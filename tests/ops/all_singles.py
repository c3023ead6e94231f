"""All 2^32 numbers of float32 through the table of exact ops, or through those that are named.

    python -m tests.ops.all_singles [instruction set] [op ...]

An op takes some minutes. The functions with a bound of their own are measured faster by `benchmarks/cpu_math.py`.
"""

import sys

import numpy as np

from nxjax.kernels.cpu import isa
from nxjax.trace import dtypes
from tests.ops.exhaustive import ROWS
from tests.ops.numbers import EXACT
from tests.ops.test_exhaustive import cases_of, differences

BLOCK = 1 << 22


def main():
    way = sys.argv[1] if len(sys.argv) > 1 else isa.current().name
    names = sys.argv[2:] or [n for n, row in ROWS.items() if row.kinds == "x" and row.bound == EXACT and n != "copy"]
    failed = False
    for name in names:
        found = []
        for start in range(0, 1 << 32, BLOCK):
            x = (np.arange(BLOCK, dtype=np.uint32) + np.uint32(start)).view(np.float32)
            with np.errstate(all="ignore"):
                cases = cases_of(dtypes.float32, "x", [x], [name])
                found += differences(way, dtypes.float32, [x], cases)
            if not cases or len(found) > 10:
                break
        print(f"{name}: {found[0] if found else 'as the table says' if cases else 'takes no float32'}", flush=True)
        failed |= bool(found)
    return failed


if __name__ == "__main__":
    sys.exit(main())
