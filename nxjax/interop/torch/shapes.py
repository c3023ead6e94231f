"""Rules of operators that make, move and cut arrays without computing with their elements; and of symbolic sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import LoweringError
from nxjax.interop.graphs.values import NeedsValue, Refused, as_numpy, concrete
from nxjax.interop.torch.elementwise import cast
from nxjax.interop.torch.promotion import category, in_dtype, result_dtype
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array

# --- symbolic sizes: numbers while the graph is walked ---


_NUMBERS: Final[dict[str, Any]] = {
    "_operator.add": operator.add, "_operator.sub": operator.sub, "_operator.mul": operator.mul,
    "_operator.floordiv": operator.floordiv, "_operator.mod": operator.mod, "_operator.truediv": operator.truediv,
    "_operator.neg": operator.neg, "_operator.pow": operator.pow, "_operator.eq": operator.eq,
    "_operator.ne": operator.ne, "_operator.lt": operator.lt, "_operator.le": operator.le,
    "_operator.gt": operator.gt, "_operator.ge": operator.ge, "_operator.and_": operator.and_,
    "_operator.or_": operator.or_, "_operator.not_": operator.not_, "_operator.pos": operator.pos,
    "_operator.getitem": operator.getitem, "math.ceil": math.ceil, "math.floor": math.floor,
    "math.trunc": math.trunc, "builtins.round": round, "builtins.max": max, "builtins.min": min,
    "torch.sym_float": float, "torch.sym_int": int, "torch.sym_max": max, "torch.sym_min": min,
    "torch.sym_not": operator.not_, "torch.sym_ite": lambda c, a, b: a if c else b, "torch._sym_sqrt": math.sqrt,
    "torch.sym_sum": sum,
}  # fmt: skip
for _name, _function in _NUMBERS.items():
    rule(_name)(lambda *args, _f=_function: _f(*args))


@rule("sym_size.int")
def _sym_size(self: Any, dim: int) -> int:
    return self.shape[dim]


@rule("sym_numel")
def _sym_numel(self: Any) -> int:
    return self.size


@rule("sym_stride.int")
def _sym_stride(self: Any, dim: int) -> int:
    return _strides(self.shape)[dim % self.ndim]


@rule("sym_storage_offset")
def _sym_storage_offset(self: Any) -> int:
    return 0


@rule("item", "_local_scalar_dense")
def _item(self: Any) -> Any:
    if not concrete(self):
        raise NeedsValue(
            "from_torch: .item() of a traced array, which decides shapes or which code runs",
            got=repr(self),
            fix="call the function outside jit, or export the module with that value as a number",
        )
    return as_numpy(self).reshape(()).item()


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Checks of torch, which it made when the module was exported."""


rule(
    "_assert_scalar", "_assert_tensor_metadata", "_assert_async.msg", "_assert_async", "sym_constrain_range",
    "sym_constrain_range_for_size", "_functional_assert_async.msg", "_functional_assert_scalar",
    "torch._check", "torch.sym_constrain_range", "_make_dep_token",
)(_nothing)  # fmt: skip


# --- new arrays ---


def _dtype(dtype: Any, value: Any = 0.0) -> Any:
    if dtype is not None:
        return dtype
    return dtypes.bool_ if isinstance(value, bool) else dtypes.int64 if isinstance(value, int) else (
        dtypes.complex64 if isinstance(value, complex) else dtypes.float32
    )  # fmt: skip


