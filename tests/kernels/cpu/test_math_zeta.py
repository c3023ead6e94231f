"""Zeta and polygamma: what their meaning gives, which is computed in double precision, to the bit or nearly."""

import numpy as np
import pytest

from nxjax.ops import special
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.test_ops import kernel_of


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16], ids=str)
def test_as_the_meaning(isa_name, dtype):
    rng = np.random.default_rng(0)
    wanted = np.nan, np.inf, 0.5, 1.0, 2.0, 3.0
    s = np.concatenate([rng.random(300) * 10 + 1.01, rng.integers(2, 9, 300), np.repeat(wanted, 6)])
    m = np.concatenate([rng.integers(0, 6, 600), np.repeat([np.nan, -1, 0.5, 0, 1, 2], 6)])
    q = np.concatenate([rng.random(300) * 20 + 0.01, (rng.random(300) - 0.5) * 20])
    q = np.concatenate([q, np.tile([np.nan, np.inf, 0, -1, -2.5, 1], 6)])
    for op, first in ((special.zeta, s), (special.polygamma, m)):
        xs = [v.astype(dtype) for v in (first, q)]
        kernel = kernel_of(op.name, (dtype, dtype), dtype, {}, isa_name, len(q))
        with np.errstate(all="ignore"):
            y, exact = run(kernel, *xs, name=isa_name)[0].astype("f8"), op.eval(*xs).astype("f8")
        bound = 1e-13 if dtype == dtypes.float64 else float(dtypes.float_info(dtype).eps)
        np.testing.assert_allclose(y, exact, rtol=bound, err_msg=op.name)
