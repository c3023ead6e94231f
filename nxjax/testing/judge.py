"""What a random program must give: bounds of its results from float64, and from what rounding errors do to it.

The function runs on the reference executor three ways: as it is; with every float in 64 bits; and in 64 bits with the
rounding errors of the working precision put on top of every line's value, at random. What differs between these is what
no implementation can be held to, so that an ill-conditioned program has wide bounds, and a stable one narrow ones.
Knows nothing of how programs are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

import nxjax
from nxjax import lax as nx_lax
from nxjax import numpy as nx_numpy
from nxjax.backends.quiet import quiet
from nxjax.errors import NxError
from nxjax.testing.comparison import NDArray
from nxjax.testing.numeric import Numeric, TooLarge
from nxjax.trace import dtypes
from nxjax.trace.evaluate import Perturbation, evaluate, perturbation

Results = list[NDArray]
# How far off a result may be: by what noise did to this element and to its neighbours, and by units of its last place.
_OWN, _MEAN, _ULPS = 64.0, 6.0, 32.0
_WIDE: Final = {
    **{d.name: "float64" for d in dtypes.FLOAT},
    "complex64": "complex128",
}


_LINE: Final = re.compile(r"^( *)(\w+) = (.*)$", re.MULTILINE)


def _with_noise(line: re.Match[str], rounds: Mapping[str, float]) -> str:
    indent, name, right = line.groups()
    return f"{indent}{name} = _noise({right}, {rounds[name]:.3g})" if name in rounds else line.group()


# What puts elements in an order.
_ORDERS: Final = re.compile("sort|top_k|median|quantile|percentile|partition")

# Around the point by two steps, and on one side of it: where they differ there is a kink, or too much noise. No step
# is a round number, at which several kinks could make up for one another.
_NUMERIC: Final = (Numeric(1.1e-3), Numeric(3e-4), Numeric(1.3e-3, forward=True))


# Functions that make floats of 32 bits of nothing, and the place of the dtype among their arguments.
_MAKE: Final = {
    "zeros": 1,
    "ones": 1,
    "empty": 1,
    "identity": 1,
    "array": 1,
    "full": 2,
    "eye": 3,
    "tri": 3,
    "linspace": 5,
}


class Wide:
    """`nxjax.numpy`, or ``module``, whose floats have 64 bits whatever they are called: ``names`` says who is who."""

    def __init__(self, module: Any = nx_numpy, names: Mapping[str, str] = _WIDE) -> None:
        self._module, self._names = module, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, self._names.get(name, name))
        if name not in _MAKE:
            return found

        def make(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            given = len(args) > _MAKE[name] or "dtype" in kwargs or not hasattr(made, "dtype")
            wide = made.dtype.name if given else self._names.get(made.dtype.name, made.dtype.name)
            return made if given or wide == made.dtype.name else made.astype(wide)

        return make


_wide: Final = Wide()


def widened(x: Any) -> Any:
    """Floats in 64 bits, those of Python too; anything else as it is.

    >>> widened(np.ones(2, np.float32)).dtype.name
    'float64'
    """
    if isinstance(x, float):
        return np.asarray(x)
    if not isinstance(x, np.ndarray) or x.dtype not in (*dtypes.FLOAT, *dtypes.COMPLEX):
        return x
    return x.astype(np.complex128 if x.dtype in dtypes.COMPLEX else np.float64)


def defined(text: str, **names: Any) -> Callable[..., Any]:
    """The function ``f`` that a program's text defines, on nxjax unless ``names`` says otherwise."""
    env: dict[str, Any] = {"jax": nxjax, "jnp": nx_numpy, "lax": nx_lax, "np": np, **names}
    exec(text, env)
    return env["f"]


def leaves(results: Any) -> Results:
    """Results as NumPy arrays, in the order of their tree."""
    return [np.asarray(x) for x in nxjax.tree.leaves(results)]


