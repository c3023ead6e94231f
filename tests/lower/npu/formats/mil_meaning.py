"""What a Core ML package computes, in NumPy, from its files alone: read by coremltools' own loader. Not a test.

Formulas are those of the MIL operation reference. Everything is computed in float64, so that what is compared is the
program and not an arithmetic.
"""

import os
import tempfile

import numpy as np
from jax import lax
from scipy.special import erf

from nxjax.lower.npu.formats.coreml_writer import quiet
from tests.lower.npu.cases import spread


def f64(x):
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def conv(a):
    n = a["x"].ndim - 2
    pad = [(int(lo), int(hi)) for lo, hi in np.reshape(a["pad"], (n, 2))]
    y = lax.conv_general_dilated(
        a["x"].astype(np.float32), a["weight"].astype(np.float32), tuple(map(int, a["strides"])), pad,
        rhs_dilation=tuple(map(int, a["dilations"])), feature_group_count=int(a["groups"]),
        dimension_numbers=("NCDHW", "OIDHW", "NCDHW") if n == 3 else ("NCHW", "OIHW", "NCHW"), precision="highest",
    )  # fmt: skip
    return plus_bias(np.asarray(y, np.float64), a)


def plus_bias(y, a):
    b = a.get("bias")
    return y if b is None else y + np.reshape(b, (1, -1, *[1] * (y.ndim - 2)))


def conv_transpose(a):
    x, w = a["x"], a["weight"]
    cuts = [(int(lo), int(hi)) for lo, hi in np.reshape(a["pad"], (x.ndim - 2, 2))]
    y = spread(np.moveaxis(x, 1, -1), np.moveaxis(np.moveaxis(w, 1, 0), 1, -1), tuple(map(int, a["strides"])), cuts)
    y = np.moveaxis(y.astype(np.float64), -1, 1)
    assert y.shape == tuple(map(int, a["output_shape"]))
    return plus_bias(y, a)


def pool(a, start, f):
    pad = [(0, 0), (0, 0), *((int(lo), int(hi)) for lo, hi in np.reshape(a["pad"], (2, 2)))]
    window, steps = (1, 1, *map(int, a["kernel_sizes"])), (1, 1, *map(int, a["strides"]))
    reduce = lambda x: np.asarray(lax.reduce_window(x.astype(np.float32), start, f, window, steps, pad), np.float64)
    if f is lax.max:
        return reduce(a["x"])
    assert a["exclude_padding_from_average"]
    return reduce(a["x"]) / reduce(np.ones_like(a["x"]))


def quantize(a):
    info = np.iinfo(str(a["output_dtype"]))
    q = np.rint(a["input"] / np.float64(a["scale"])) + float(a.get("zero_point", 0))
    return np.clip(q, info.min, info.max).astype(info.dtype)


def dequantize(a):
    return (a["input"].astype(np.float64) - float(a.get("zero_point", 0))) * np.float64(a["scale"])


def affine(a):
    scale, zero = np.asarray(a["scale"], np.float64), np.asarray(a["zero_point"], np.float64)
    data = a["quantized_data"]
    shape = [-1 if i == int(a["axis"]) else 1 for i in range(data.ndim)]
    return (data - (zero.reshape(shape) if zero.ndim else zero)) * (scale.reshape(shape) if scale.ndim else scale)


def cast(a):
    kind = str(a["dtype"])
    if kind in ("fp16", "fp32"):
        return a["x"].astype(np.float64)
    return a["x"].astype(np.dtype(kind)) if kind != "bool" else a["x"] != 0


def pad(a):
    widths = np.reshape(a["pad"], (-1, 2)).astype(int).tolist()
    lead = [[0, 0]] * (a["x"].ndim - len(widths))
    assert str(a["mode"]) == "constant"
    return np.pad(a["x"], lead + widths, constant_values=np.asarray(a["constant_val"]).item())


def resize_bilinear(a):
    y = a["x"]
    for axis, size in ((2, int(a["target_size_height"])), (3, int(a["target_size_width"]))):
        source, mode = y.shape[axis], str(a["sampling_mode"])
        i = np.arange(size)
        if mode == "STRICT_ALIGN_CORNERS":
            at = i * (source - 1) / max(size - 1, 1)
        else:
            at = i * source / size if mode == "DEFAULT" else (i + 0.5) * source / size - 0.5
        at = np.clip(at, 0, source - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, source - 1)
        shape = [-1 if k == axis else 1 for k in range(4)]
        part = (at - low).reshape(shape)
        y = np.take(y, low, axis) * (1 - part) + np.take(y, high, axis) * part
    return y