@rule("full")
def _full(size: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    return _filled(size, fill_value, _dtype(dtype, fill_value))


def _filled(size: Any, value: Any, dtype: Any) -> Any:
    if isinstance(value, Array):
        return jnp.broadcast_to(cast(value, dtype), tuple(size))
    if category(dtype) == 1 and isinstance(value, float):
        value = int(value)
    return jnp.full(tuple(size), value, dtype)


@rule("full_like")
def _full_like(self: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    return _filled(self.shape, fill_value, dtype or self.dtype)


def _constant(name: str, value: float) -> None:
    rule(name, *(f"{name}.memory_format",) * (name == "empty"))(
        lambda size, *, dtype=None: jnp.full(tuple(size), value, _dtype(dtype))
    )
    rule(f"{name}_like")(lambda self, *, dtype=None: jnp.full(self.shape, value, dtype or self.dtype))
    rule(f"new_{name}")(lambda self, size, *, dtype=None: jnp.full(tuple(size), value, dtype or self.dtype))


_constant("zeros", 0)
_constant("ones", 1)
_constant("empty", 0)
rule("empty_strided", "empty_permuted")(lambda size, stride, *, dtype=None: jnp.zeros(tuple(size), _dtype(dtype)))
rule("new_empty_strided")(lambda self, size, stride, *, dtype=None: jnp.zeros(tuple(size), dtype or self.dtype))


@rule("new_full")
def _new_full(self: Any, size: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    return _filled(size, fill_value, dtype or self.dtype)


@rule("zero")
def _zero(self: Any) -> Any:
    return jnp.zeros_like(self)


@rule("fill.Scalar", "fill.Tensor")
def _fill(self: Any, value: Any) -> Any:
    return _filled(self.shape, value, self.dtype)


@rule("scalar_tensor")
def _scalar_tensor(s: Any, *, dtype: Any = None) -> Any:
    return _filled((), s, dtype or dtypes.float32)


@rule("lift_fresh_copy", "lift_fresh", "lift", "alias", "clone", "detach_copy", "alias_copy", "contiguous",
      "resolve_conj", "resolve_neg")  # fmt: skip
def _same(self: Any) -> Any:
    return self


@rule("detach")
def _detach(self: Any) -> Any:
    return lax.stop_gradient(self)


@rule("copy")
def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return jnp.broadcast_to(cast(src, self.dtype), self.shape)


@rule("arange.start_step")
def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None) -> Any:
    whole = all(isinstance(v, int) for v in (start, end, step))
    dtype = dtype or (dtypes.int64 if whole else dtypes.float32)
    if category(dtype) == 1:
        start, end, step = int(start), int(end), int(step)
    count = max(math.ceil((end - start) / step), 0)
    places = np.arange(count, dtype=np.int64 if whole else np.float64)
    return jnp.asarray((start + places * step).astype(dtype))


@rule("arange.start")
def _arange_start(start: Any, end: Any, *, dtype: Any = None) -> Any:
    return _arange(start, end, 1, dtype=dtype)


@rule("arange")
def _arange_end(end: Any, *, dtype: Any = None) -> Any:
    return _arange(0, end, 1, dtype=dtype)


@rule("linspace")
def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None) -> Any:
    return _between(np.linspace, start, end, steps, dtype)


def _between(function: Any, start: Any, end: Any, steps: int, dtype: Any, **more: Any) -> Any:
    if dtype is not None and category(dtype) == 1:
        start, end = int(start), int(end)
    return jnp.asarray(function(start, end, steps, **more).astype(_dtype(dtype)))


@rule("logspace")
def _logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None) -> Any:
    return _between(np.logspace, start, end, steps, dtype, base=base)


@rule("eye", "eye.m")
def _eye(n: int, m: int | None = None, *, dtype: Any = None) -> Any:
    return jnp.eye(n, m, dtype=_dtype(dtype))


@rule("tril_indices")
def _tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Any:
    return jnp.asarray(np.stack(np.tril_indices(row, offset, col)).astype(dtype or np.int64))


@rule("triu_indices")
def _triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Any:
    return jnp.asarray(np.stack(np.triu_indices(row, offset, col)).astype(dtype or np.int64))


# --- shapes ---


@rule("view", "reshape", "_unsafe_view", "view_copy", "reshape_copy", "_reshape_copy")
def _view(self: Any, size: Any) -> Any:
    size = [int(n) for n in size]
    if -1 in size and not self.size:
        known = math.prod(n for n in size if n != -1)
        size = [0 if known else 1 if n == -1 else n for n in size] if not known else [0 if n == -1 else n for n in size]
    return self.reshape(tuple(size))


@rule("_reshape_alias")
def _reshape_alias(self: Any, size: Any, stride: Any) -> Any:
    return _view(self, size)


@rule("view_as", "reshape_as")
def _view_as(self: Any, other: Any) -> Any:
    return self.reshape(other.shape)


@rule("unflatten.int")
def _unflatten(self: Any, dim: int, sizes: Any) -> Any:
    dim %= self.ndim
    return _view(self, [*self.shape[:dim], *sizes, *self.shape[dim + 1 :]])