def arrays(args: Sequence[Any]) -> list[Any]:
    """Arguments as arrays of nxjax; Python numbers as they are."""
    return [nx_numpy.asarray(x, dtype=x.dtype) if isinstance(x, np.ndarray) else x for x in args]


def _noise(rng: np.random.Generator, size: float, wide: bool) -> Callable[[Any, float], Any]:
    """What puts rounding errors of ``size`` times half a unit in the last place on floats, and keeps their dtype."""

    def one(x: Any, eps: float) -> Any:
        if x.dtype not in dtypes.FLOAT and x.dtype not in dtypes.COMPLEX:
            return x
        factor = 1 + rng.uniform(-size * eps, size * eps, x.shape)
        y = (x.astype(np.float64) if x.dtype in dtypes.NARROW else x) * nx_numpy.asarray(factor, dtype=np.float64)
        return y if wide else y.astype(x.dtype)

    def noise(value: Any, eps: float) -> Any:
        return nxjax.tree.map(lambda x: one(x, eps), value)

    return noise


def _shaken(x: Any, rng: np.random.Generator, size: float) -> Any:
    """An argument in 64 bits, moved within ``size`` times half a unit in the last place of what it was."""
    if not isinstance(x, np.ndarray) or x.dtype not in (*dtypes.FLOAT, *dtypes.COMPLEX):
        return widened(x)
    eps = float(ml_dtypes.finfo(x.dtype).eps) / 2
    return np.asarray(widened(x) * (1 + rng.uniform(-size * eps, size * eps, x.shape)))


def _untied(x: Any, rng: np.random.Generator, ordered: bool) -> Any:
    """An argument in 64 bits, where equal elements are none any more: where there are some, a sort has no derivative.

    Those are many in narrow floats, which are moved within their last place. If the program has ``ordered`` elements,
    any are.
    """
    wide = widened(x)
    if not isinstance(x, np.ndarray) or x.dtype not in (dtypes.FLOAT if ordered else dtypes.NARROW):
        return wide
    eps = max(float(ml_dtypes.finfo(x.dtype).eps) / 2, 0.02 if ordered else 0.0)
    return np.asarray(wide + rng.uniform(-eps, eps, x.shape) * (np.abs(wide) + 0.1))


