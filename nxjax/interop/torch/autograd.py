"""`to_torch`: a function of nxjax as a callable of tensors, inside of torch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ParameterError
from nxjax.interop.torch.exported import array_of, dtype_of, package, tensor_of
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.trace.wrapping import wraps
from nxjax.transforms.grad import vjp
from nxjax.transforms.vmap import vmap


@api_boundary
def to_torch(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function of nxjax as a function of tensors, which torch differentiates by the function's own derivative.

    Arguments and results are trees of tensors; numbers and other values are given through. Tensors in the host's memory
    are not copied, unless they are not contiguous. Derivatives of any order work, `torch.no_grad` computes none, and
    only what requires a gradient gets one. `torch.func` has reverse derivatives and `vmap` of it. Give ``nx.jit(fun)``
    to have it compiled. What `torch.compile` compiles takes ``torch.compiler.disable(to_torch(fun))``.

    Args:
        fun: a function of arrays.

    Raises:
        MissingExtraError: PyTorch is not installed, when the function is called.

    >>> import torch
    >>> g = nx.interop.to_torch(lambda x: jnp.sin(x) * x)
    >>> x = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> g(x).sum().backward()
    >>> torch.allclose(x.grad, torch.cos(x) * x + torch.sin(x))
    True
    """
    if not callable(fun):
        raise ParameterError("to_torch: needs a function", got=type(fun).__name__)

    @wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        trees = package().utils._pytree
        leaves, spec = trees.tree_flatten((args, kwargs))
        places = [i for i, x in enumerate(leaves) if isinstance(x, package().Tensor)]
        structure: list[Any] = []

        def flat(*arrays: Any) -> list[Any]:
            given = list(leaves)
            for i, x in zip(places, arrays, strict=True):
                given[i] = x
            positional, named = trees.tree_unflatten(given, spec)
            made, out = trees.tree_flatten(fun(*positional, **named))
            structure[:] = [out]
            return made

        made = _called(flat, [leaves[i] for i in places])
        return trees.tree_unflatten(made, structure[0])

    return called


def _called(flat: Callable[..., list[Any]], tensors: Sequence[Any]) -> list[Any]:
    """A function of arrays at tensors."""
    torch = package()
    # Within torch's transforms tensors have levels, no memory of their own, and derivatives that others ask for.
    levels = tensors and torch._C._functorch.peek_interpreter_stack() is not None
    asked = (lambda t: t.is_floating_point() or t.is_complex()) if levels else (lambda t: t.requires_grad)
    wanted = [i for i, t in enumerate(tensors) if asked(t)] if levels or torch.is_grad_enabled() else []
    if wanted or levels:
        call = _Call(flat, wanted)
        made = iter(_function().apply(call, *tensors))
        return [next(made) if isinstance(y, Array) else y for y in call.results]
    inputs = [_array(t) for t in tensors]
    return _tensors(flat(*inputs), inputs, tensors)


def _array(t: Any) -> Array:
    try:
        known = dtype_of(t.dtype) in dtypes.NUMERIC
    except TypeError:
        known = False
    if not known or t.layout != package().strided:
        raise DtypeError("to_torch: arrays cannot hold such a tensor", got=f"{t.dtype}, {t.layout}")
    return array_of(t)


def _tensors(results: Sequence[Any], inputs: Sequence[Array], tensors: Sequence[Any]) -> list[Any]:
    """Results as tensors where the arguments are; those that are an argument's memory are copied."""
    torch = package()
    taken = {x.numpy().__array_interface__["data"][0] for x in inputs if isinstance(x, DeviceArray) and x.size}
    device = tensors[0].device if tensors else None
    found: list[Any] = []
    for y in results:
        if not isinstance(y, Array):
            found.append(y)
            continue
        data = y.numpy() if isinstance(y, DeviceArray) else np.asarray(y)
        fresh = data.__array_interface__["data"][0] not in taken and data.dtype.isbuiltin == 1
        t = torch.from_dlpack(y) if fresh and data.size else tensor_of(y)
        found.append(t if device is None else t.to(device))
    return found


def _smooth(results: Sequence[Any]) -> list[int]:
    """The places of results that have a derivative."""
    return [i for i, y in enumerate(results) if isinstance(y, Array) and y.dtype in dtypes.INEXACT]