@rule("flatten.using_ints")
def _flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not self.ndim:
        return self.reshape(1)
    a, z = start_dim % self.ndim, end_dim % self.ndim
    return self.reshape((*self.shape[:a], math.prod(self.shape[a : z + 1]), *self.shape[z + 1 :]))


@rule("ravel")
def _ravel(self: Any) -> Any:
    return self.reshape(-1)


@rule("expand", "expand_copy")
def _expand(self: Any, size: Any, *, implicit: bool = False) -> Any:
    own = (1,) * (len(size) - self.ndim) + self.shape
    return jnp.broadcast_to(self, tuple(o if n == -1 else n for n, o in zip(size, own, strict=True)))


@rule("expand_as")
def _expand_as(self: Any, other: Any) -> Any:
    return jnp.broadcast_to(self, other.shape)


@rule("broadcast_to")
def _broadcast_to(self: Any, size: Any) -> Any:
    return _expand(self, size)


@rule("broadcast_tensors")
def _broadcast_tensors(tensors: Any) -> Any:
    return list(jnp.broadcast_arrays(*tensors))


@rule("permute", "permute_copy")
def _permute(self: Any, dims: Any) -> Any:
    return self.transpose(tuple(d % max(self.ndim, 1) for d in dims))


@rule("transpose.int", "transpose_copy.int", "swapaxes")
def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    return self.swapaxes(dim0, dim1) if self.ndim else self


@rule("t", "t_copy", "numpy_T")
def _t(self: Any) -> Any:
    return self.T


@rule("mT")
def _matrix_transposed(self: Any) -> Any:
    return self.swapaxes(-1, -2)


@rule("adjoint", "matrix_H", "mH")
def _adjoint(self: Any) -> Any:
    return jnp.conj(self).swapaxes(-1, -2)


@rule("movedim.intlist", "movedim.int")
def _movedim(self: Any, source: Any, destination: Any) -> Any:
    return jnp.moveaxis(self, source, destination)


@rule("squeeze", "squeeze_copy")
def _squeeze(self: Any) -> Any:
    return self.squeeze()