class Bounds:
    """What the results of a program may be.

    Args:
        text: the program.
        args: NumPy arrays and Python numbers.
        rounds: which of its variables are rounded, and how: half a unit in the last place of one. None: every result is
            known to the bit.
        once: one of them is rounded to the nearest, and no other.
    """

    def __init__(self, text: str, args: Sequence[Any], rounds: Mapping[str, float], once: bool = False) -> None:
        self._text, self._args, self.exact, self.once = text, args, not rounds, once
        self._ordered = _ORDERS.search(text) is not None
        self._noisy = _LINE.sub(lambda m: _with_noise(m, rounds), text)
        self._rng = np.random.default_rng(0)
        # As they are now: a second look comes later.
        self._settings = {"executor": "reference", "enable_x64": nxjax.config.enable_x64}
        with quiet(), nxjax.config.using(**self._settings):
            self.working = leaves(defined(text)(*arrays(args)))
            self._runs: list[Results] = []
            self._wide = True
            if rounds:
                try:
                    self._first()
                except NxError:  # an op takes no floats of 64 bits beside those that others make of integers
                    self._wide = False
                    self._first()

    def _first(self) -> None:
        """Without rounding errors, and with some."""
        self._runs = []
        self.clean = leaves(defined(self._text, **self._names)(*arrays([self._widened(x) for x in self._args])))
        self._shake(False, 1.0)
        self._shake(True, 1.0)

    @property
    def _names(self) -> dict[str, Any]:
        return {"jnp": _wide} if self._wide else {}

    def _widened(self, x: Any) -> Any:
        return widened(x) if self._wide else x

    def _shake(self, arguments: bool, size: float) -> None:
        f = defined(self._noisy, **self._names, _noise=_noise(self._rng, size, self._wide))
        args = [_shaken(x, self._rng, size) if arguments else widened(x) for x in self._args]
        if not self._wide:
            args = [
                y.astype(x.dtype) if isinstance(x, np.ndarray) else float(y) if isinstance(x, float) else y
                for x, y in zip(self._args, args, strict=True)
            ]
        self._runs.append(leaves(f(*arrays(args))))

    def widen(self, several: bool = False) -> None:
        """More runs with more noise: what is near a step or a tie is told from what is wrong.

        Args:
            several: a value may be computed several times, with other rounding errors, as compilers do.
        """
        if not self.exact:
            with quiet(), nxjax.config.using(**self._settings):
                for k in range(16):
                    self._shake(k % 2 == 1, (1.0, 2.0, 4.0, 8.0)[k // 4])
                # A line may round many times: what comes out in the working precision beside the point shows that.
                for size in (1.0, 1.0, 2.0, 2.0, 4.0, 8.0):
                    args = [
                        _shaken(x, self._rng, 2 * size).astype(x.dtype) if isinstance(x, np.ndarray) else x
                        for x in self._args
                    ]
                    self._runs.append(leaves(defined(self._text)(*arrays(args))))
                # Many: whether two results are equal may be a matter of one number's last place.
                sizes = (1.0, 1.0, *(2.0,) * 12)
                signs = (None, True, False)
                self._runs += [self._rounded(n, several and n > 1, signs[k % 3]) for k, n in enumerate(sizes)]

    def _rounded(self, size: float, each_use: bool, negative: bool | None) -> Results:
        """The results in the working precision, each equation's value rounded at random, as by other kernels.

        Args:
            negative: the sign of every NaN, which shows where its bits are read, as in an order; None: any.
        """
        program = nxjax.make_jaxpr(defined(self._text))(*self._args)
        hoisted, consts = program.hoist_consts()

        def perturb(x: NDArray) -> NDArray:
            if x.dtype not in dtypes.FLOAT and x.dtype not in dtypes.COMPLEX:
                return x
            eps = float(ml_dtypes.finfo(x.dtype).eps) / 2
            y = np.asarray(widened(x) * (1 + self._rng.uniform(-size * eps, size * eps, x.shape))).astype(x.dtype)
            fixed = negative is not None and y.dtype not in dtypes.COMPLEX
            turned = np.signbit(y) != negative if fixed else self._rng.random(y.shape) < 0.5
            return np.where(np.isnan(y) & turned, -y, y)

        token = perturbation.set(Perturbation(perturb, each_use))
        try:
            flat = [np.asarray(x) for x in (*consts, *arrays(self._args))]
            return evaluate(hoisted, flat)
        finally:
            perturbation.reset(token)

    def wrong_derivatives(self) -> str:
        """Where the derivatives in 64 bits are not those that differences of values give, as far as these are known."""
        if not self._wide:
            return ""
        try:
            with quiet(), nxjax.config.using(**self._settings):
                args = arrays([_untied(x, self._rng, self._ordered) for x in self._args])

                def of(numeric: Numeric) -> Results:
                    numeric.taken, numeric.lost = 0, False
                    return leaves(defined(self._text, jnp=_wide, jax=numeric)(*args))

                try:
                    clean = leaves(defined(self._text, jnp=_wide)(*args))
                    runs = [of(numeric) for numeric in _NUMERIC]
                except NxError:  # floats of 32 bits, made of integers, beside those that are widened
                    return ""
                wrong = _off(clean, runs)
                if not wrong or any(numeric.lost for numeric in _NUMERIC):
                    return ""
                # Derivatives of derivatives have a thousand times the noise. By powers of two: a half stays one.
                blurs = (2.0**-37, 2.0**-27)
                others = [Numeric(1e-3, blur=blur, cut=True) for blur in blurs]
                others += [Numeric(1e-3, blur=blur) for blur in blurs] * 5
                return _off(clean, [*runs, *map(of, others)])
        except TooLarge:
            return ""

    def wrong_slopes(self) -> str:
        """Where the program's own derivatives along a direction are not those of differences, or not those of `vjp`."""
        f = defined(self._text, jnp=_wide)
        given = arrays([_untied(x, self._rng, self._ordered) for x in self._args])
        places = [i for i, x in enumerate(given) if getattr(x, "dtype", None) in dtypes.FLOAT]
        if not places or not self._wide:
            return ""

        def of(*floats: Any) -> Any:
            full = list(given)
            for i, x in zip(places, floats, strict=True):
                full[i] = x
            return [y for y in nxjax.tree.leaves(f(*full)) if y.dtype in dtypes.FLOAT]

        random = lambda xs: [nx_numpy.asarray(self._rng.uniform(-1, 1, x.shape), dtype=np.float64) for x in xs]
        with quiet(), nxjax.config.using(**self._settings):
            xs = [given[i] for i in places]
            ts = random(xs)
            ys, pushed = nxjax.jvp(of, tuple(xs), tuple(ts))
            for numeric in _NUMERIC:
                numeric.taken = 0
            wrong = _off(leaves(pushed), [leaves(numeric.jvp(of, xs, ts)[1]) for numeric in _NUMERIC])
            if wrong or not ys:
                return wrong
            cts = [ct.astype(y.dtype) for ct, y in zip(random(ys), ys, strict=True)]
            left, right = _pair(cts, pushed), _pair(nxjax.vjp(of, *xs)[1](cts), ts)
            size = np.abs(left).sum() + np.abs(right).sum() + 1
            if not np.isfinite(size) or abs(left.sum() - right.sum()) <= 1e-5 * size:
                return ""
            # Where they hang on rounding errors, as of what is 0 but for these, the two make different ones.
            for _ in range(4):
                near = [x * (1 + 1e-14 * e) for x, e in zip(xs, random(xs), strict=True)]
                other = _pair(cts, nxjax.jvp(of, tuple(near), tuple(ts))[1])
                if not abs(left.sum() - other.sum()) <= 1e-6 * size:
                    return ""
            return f"wrong derivative: vjp and jvp pair to {right.sum()} and {left.sum()}"

    def wrong(self, got: Results, digits: float = 1.0, bits: bool = False) -> str:
        """What of ``got`` lies outside of the bounds; an empty text if nothing does.

        Args:
            digits: the share of a float's digits that have to be right; 1: all that the bounds ask for.
            bits: what is rounded once is to be right to the bit.
        """
        if len(got) != len(self.working):
            return f"wrong type: {len(got)} results instead of {len(self.working)}"
        for i, (a, w) in enumerate(zip(got, self.working, strict=True)):
            if a.shape != w.shape or a.dtype != w.dtype:
                return f"wrong type: result {i} is {a.dtype}{list(a.shape)}, expected {w.dtype}{list(w.shape)}"
            bad, expected, allowed = self._bad(i, a, w, digits, self.exact or (self.once and bits))
            if bad.any():
                at = tuple(int(n) for n in np.unravel_index(int(np.argmax(bad)), bad.shape))
                return (
                    f"wrong value: result {i}, {a.dtype}{list(a.shape)}, {int(bad.sum())} of {a.size} elements: "
                    f"[{', '.join(map(str, at))}] is {a[at]}, expected {expected[at]}"
                    + (f" within {allowed[at]:.3g}" if allowed is not None else "")
                )
        return ""

    def _bad(
        self, i: int, a: NDArray, w: NDArray, digits: float, exact: bool
    ) -> tuple[NDArray, NDArray, NDArray | None]:
        """Which elements are wrong, what is expected, and how far off it may be."""
        floats = w.dtype in dtypes.FLOAT or w.dtype in dtypes.COMPLEX
        if exact or not floats:
            stable = np.ones(w.shape, bool)
            if not exact:
                for run in (self.clean, *self._runs):
                    stable &= run[i] == w
            same = _same(a, w) if floats else a == w
            return np.asarray(stable & ~same), w, None
        with np.errstate(all="ignore"):
            got, working, clean = widened(a), widened(w), self.clean[i].astype(widened(w).dtype)
            stable = _class(working) == _class(clean)
            noise = np.where(np.isfinite(clean), np.abs(working - clean), 0)
            for run in self._runs:
                shaken = run[i].astype(clean.dtype)
                stable &= _class(shaken) == _class(clean)
                noise = np.maximum(noise, np.where(np.isfinite(clean), np.abs(shaken - clean), 0))
            noise = np.nan_to_num(noise, nan=np.inf)
            usual = noise[np.isfinite(noise) & stable]
            eps = float(ml_dtypes.finfo(a.dtype).eps) / 2
            tiny = float(ml_dtypes.finfo(a.dtype).smallest_normal)
            allowed = (
                _OWN * noise + _MEAN * (usual.mean() if usual.size else 0.0) + _ULPS * eps * np.abs(clean) + 4 * tiny
            )
            if digits < 1:
                allowed = 4 * allowed + eps**digits * (np.abs(clean) + 1)
            finite = np.isfinite(clean)
            # What comes near the largest number may pass it.
            near = np.abs(clean) + allowed >= float(ml_dtypes.finfo(a.dtype).max)
            bad = np.where(finite, ~(np.abs(got - clean) <= allowed) & ~near, _class(got) != _class(clean))
        return np.asarray(stable & bad), clean, np.asarray(allowed)


def _pair(cts: Sequence[Any], ts: Sequence[Any]) -> NDArray:
    """The products of cotangents and tangents."""
    return np.concatenate([(np.asarray(a) * np.asarray(b)).ravel() for a, b in zip(cts, ts, strict=True)])


def _off(found: Results, runs: Sequence[Results]) -> str:
    """Which of ``found`` is not what the first of ``runs`` says, where these agree with one another."""
    for i, (got, *others) in enumerate(zip(found, *runs, strict=True)):
        if got.dtype not in dtypes.FLOAT:
            continue
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(a - others[0]) for a in others[1:]], axis=0)
            size = np.abs(others[0]) + 1.0
            # Where a derivative has no end, as that of a square root at zero, differences say nothing.
            error = np.abs(got - others[0])
            bad = (spread < 1e-4 * size) & (error > 1e-3 * size) & (error > 20 * spread) & np.isfinite(got)
        if bad.any():
            at = tuple(int(n) for n in np.unravel_index(int(np.argmax(bad)), bad.shape))
            return (
                f"wrong derivative: result {i}, {got.dtype}{list(got.shape)}, {int(bad.sum())} of {got.size} "
                f"elements: {list(at)} is {got[at]} in 64 bits, expected {others[0][at]} by differences"
            )
    return ""


def _class(x: NDArray) -> NDArray:
    """0: finite, 1: NaN, 2 and 3: infinite; complex numbers are finite or not."""
    if np.iscomplexobj(x):
        return np.asarray(~np.isfinite(x)).astype(np.int8)
    return np.asarray(np.isnan(x) * 1 + np.isposinf(x) * 2 + np.isneginf(x) * 3).astype(np.int8)


def _same(a: NDArray, b: NDArray) -> NDArray:
    """Equal values and signs; NaN is NaN."""
    wide = np.complex128 if a.dtype in dtypes.COMPLEX else np.float64
    a, b = a.astype(wide), b.astype(wide)
    parts = ((a.real, b.real), (a.imag, b.imag)) if np.iscomplexobj(a) else ((a, b),)
    found = np.ones(a.shape, bool)
    for x, y in parts:
        found &= (np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))
    return found
