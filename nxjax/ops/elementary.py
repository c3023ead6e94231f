"""Elementary functions of one real or complex variable: exp, log, trigonometric, hyperbolic, roots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.ops.arithmetic import mul, neg
from nxjax.ops.base import Differentiable, Tangent, Unary
from nxjax.trace import dtypes
from nxjax.trace.core import Array


class Smooth(Differentiable, Unary):
    """A differentiable function of one inexact operand."""

    allowed = dtypes.INEXACT


@final
class Sin(Smooth):
    """sin x, x in radians"""

    name = "sin"
    hlo = "sine"
    ufunc = np.sin

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        return (lambda t: mul(t, cos(x)),)


@final
class Cos(Smooth):
    """cos x, x in radians"""

    name = "cos"
    hlo = "cosine"
    ufunc = np.cos

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        return (lambda t: neg(mul(t, sin(x))),)


@final
class Exp(Smooth):
    """e to the power x"""

    name = "exp"
    hlo = "exponential"
    ufunc = np.exp

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        return (lambda t: mul(t, y),)


sin = Sin()
cos = Cos()
exp = Exp()