@final
class _Call:
    """One call that is differentiated: its function, and what its forward pass leaves for the backward one.

    Args:
        wanted: places of arguments with a gradient.
    """

    def __init__(self, flat: Callable[..., list[Any]], wanted: Sequence[int]) -> None:
        self.flat, self.wanted = flat, wanted
        self.results: list[Any] = []
        self.smooth: list[int] = []
        self.pull: Any = None

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        """The results as tensors."""
        wanted = self.wanted
        inputs = [_array(t) for t in tensors]

        def part(*xs: Any) -> Any:
            given = list(inputs)
            for i, x in zip(wanted, xs, strict=True):
                given[i] = x
            made = self.flat(*given)
            # A result that is no array has no derivative, and is no result of a traced function.
            self.results, self.smooth = made, _smooth(made)
            others = [y for i, y in enumerate(made) if i not in self.smooth and isinstance(y, Array)]
            return [made[i] for i in self.smooth], others

        ys, self.pull, others = vjp(part, *(inputs[i] for i in wanted), has_aux=True)
        smooth, rest = iter(ys), iter(others)
        whole: list[Any] = []
        for i, y in enumerate(self.results):
            whole.append(next(smooth) if i in self.smooth else next(rest) if isinstance(y, Array) else y)
        self.results = whole
        return [t for t in _tensors(whole, inputs, tensors) if isinstance(t, package().Tensor)]

    def pulled(self, wanted: Sequence[int]) -> Callable[..., list[Any]]:
        """The backward pass as a function of the arguments and cotangents, for derivatives of it."""

        def run(*arrays: Any) -> list[Any]:
            count = len(arrays) - len(self.smooth)
            xs, cts = arrays[:count], arrays[count:]

            def part(*some: Any) -> Any:
                given = list(xs)
                for i, x in zip(wanted, some, strict=True):
                    given[i] = x
                made = self.flat(*given)
                return [made[i] for i in self.smooth]

            _, pull = vjp(part, *(xs[i] for i in wanted))
            return list(pull(list(cts)))

        return run


_FUNCTION: list[Any] = []


def _function() -> Any:
    """The `torch.autograd.Function`, made when torch is there."""
    if _FUNCTION:
        return _FUNCTION[0]
    torch = package()

    class NxFunction(torch.autograd.Function):
        @staticmethod
        def forward(call: _Call, *tensors: Any) -> Any:
            return tuple(call.forward(tensors))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            call, *tensors = inputs
            arrays = [y for y in call.results if isinstance(y, Array)]
            ctx.mark_non_differentiable(
                *(t for t, y in zip(output, arrays, strict=True) if y.dtype not in dtypes.INEXACT)
            )
            ctx.call, ctx.wanted, ctx.count = call, call.wanted, len(tensors)
            # Saved results, too, so that torch notices if somebody writes to the memory that the derivative reads.
            ctx.save_for_backward(*tensors, *output)

        @staticmethod
        def vmap(info: Any, in_dims: Any, call: _Call, *tensors: Any) -> Any:
            def batched(*arrays: Any) -> list[Any]:
                def part(*xs: Any) -> list[Any]:
                    call.results = call.flat(*xs)
                    call.smooth = _smooth(call.results)
                    return [y for y in call.results if isinstance(y, Array)]

                return vmap(part, in_axes=tuple(in_dims[1:]), axis_size=info.batch_size)(*arrays)

            made = _called(batched, tensors)
            return tuple(made), (0,) * len(made)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            call, tensors = ctx.call, ctx.saved_tensors[: ctx.count]
            places = [i for i, y in enumerate(call.results) if isinstance(y, Array)]
            cts = [ct for i, ct in zip(places, given, strict=True) if i in call.smooth]
            if torch.is_grad_enabled() or call.pull is None:
                found = _called(call.pulled(ctx.wanted), [*tensors, *cts])
            else:
                arrays = [_array(ct) for ct in cts]
                found = _tensors(list(call.pull(arrays)), arrays, tensors)
            slots: list[Any] = [None] * ctx.count
            for i, ct in zip(ctx.wanted, found, strict=True):
                slots[i] = ct
            return None, *slots

    _FUNCTION.append(NxFunction)
    return NxFunction
