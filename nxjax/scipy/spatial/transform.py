"""`nx.scipy.spatial.transform`: rotations of space as unit quaternions, and interpolation between them.

Quaternions are (x, y, z, w), as SciPy's. Formulas: M. Shuster, "A survey of attitude representations", J. Astronautical
Sciences 41, 1993; Euler angles: E. Bernardes and S. Viollet, "Quaternion to Euler angles", PLoS ONE 17, 2022.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.promotion import promote_inexact
from nxjax.trace.core import Array

__all__ = ["Rotation", "Slerp"]


def _float(x: Any) -> Array:
    return promote_inexact("Rotation", jnp.asarray(x))[0]


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


def _unit(quat: Array) -> Array:
    return quat / _length(quat)[..., None]


def _product(p: Array, q: Array) -> Array:
    """The rotation q, then p."""
    u, a, v, b = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = a * v + b * u + jnp.cross(u, v)
    return jnp.concatenate([vector, a * b - jnp.sum(u * v, axis=-1, keepdims=True)], -1)


def _axes(seq: str, least: int) -> tuple[list[int], bool]:
    """Numbers of the axes, and whether they turn along (capital letters)."""
    if not least <= len(seq) <= 3:
        raise ParameterError("Rotation: axes", got=repr(seq), expected="3 letters" if least == 3 else "1 to 3 letters")
    if not re.match(r"^([xyz]+|[XYZ]+)$", seq):
        raise ParameterError("Rotation: axes", got=repr(seq), expected="letters of xyz, or of XYZ")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ParameterError("Rotation: neighbouring axes are the same", got=repr(seq))
    return ["xyz".index(c) for c in seq.lower()], seq.isupper()


class Rotation(NamedTuple):
    """One rotation, or a sequence of them.

    Attributes:
        quat: unit quaternions ``[4]`` or ``[n, 4]``.

    >>> turn = Rotation.from_euler("z", jnp.array(90.0), degrees=True)
    >>> jnp.round(turn.apply(jnp.array([1.0, 0.0, 0.0])), 4).tolist()
    [0.0, 1.0, 0.0]
    """

    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """One after the other."""
        return cls(jnp.concatenate([r.quat for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """From angles ``[..., len(seq)]`` about the axes in ``seq``; capital letters are axes that turn along."""
        axes, along = _axes(seq, 1)
        x = jnp.atleast_1d(_float(angles))
        if x.shape[-1] != len(axes):
            raise ShapeError("Rotation.from_euler: one angle per axis", got=x.type, expected=f"[..., {len(axes)}]")
        x = jnp.deg2rad(x) if degrees else x
        whole: Any = None
        for i, axis in enumerate(axes):
            half = x[..., i, None] / 2
            mask = np.zeros(4)
            mask[axis] = 1
            one = jnp.sin(half) * mask.astype(x.dtype) + jnp.cos(half) * np.array([0, 0, 0, 1], x.dtype)
            whole = one if whole is None else _product(whole, one) if along else _product(one, whole)
        return cls(whole)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """From orthogonal matrices ``[..., 3, 3]``."""
        m = _float(matrix)
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        choice = jnp.argmax(jnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1), axis=-1)

        def candidate(i: int) -> Array:
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: dict[int, Array] = {
                i: 1 - trace + 2 * m[..., i, i],
                j: m[..., j, i] + m[..., i, j],
                k: m[..., k, i] + m[..., i, k],
                3: m[..., k, j] - m[..., j, k],
            }
            return jnp.stack([parts[a] for a in range(4)], -1)

        turns = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1], 1 + trace]
        quat = jnp.stack(turns, -1)
        for i in range(3):
            quat = jnp.where((choice == i)[..., None], candidate(i), quat)
        return cls(_unit(quat))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """From modified Rodrigues parameters ``[..., 3]``: the axis times tan(angle / 4)."""
        x = _float(mrp)
        total = jnp.sum(x * x, axis=-1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * x, 2 - total], -1) / total)

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """From quaternions ``[..., 4]``, which are made units."""
        return cls(_unit(_float(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """From rotation vectors ``[..., 3]``: the axis times the angle."""
        x = _float(rotvec)
        x = jnp.deg2rad(x) if degrees else x
        angle = _length(x)[..., None]
        square = angle * angle
        small = 0.5 - square / 48 + square * square / 3840
        scale = jnp.where(angle <= 1e-3, small, jnp.sin(angle / 2) / angle)
        return cls(jnp.concatenate([scale * x, jnp.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The one that changes nothing; ``num`` is None."""
        if num is not None:
            raise NotImplementedError("Rotation.identity: only num=None")
        return cls(jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Not available."""
        raise NotImplementedError("Rotation.random")

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        if self.single:
            raise TypeError("Rotation: a single one has no items")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Rotation: a single one has no length")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # type: ignore[override]
        """``other``, then this one."""
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """Turned vectors ``[..., 3]``; turned back with ``inverse``."""
        m = self.as_matrix()
        v = jnp.asarray(vectors)[..., None]
        back = jnp.matmul(jnp.swapaxes(m, -1, -2), v)
        found = jnp.where(inverse, back, jnp.matmul(m, v)) if not isinstance(inverse, bool) else back
        return (found if not isinstance(inverse, bool) or inverse else jnp.matmul(m, v))[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles ``[..., 3]`` about the axes in ``seq``; where they are not unique, the third is 0."""
        axes, along = _axes(seq, 3)
        i, j, k = axes[::-1] if along else axes
        first, third = (2, 0) if along else (0, 2)
        same = i == k
        k = 3 - i - j if same else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self.quat
        w, qi, qj, qk = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
        a, b, c, d = (w, qi, qj, qk) if same else (w - qj, qi + qk, qj + w, qk - qi)
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        total, difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        zero, straight = jnp.abs(middle) <= 1e-7, jnp.abs(middle - np.pi) <= 1e-7
        # At a middle angle of 0 or pi only the sum or the difference of the others is known.
        lone = jnp.where(zero, 2 * total, 2 * difference * (1 if along else -1))
        open_ = zero | straight
        parts: dict[int, Array] = {1: middle if same else middle - np.pi / 2}
        parts[first] = jnp.where(open_, lone if first == 0 else 0, total - difference)
        parts[third] = jnp.where(open_, lone if third == 0 else 0, total + difference)
        parts[third] = parts[third] if same else parts[third] * sign
        angles = jnp.stack([parts[n] for n in range(3)], -1)
        angles = (angles + np.pi) % (2 * np.pi) - np.pi
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Orthogonal matrices ``[..., 3, 3]``."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = (
            (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
            (2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)),
            (2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w),
        )
        return jnp.stack([jnp.stack(r, -1) for r in rows], -2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters ``[..., 3]``."""
        w = self.quat[..., 3:]
        sign = jnp.where(w < 0, -1.0, 1.0).astype(w.dtype)
        return sign * self.quat[..., :3] / (1 + sign * w)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Rotation vectors ``[..., 3]``, of length 0 to pi."""
        q = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2 * jnp.arctan2(_length(q[..., :3]), q[..., 3])[..., None]
        square = angle * angle
        small = 2 + square / 12 + 7 * square * square / 2880
        scale = jnp.where(angle <= 1e-3, small, angle / jnp.sin(angle / 2))
        return (jnp.rad2deg(scale) if degrees else scale) * q[..., :3]

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions ``[..., 4]``; of q and -q the one whose last part that is not 0 (w, x, y, z) is positive."""
        q = self.quat
        if canonical:
            lead = q[..., 2:3]
            for i in (1, 0, 3):
                lead = jnp.where(q[..., i : i + 1] == 0, lead, q[..., i : i + 1])
            q = jnp.where(lead < 0, -q, q)
        return jnp.roll(q, 1, axis=-1) if scalar_first else q

    def inv(self) -> Rotation:
        """Back."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Array:
        """Angles from 0 to pi."""
        return 2 * jnp.arctan2(_length(self.quat[..., :3]), jnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The mean of a sequence: L. Markley et al., "Averaging quaternions", 2007."""
        q = self.quat
        w = jnp.ones(len(self), q.dtype) if weights is None else jnp.asarray(weights, q.dtype)
        if w.shape != (len(self),):
            raise ShapeError("Rotation.mean: one weight per rotation", got=w.type, expected=f"[{len(self)}]")
        _, v = jnp.linalg.eigh(jnp.matmul(w[None, :] * q.T, q))
        return Rotation(v[:, -1])

    @property
    def single(self) -> bool:
        """One rotation, and no sequence."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Interpolation between rotations at constant speed. Make one with ``Slerp.init(times, rotations)``.

    >>> ends = Rotation.from_rotvec(jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> jnp.round(Slerp.init(jnp.array([0.0, 2.0]), ends)(jnp.array(1.0)).as_rotvec(), 4).tolist()
    [0.0, 0.0, 0.5]
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Between ``rotations``, at least 2 of them, at ascending ``times``."""
        if not isinstance(rotations, Rotation):
            raise TypeError("Slerp: rotations are a Rotation")
        if rotations.single or len(rotations) == 1:
            raise ShapeError("Slerp: needs a sequence of at least 2 rotations", got=rotations.quat.type)
        at = jnp.asarray(times, rotations.quat.dtype)
        if at.shape != (len(rotations),):
            raise ShapeError("Slerp: one time per rotation", got=at.type, expected=f"[{len(rotations)}]")
        first = Rotation(rotations.quat[:-1])
        return cls(at, jnp.diff(at), first, (first.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at ``times``, a number or a vector."""
        at = jnp.asarray(times, self.times.dtype)
        if at.ndim > 1:
            raise ShapeError("Slerp: times are a number or a vector", got=at.type)
        several = jnp.atleast_1d(at)
        i = jnp.maximum(jnp.searchsorted(self.times, several) - 1, 0)
        share = (several - self.times[i]) / self.timedelta[i]
        found = self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * share[:, None])
        return found if at.ndim else found[0]
