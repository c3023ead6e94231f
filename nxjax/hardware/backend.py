"""What backend objects have in common: their life, their devices, and operations on tensors, a row each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.deploy.simulate import Run
from nxjax.errors import ExecutionError, NxError, ParameterError, Shown
from nxjax.nn.modules.base import pair
from nxjax.nn.modules.convolution import conv2d
from nxjax.trace.core import Array


def _conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    steps = [pair("conv2d", n, v) for n, v in (("stride", stride), ("dilation", dilation))]
    around = padding.upper() if isinstance(padding, str) else pair("conv2d", "padding", padding, 0)
    return conv2d(x, weight, bias, steps[0], around, steps[1], groups)


def _linear(x: Any, weight: Any, bias: Any = None) -> Array:
    y = jnp.matmul(x, jnp.swapaxes(weight, 0, 1))
    return y if bias is None else y + bias


def _max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
    return nn.MaxPool2d(kernel_size, stride, padding)(x)


def _avg_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
    return nn.AvgPool2d(kernel_size, stride, padding, count_include_pad=False)(x)


def _reduced(f: Callable[..., Array], x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    return f(x, axis=axis, keepdims=keepdims)


def _operation(name: str, f: Callable[..., Any], said: str, operands: int = 1) -> Callable[..., Array]:
    """The method for a function: its first arguments are the operands, what follows is part of the operation."""

    def method(self: ChipBackend, *args: Any, **settings: Any) -> Array:
        if len(args) < operands:
            raise ParameterError(f"{name}: operands", got=len(args), expected=f"{operands} arrays, by position")

        def operation(*xs: Any) -> Any:
            return f(*xs, *args[operands:], **settings)

        operation.__name__ = name
        return self._run(name, operation, *args[:operands])  # pyright: ignore[reportPrivateUsage]

    method.__name__, method.__doc__ = name, said
    return method


class ChipBackend(Shown, ABC):
    """A chip as an object: made ready, asked about its devices, given operations that note where they ran. Abstract.

    Attributes:
        error: why it could not be made ready.
        last_run: where the last operation ran.
    """

    _title: ClassVar[str]
    error = ""
    last_run: Run | None = None
    _ready = False

    @abstractmethod
    def _open(self) -> None:
        """Do what shows that the device starts; an `NxError` if it does not."""

    @abstractmethod
    def _run(self, name: str, f: Callable[..., Any], *args: Any) -> Array: ...

    @abstractmethod
    def get_device_count(self) -> int: ...

    def initialize(self) -> bool:
        """Make the device ready; False if that fails, with the reason in ``error``."""
        try:
            if not self._ready:
                self._open()
        except NxError as failure:
            self.error = str(failure)
            return False
        self._ready = True
        return True

    def _needed(self, what: str) -> None:
        if not self._ready:
            raise ExecutionError(
                f"{what}: the {self._title} backend is not initialized",
                got=self.error or "initialize() has not been called",
                fix=f"call {self._title.lower()}.initialize() first; it gives False where the device does not start",
            )

    def _numbered(self, what: str, index: Any) -> int:
        count = self.get_device_count()
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise ParameterError(what, got=repr(index), expected=f"an int, from 0 to {count - 1}")
        return index

    # --- operations ---

    matmul = _operation("matmul", jnp.matmul, "(a, b): the matrix product, as `nx.matmul`.", 2)
    add = _operation("add", jnp.add, "(a, b): a + b, with NumPy's broadcasting.", 2)
    sub = _operation("sub", jnp.subtract, "(a, b): a - b", 2)
    mul = _operation("mul", jnp.multiply, "(a, b): a * b", 2)
    maximum = _operation("maximum", jnp.maximum, "(a, b): the greater of a and b.", 2)
    minimum = _operation("minimum", jnp.minimum, "(a, b): the lesser of a and b.", 2)
    relu = _operation("relu", nn.relu, "(x): max(x, 0)")
    relu6 = _operation("relu6", nn.relu6, "(x): min(max(x, 0), 6)")
    sigmoid = _operation("sigmoid", nn.sigmoid, "(x): 1 / (1 + exp(-x))")
    tanh = _operation("tanh", nn.tanh, "(x): hyperbolic tangent.")
    gelu = _operation("gelu", partial(nn.gelu, approximate=False), "(x): x times the normal distribution of x.")
    silu = _operation("silu", nn.silu, "(x): x * sigmoid(x)")
    softmax = _operation("softmax", nn.softmax, "(x, axis=-1): exp(x) / sum(exp(x)) along ``axis``.")
    conv2d = _operation("conv2d", _conv2d, "(x, weight, bias, stride, padding, dilation, groups): as `nn.Conv2d`.")
    linear = _operation("linear", _linear, "(x, weight, bias=None): ``x @ weight.T + bias``, as `nn.Linear`.")
    max_pool2d = _operation("max_pool2d", _max_pool2d, "(x, kernel_size, stride, padding): as `nn.MaxPool2d`.")
    avg_pool2d = _operation(
        "avg_pool2d", _avg_pool2d, "(x, kernel_size, stride, padding): as `nn.AvgPool2d`; padding does not count."
    )
    mean = _operation("mean", partial(_reduced, jnp.mean), "(x, axis=None, keepdims=False): mean along ``axis``.")
    sum = _operation("sum", partial(_reduced, jnp.sum), "(x, axis=None, keepdims=False): sum along ``axis``.")
    reshape = _operation("reshape", jnp.reshape, "(x, shape): the same elements in another shape.")
    transpose = _operation("transpose", jnp.transpose, "(x, axes=None): dimensions in another order.")

    def concatenate(self, tensors: Sequence[Any], axis: int = 0) -> Array:
        """Tensors one after the other along ``axis``."""
        return _operation("concatenate", lambda *xs: jnp.concatenate(xs, axis), "", len(tensors))(self, *tensors)