def axes(a):
    return tuple(int(i) for i in np.atleast_1d(a["axes"]))


def reduced(f):
    return lambda a: f(a["x"], axis=axes(a), keepdims=bool(a["keep_dims"]))


def picked(f):
    return lambda a: f(a["x"], axis=int(a["axis"])).astype(np.int32)


def log_sum_exp(x, axis, keepdims):
    top = x.max(axis=axis, keepdims=True)
    y = top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))
    return y if keepdims else y.squeeze(axis)


def softmax(a):
    e = np.exp(a["x"] - a["x"].max(axis=int(a["axis"]), keepdims=True))
    return e / e.sum(axis=int(a["axis"]), keepdims=True)


def gelu(a):
    x = a["x"]
    if str(a["mode"]) == "EXACT":
        return x * (1 + erf(x / np.sqrt(2))) / 2
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def cumsum(a):
    x, axis = a["x"], int(a["axis"])
    x = np.flip(x, axis) if a["reverse"] else x
    y = np.cumsum(x, axis) - (x if a["exclusive"] else 0)
    return np.flip(y, axis) if a["reverse"] else y


def topk(a):
    axis, k = int(a["axis"]), int(a["k"])
    x = a["x"] if a["ascending"] else -a["x"]
    places = np.take(x.argsort(axis, kind="stable"), np.arange(k), axis)
    return [np.take_along_axis(a["x"], places, axis), places]


def one_hot(a):
    depth = int(a["one_hot_vector_size"])
    hot = np.asarray(a["indices"])[..., None] == np.arange(depth)
    y = np.where(hot, np.asarray(a["on_value"]).item(), np.asarray(a["off_value"]).item())
    return np.moveaxis(y, -1, int(a["axis"]))


def matmul(a):
    x = a["x"].swapaxes(-1, -2) if a.get("transpose_x") else a["x"]
    y = a["y"].swapaxes(-1, -2) if a.get("transpose_y") else a["y"]
    return x @ y


def slices(a):
    return a["x"][tuple(slice(int(b), int(e), int(s)) for b, e, s in zip(a["begin"], a["end"], a["stride"]))]


def sized(a):
    return a["x"][tuple(slice(int(b), int(b) + int(n)) for b, n in zip(a["begin"], a["size"]))]


def split(a):
    return np.split(a["x"], np.cumsum(np.asarray(a["split_sizes"]).astype(int))[:-1], int(a["axis"]))


