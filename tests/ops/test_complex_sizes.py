"""Every function of a complex number against many digits, at parts of all sizes: huge, tiny, far apart, of any sign."""

import math

import mpmath
import numpy as np
import pytest

import nxjax as nx
from nxjax.ops import vocabulary
from nxjax.ops.base import Unary
from nxjax.trace import dtypes
from nxjax.trace.core import get_op

DIGITS = 700
MEANING = {
    "abs": abs,
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "integer_pow": lambda z: z**3,
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "log1p": lambda z: mpmath.log(1 + z),
    "neg": lambda z: -z,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sign": lambda z: z / abs(z),
    "square": lambda z: z * z,
}
PARAMS = {"integer_pow": {"y": 3}}
# Of a large angle the sine is another for every rounding; powers of large numbers have no end.
BOUNDED = {"integer_pow", "exp", "exp2", "expm1", "logistic", "sin", "cos", "tan", "sinh", "cosh", "tanh"}
EXPONENTS = {
    dtypes.complex64: (-37, -20, -6, -2, 0, 0.3, 1.2, 10, 19, 30, 38),
    dtypes.complex128: (-305, -160, -30, -15, -7, -1, 0, 0.3, 1.5, 8, 160, 307),
}
# On and beside the unit circles about 0 and -1, and where |1 + z| is 1 to the second order.
PLACES = [
    0.6 + 0.8j,
    -1 + 1j,
    -1 + 1e-7j,
    -2 + 1e-7j,
    1 + 1e-7j,
    1e-7 + 1j,
    -0.5 + 0.5j,
    -5e-9 + 1e-4j,
    -1.3 - 0.953939j,
]
ULPS = 16  # of the whole number's size: one part may lose what the other one is larger by


NAMES = sorted(
    n for n, op in vocabulary.every().items() if isinstance(op, Unary) and dtypes.complex64 in type(op).allowed
)


def numbers(dtype, bounded):
    rng = np.random.default_rng(3)
    sizes = [10.0**e for e in EXPONENTS[dtype] if not bounded or e < 2]
    part = lambda size: rng.choice([-1, 1]) * rng.uniform(1, 1.7) * size
    return np.array([complex(part(a), part(b)) for a in sizes for b in sizes] + PLACES, dtype)


def is_near(found, wanted, info):
    """Whether ``found`` is ``wanted`` up to `ULPS`; of parts that have no end, the sign."""
    found, wanted = complex(found), mpmath.mpc(wanted)
    most = mpmath.mpf(float(info.max))
    endless = [abs(p) > most for p in (wanted.real, wanted.imag)]
    if any(endless):
        parts = zip((found.real, found.imag), (wanted.real, wanted.imag), endless, strict=True)
        return all(not e or (math.isinf(f) and (f > 0) == (w > 0)) for f, w, e in parts)
    if not (math.isfinite(found.real) and math.isfinite(found.imag)):
        return False
    size = max(abs(wanted), mpmath.mpf(float(info.tiny)))
    return abs(mpmath.mpc(found) - wanted) <= ULPS * float(info.eps) * size


@pytest.mark.parametrize("dtype", [dtypes.complex64, dtypes.complex128], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_any_size(name, dtype):
    op, params = get_op(name), PARAMS.get(name, {})
    meaning = MEANING.get(name) or getattr(mpmath, name)
    x = numbers(dtype, name in BOUNDED)
    with nx.enable_x64(), np.errstate(all="ignore"):
        ways = {
            "eval": op.eval(x, **params),
            "compiled": np.asarray(nx.jit(lambda v: op(v, **params))(nx.numpy.asarray(x))),
        }
    info = dtypes.float_info(dtypes.real_part(dtype))
    with mpmath.workdps(DIGITS):
        for i, z in enumerate(x):
            wanted = meaning(mpmath.mpc(float(z.real), float(z.imag)))
            for way, y in ways.items():
                assert is_near(y[i], wanted, info), f"{way}: {name}({z}) = {y[i]}, not {mpmath.nstr(wanted, 17)}"