@rule("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def _squeeze_dims(self: Any, dim: Any) -> Any:
    axes = [d % max(self.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim)]
    return self.squeeze(tuple(a for a in axes if self.ndim and self.shape[a] == 1))


@rule("unsqueeze", "unsqueeze_copy")
def _unsqueeze(self: Any, dim: int) -> Any:
    return jnp.expand_dims(self, dim)


@rule("flip")
def _flip(self: Any, dims: Any) -> Any:
    return jnp.flip(self, tuple(d % max(self.ndim, 1) for d in dims)) if self.ndim else self


@rule("roll")
def _roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    if isinstance(shifts, int):
        shifts = [shifts]
    if isinstance(dims, int):
        dims = [dims]
    return jnp.roll(self, tuple(shifts), tuple(dims)) if len(dims) else jnp.roll(self, shifts[0])


@rule("rot90")
def _rot90(self: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    return jnp.rot90(self, k, tuple(dims))


@rule("repeat")
def _repeat(self: Any, repeats: Any) -> Any:
    return jnp.tile(self, tuple(repeats)) if len(repeats) else self


@rule("tile")
def _tile(self: Any, dims: Any) -> Any:
    return jnp.tile(self, tuple(dims))


@rule("repeat_interleave.self_int")
def _repeat_interleave(self: Any, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Any:
    return jnp.repeat(self, repeats, axis=dim)


@rule("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0) -> Any:
    dtype = result_dtype(*tensors)
    # torch leaves out arrays of shape (0,) whatever the rank of the others.
    rank = max(t.ndim for t in tensors)
    used = [in_dtype(t, dtype) for t in tensors if t.ndim == rank or t.shape != (0,)]
    return jnp.concatenate(used, dim) if used else in_dtype(tensors[0], dtype)


@rule("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    dtype = result_dtype(*tensors)
    return jnp.stack([in_dtype(t, dtype) for t in tensors], dim)


rule("hstack")(lambda tensors: jnp.hstack(tensors))
rule("vstack")(lambda tensors: jnp.vstack(tensors))


def _bounds(n: int, start: Any, end: Any) -> tuple[int, int]:
    """First and last place of a slice, as Python bounds them."""
    place = lambda v: min(max(v + n if v < 0 else v, 0), n)
    a = place(0 if start is None else int(start))
    return a, max(place(n if end is None else int(end)), a)


def _number(v: Any, what: str) -> Any:
    """A place that is a number of the graph, also as an array that is known."""
    if not isinstance(v, Array):
        return v
    if not concrete(v):
        raise NeedsValue(f"from_torch: {what} depends on traced elements", got=repr(v), fix="call it outside jit")
    return int(as_numpy(v))


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = dim % self.ndim
    a, z = _bounds(self.shape[axis], _number(start, "a slice"), _number(end, "a slice"))
    return lax.slice_in_dim(self, a, z, step, axis)


@rule("slice_scatter")
def _slice_scatter(self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = dim % self.ndim
    a, z = _bounds(self.shape[axis], start, end)
    return self.at[(slice(None),) * axis + (slice(a, z, step),)].set(src.astype(self.dtype))


@rule("select.int", "select_copy.int")
def _select(self: Any, dim: int, index: Any) -> Any:
    axis = dim % self.ndim
    if isinstance(index, Array) and not concrete(index):
        return jnp.take(self, index.reshape(()), axis=axis)
    i, n = int(_number(index, "a place")), self.shape[axis]
    if not -n <= i < n:
        raise IndexError(f"place {i} of an axis of {n}")
    return lax.index_in_dim(self, i % n, axis, keepdims=False)


@rule("select_scatter")
def _select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    return self.at[(slice(None),) * (dim % self.ndim) + (index,)].set(src.astype(self.dtype))


@rule("narrow")
def _narrow(self: Any, dim: int, start: Any, length: int) -> Any:
    start = _number(start, "a slice")
    return _slice(self, dim, start, (start + self.shape[dim] if start < 0 else start) + length)


@rule("split_with_sizes", "split.sizes", "split_with_sizes_copy")
def _split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> Any:
    ends = np.cumsum(split_sizes)
    return [lax.slice_in_dim(self, int(e) - int(k), int(e), axis=dim) for e, k in zip(ends, split_sizes, strict=True)]


@rule("split.Tensor")
def _split(self: Any, split_size: int, dim: int = 0) -> Any:
    n = self.shape[dim]
    sizes = [min(split_size, n - i) for i in range(0, n, split_size)] if n else [0]
    return _split_with_sizes(self, sizes, dim)


@rule("chunk")
def _chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    return _split(self, max(-(-self.shape[dim] // chunks), 1), dim)


@rule("tensor_split.sections")
def _tensor_split(self: Any, sections: int, dim: int = 0) -> Any:
    return list(jnp.array_split(self, sections, axis=dim))


@rule("unbind.int", "unbind_copy.int")
def _unbind(self: Any, dim: int = 0) -> Any:
    return [lax.index_in_dim(self, i, dim % self.ndim, keepdims=False) for i in range(self.shape[dim])]


@rule("unfold")
def _unfold(self: Any, dimension: int, size: int, step: int) -> Any:
    if not self.ndim:
        return self.reshape(1)[:size]
    axis = dimension % self.ndim
    starts = np.arange(0, self.shape[axis] - size + 1, step)
    taken = jnp.take(self, jnp.asarray(starts[:, None] + np.arange(size)), axis=axis)
    return jnp.moveaxis(taken, axis + 1, -1)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod([max(n, 1) for n in shape[i + 1 :]]) for i in range(len(shape))]


@rule("as_strided", "as_strided_copy")
def _as_strided(self: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    # Operands are read as if they were contiguous, as results of this walk are.
    places: Any = np.asarray(storage_offset or 0)
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        places = places + (np.arange(n) * s).reshape((-1,) + (1,) * (len(size) - 1 - i))
    if places.size and int(places.max()) >= self.size:
        raise Refused("from_torch: as_strided reads memory around its operand", got=f"{tuple(size)} {tuple(stride)}")
    return self.reshape(-1)[jnp.asarray(np.broadcast_to(places, tuple(size)))]


@rule("diagonal", "diagonal_copy")
def _diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(self, offset, dim1, dim2)


@rule("diagonal_scatter")
def _diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    moved = jnp.moveaxis(self, (dim1, dim2), (-2, -1))
    n = src.shape[-1]
    i = np.arange(n)
    rows, cols = (i, i + offset) if offset >= 0 else (i - offset, i)
    moved = moved.at[..., rows, cols].set(src.astype(self.dtype))
    return jnp.moveaxis(moved, (-2, -1), (dim1, dim2))


@rule("diag_embed")
def _diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    n = self.shape[-1] + abs(offset)
    i = np.arange(self.shape[-1])
    rows, cols = (i, i + offset) if offset >= 0 else (i - offset, i)
    y = jnp.zeros((*self.shape[:-1], n, n), self.dtype).at[..., rows, cols].set(self)
    return jnp.moveaxis(y, (-2, -1), (dim1 % y.ndim, dim2 % y.ndim))


@rule("tril")
def _tril(self: Any, diagonal: int = 0) -> Any:
    return jnp.tril(self, diagonal)


@rule("triu")
def _triu(self: Any, diagonal: int = 0) -> Any:
    return jnp.triu(self, diagonal)


@rule("meshgrid", "meshgrid.indexing")
def _meshgrid(tensors: Any, *, indexing: str = "ij") -> Any:
    return list(jnp.meshgrid(*(t.reshape(-1) for t in tensors), indexing=indexing))


# --- padding ---


def _edges(rank: int, pad: Sequence[int]) -> list[tuple[int, int]]:
    """What stands around each axis; ``pad`` names them from the last one on."""
    edges = [(0, 0)] * rank
    for i in range(len(pad) // 2):
        edges[rank - 1 - i] = (int(pad[2 * i]), int(pad[2 * i + 1]))
    return edges


@rule("constant_pad_nd")
def _constant_pad(self: Any, pad: Any, value: Any = 0) -> Any:
    if any(n + a + b < 0 for n, (a, b) in zip(self.shape, _edges(self.ndim, pad), strict=True)):
        raise ValueError(f"padding {pad} of {self.shape}")
    return lax.pad(self, in_dtype(value, self.dtype), [(a, b, 0) for a, b in _edges(self.ndim, pad)])


def _padded(mode: str) -> Any:
    def run(self: Any, padding: Any) -> Any:
        edges = _edges(self.ndim, padding)
        if all(a >= 0 and b >= 0 for a, b in edges):
            return jnp.pad(self, edges, mode=mode)
        for axis, (a, b) in enumerate(edges):
            # Negative padding cuts; what is left is still filled from the whole.
            places = np.pad(np.arange(self.shape[axis]), (max(a, 0), max(b, 0)), mode=mode)  # type: ignore[call-overload]
            self = jnp.take(self, jnp.asarray(places[max(-a, 0) : len(places) - max(-b, 0)]), axis=axis)
        return self

    return run


for _i in (1, 2, 3):
    rule(f"reflection_pad{_i}d")(_padded("reflect"))
    rule(f"replication_pad{_i}d")(_padded("edge"))


@rule("pad")
def _pad(self: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode == "constant":
        return _constant_pad(self, pad, 0 if value is None else value)
    modes = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise LoweringError("from_torch: a mode of padding that torch does not have", got=mode)
    return _padded(modes[mode])(self, pad)


def _window(name: str, function: Any, more: tuple[str, ...] = ()) -> None:
    """A window of samples, whose last one is left out where it is periodic."""

    def run(window_length: int, periodic: bool = True, *args: float, dtype: Any = None) -> Any:
        if window_length < 2:
            return jnp.ones(window_length, dtype or dtypes.float32)
        made = function(window_length + 1 if periodic else window_length, *args)
        return jnp.asarray(made[:window_length].astype(dtype or dtypes.float32))

    rule(name, f"{name}.periodic", *(f"{name}.{m}" for m in more))(run)


def _hamming(n: int, alpha: float = 0.54, beta: float = 0.46) -> Any:
    return alpha - beta * np.cos(2 * np.pi * np.arange(n) / (n - 1))


_window("hamming_window", _hamming, ("periodic_alpha", "periodic_alpha_beta"))
_window("bartlett_window", np.bartlett)
_window("blackman_window", np.blackman)
_window("kaiser_window", lambda n, beta=12.0: np.kaiser(n, beta), ("beta",))


@rule("fft_fftfreq")
def _fftfreq(n: int, d: float = 1.0, *, dtype: Any = None) -> Any:
    return jnp.asarray(np.fft.fftfreq(n, d).astype(dtype or dtypes.float32))


@rule("fft_rfftfreq")
def _rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None) -> Any:
    return jnp.asarray(np.fft.rfftfreq(n, d).astype(dtype or dtypes.float32))