def blockwise(a):
    scale = np.asarray(a["scale"], np.float64)
    for axis, (n, k) in enumerate(zip(a["data"].shape, scale.shape, strict=True)):
        scale = np.repeat(scale, n // k, axis)
    return a["data"].astype(np.float64) * scale


def of(f, *keys):
    return lambda a: f(*(a[k] for k in keys))


x_only = lambda f: of(f, "x")
x_and_y = lambda f: of(f, "x", "y")
OPS = {
    "conv": conv, "conv_transpose": conv_transpose, "linear": lambda a: a["x"] @ a["weight"].T + a.get("bias", 0),
    "matmul": matmul, "max_pool": lambda a: pool(a, -np.inf, lax.max), "avg_pool": lambda a: pool(a, 0.0, lax.add),
    "quantize": quantize, "dequantize": dequantize, "constexpr_affine_dequantize": affine,
    "constexpr_blockwise_shift_scale": blockwise, "cast": cast, "identity": x_only(np.copy), "pad": pad,
    "add": x_and_y(np.add), "sub": x_and_y(np.subtract), "mul": x_and_y(np.multiply), "real_div": x_and_y(np.divide),
    "floor_div": x_and_y(np.floor_divide), "maximum": x_and_y(np.maximum), "minimum": x_and_y(np.minimum),
    "pow": x_and_y(np.power), "equal": x_and_y(np.equal), "not_equal": x_and_y(np.not_equal), "less": x_and_y(np.less),
    "less_equal": x_and_y(np.less_equal), "greater": x_and_y(np.greater), "greater_equal": x_and_y(np.greater_equal),
    "logical_and": x_and_y(np.logical_and), "logical_or": x_and_y(np.logical_or), "logical_not": x_only(np.logical_not),
    "select": of(np.where, "cond", "a", "b"), "relu": x_only(lambda x: np.maximum(x, 0)),
    "relu6": x_only(lambda x: np.clip(x, 0, 6)), "clip": of(np.clip, "x", "alpha", "beta"),
    "sigmoid": x_only(lambda x: 1 / (1 + np.exp(-x))), "tanh": x_only(np.tanh), "exp": x_only(np.exp),
    "log": lambda a: np.log(a["x"] + a["epsilon"]), "sqrt": x_only(np.sqrt),
    "rsqrt": lambda a: 1 / np.sqrt(a["x"] + a["epsilon"]), "abs": x_only(np.abs), "sin": x_only(np.sin),
    "cos": x_only(np.cos), "floor": x_only(np.floor), "ceil": x_only(np.ceil), "round": x_only(np.rint),
    "sign": x_only(np.sign), "erf": x_only(erf), "gelu": gelu,
    "elu": lambda a: np.where(a["x"] > 0, a["x"], a["alpha"] * np.expm1(a["x"])),
    "leaky_relu": lambda a: np.where(a["x"] > 0, a["x"], a["alpha"] * a["x"]),
    "sigmoid_hard": lambda a: np.clip(a["x"] * a["alpha"] + a["beta"], 0, 1), "softmax": softmax,
    "reduce_mean": reduced(np.mean), "reduce_sum": reduced(np.sum), "reduce_max": reduced(np.max),
    "reduce_min": reduced(np.min), "reduce_prod": reduced(np.prod), "reduce_log_sum_exp": reduced(log_sum_exp),
    "reduce_argmax": picked(np.argmax), "reduce_argmin": picked(np.argmin), "cumsum": cumsum, "one_hot": one_hot,
    "squeeze": lambda a: a["x"].squeeze(),
    "reshape": lambda a: a["x"].reshape(tuple(map(int, a["shape"]))),
    "transpose": lambda a: a["x"].transpose(tuple(map(int, a["perm"]))),
    "concat": lambda a: np.concatenate(a["values"], int(a["axis"])), "split": split, "slice_by_size": sized,
    "slice_by_index": slices, "tile": lambda a: np.tile(a["x"], tuple(map(int, a["reps"]))),
    "reverse": lambda a: np.flip(a["x"], axes(a)),
    "topk": topk,
    "gather": lambda a: np.take(a["x"], np.asarray(a["indices"]).astype(int), int(a["axis"])),
    "resize_bilinear": resize_bilinear,
    "upsample_nearest_neighbor": lambda a: a["x"]
    .repeat(int(a["scale_factor_height"]), 2)
    .repeat(int(a["scale_factor_width"]), 3),
}  # fmt: skip


def run(files, inputs):
    """The results of a package, by name, for inputs by name."""
    with quiet():
        import coremltools as ct
        from coremltools.converters.mil.frontend.milproto.load import load

        spec = ct.proto.Model_pb2.Model()
        spec.ParseFromString(files["Data/com.apple.CoreML/model.mlmodel"])
        with tempfile.TemporaryDirectory() as folder:
            if "Data/com.apple.CoreML/weights/weight.bin" in files:
                with open(os.path.join(folder, "weight.bin"), "wb") as file:
                    file.write(files["Data/com.apple.CoreML/weights/weight.bin"])
            program = load(spec, spec.specificationVersion, folder)
        function = program.functions["main"]
        known = {function.inputs[k]: f64(v) for k, v in inputs.items()}

        def value(v):
            if isinstance(v, (list, tuple)):
                return [value(part) for part in v]
            return known[v] if v in known else v.val if isinstance(v.val, str) else f64(v.val)

        def computed(block):
            for op in block.operations:
                if op.op_type == "const":
                    continue
                if op.op_type == "cond":
                    chosen = op.blocks[0 if bool(value(op.pred)) else 1]
                    many = computed(chosen)
                elif op.op_type == "while_loop":
                    many = looped(*op.blocks, [value(v) for v in op.loop_vars])
                else:
                    result = OPS[op.op_type]({k: value(v) for k, v in op.inputs.items() if v is not None})
                    many = result if op.op_type in ("split", "topk") else [result]
                for out, r in zip(op.outputs, many, strict=True):
                    assert tuple(np.shape(r)) == tuple(out.shape), (op.op_type, np.shape(r), out.shape)
                    known[out] = r
            return [value(v) for v in block.outputs]

        def looped(condition, body, carry):
            while True:
                known.update(zip(condition.inputs, carry, strict=True))
                if not bool(computed(condition)[0]):
                    return carry
                known.update(zip(body.inputs, carry, strict=True))
                carry = computed(body)

        computed(function)
        return {v.name: known[v] for v in function.outputs}
