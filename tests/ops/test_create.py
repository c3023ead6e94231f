"""iota: every law."""

import jax
import numpy as np

from nxjax.errors import AxisError, DtypeError
from nxjax.ops.create import iota
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes


def test_iota():
    kinds = (dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.bfloat16)
    check_op(
        iota,
        [sample(dtype=d, shape=(2, 3), dimension=i) for d in kinds for i in (0, 1)],
        [
            bad(error=AxisError, says="out of range", dtype=dtypes.int32, shape=(2,), dimension=1),
            bad(error=DtypeError, says="bool", dtype=dtypes.bool_, shape=(2,), dimension=0),
        ],
        reference=lambda **p: np.asarray(jax.lax.broadcasted_iota(p["dtype"], p["shape"], p["dimension"])),
    )
