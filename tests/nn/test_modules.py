"""Modules against formulas in JAX and NumPy, as trees under every transform, and what they refuse."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax import nn

rng = np.random.default_rng(0)
close = np.testing.assert_allclose


def array(*shape):
    return rng.normal(size=shape).astype(np.float32)


def document_network():
    """The network of the NPU guide: a Linear straight after a convolution."""
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Linear(64 * 8 * 8, 10),
    )


def jax_conv(x, w, stride, padding, dilation=(1, 1), groups=1, lhs=(1, 1)):
    return jax.lax.conv_general_dilated(
        x, w, stride, padding, lhs, dilation, ("NCHW", "OIHW", "NCHW"), feature_group_count=groups
    )


# --- layers ---


@pytest.mark.parametrize(
    ("kwargs", "stride", "padding", "dilation"),
    [
        ({}, (1, 1), [(0, 0)] * 2, (1, 1)),
        ({"stride": 2, "padding": 1}, (2, 2), [(1, 1)] * 2, (1, 1)),
        ({"stride": (1, 2), "padding": (0, 2), "dilation": 2}, (1, 2), [(0, 0), (2, 2)], (2, 2)),
        ({"padding": "same", "stride": 2}, (2, 2), "SAME", (1, 1)),
        ({"groups": 2}, (1, 1), "VALID", (1, 1)),
        ({"bias": False}, (1, 1), "VALID", (1, 1)),
    ],
)
def test_conv2d(kwargs, stride, padding, dilation):
    layer, x = nn.Conv2d(4, 6, (3, 2), key=nx.random.key(1), **kwargs), array(2, 4, 9, 8)
    want = jax_conv(x, np.asarray(layer.weight), stride, padding, dilation, layer.groups)
    if layer.bias is not None:
        want = want + np.asarray(layer.bias)[:, None, None]
    close(np.asarray(layer(x)), want, rtol=1e-4, atol=1e-5)
    close(np.asarray(layer(x[0])), want[0], rtol=1e-4, atol=1e-5)
    assert layer.weight.shape == (6, 4 // layer.groups, 3, 2)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (1, 2), "dilation": 2, "groups": 2},
        {"bias": False, "padding": 1},
    ],
)
def test_conv_transpose2d_is_the_transpose_of_conv2d(kwargs):
    layer, x = nn.ConvTranspose2d(4, 6, 3, **kwargs), array(2, 4, 5, 6)
    y = np.asarray(layer(x))
    rows = [
        (n - 1) * s - 2 * p + d * 2 + o + 1
        for n, s, p, d, o in zip((5, 6), layer.stride, layer.padding, layer.dilation, layer.output_padding, strict=True)
    ]
    assert y.shape == (2, 6, *rows)
    # Its weight [in, out / groups, ...] is that of the convolution from its output to its input.
    padding = [(p, p) for p in layer.padding]
    _, pull = jax.vjp(
        lambda v: jax_conv(v, np.asarray(layer.weight), layer.stride, padding, layer.dilation, layer.groups),
        np.zeros(y.shape, np.float32),
    )
    want = pull(x)[0]
    if layer.bias is not None:
        want = want + np.asarray(layer.bias)[:, None, None]
    close(y, want, rtol=1e-4, atol=1e-5)


def test_linear():
    layer, x = nn.Linear(5, 3), array(2, 4, 5)
    want = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    close(np.asarray(layer(x)), want, rtol=1e-5, atol=1e-6)
    close(np.asarray(layer(x[0, 0])), want[0, 0], rtol=1e-5, atol=1e-6)
    without = layer.replace(bias=None)
    close(np.asarray(without(x)), x @ np.asarray(layer.weight).T, rtol=1e-5, atol=1e-6)


def test_linear_flattens_only_where_that_makes_it_fit():
    layer = nn.Linear(24, 2)
    x = array(3, 2, 3, 4)
    close(np.asarray(layer(x)), np.asarray(layer(x.reshape(3, 24))), rtol=1e-6)
    assert layer(x[0]).shape == (2,)  # one image
    assert nn.Linear(4, 2)(x).shape == (3, 2, 3, 2)  # the last dimension wins
    with pytest.raises(nx.errors.ShapeError, match=r"Linear\(24, 2\).*another number of features"):
        layer(array(3, 5))


def test_embedding():
    layer = nn.Embedding(7, 3)
    index = np.array([[0, 6], [2, 2]])
    np.testing.assert_array_equal(np.asarray(layer(index)), np.asarray(layer.weight)[index])
    beyond = np.asarray(layer(np.array([-5, 70])))
    np.testing.assert_array_equal(beyond, np.asarray(layer.weight)[[0, 6]])
    with pytest.raises(nx.errors.DtypeError, match="Embedding"):
        layer(array(2))


ACTIVATIONS = [
    (nn.ReLU(), jax.nn.relu),
    (nn.ReLU6(), jax.nn.relu6),
    (nn.GELU(), lambda x: jax.nn.gelu(x, approximate=False)),
    (nn.GELU(approximate=True), jax.nn.gelu),
    (nn.SiLU(), jax.nn.silu),
    (nn.Sigmoid(), jax.nn.sigmoid),
    (nn.Tanh(), jnp.tanh),
    (nn.Softmax(), jax.nn.softmax),
    (nn.Softmax(axis=1), lambda x: jax.nn.softmax(x, axis=1)),
    (nn.Identity(), lambda x: x),
    (nn.Flatten(), lambda x: x.reshape(x.shape[0], -1)),
    (nn.Flatten(0, 1), lambda x: x.reshape(-1, *x.shape[2:])),
    (nn.Dropout(0.7), lambda x: x),
]


@pytest.mark.parametrize(("layer", "theirs"), ACTIVATIONS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else "")
def test_activations(layer, theirs):
    x = array(3, 4, 5) * 4
    close(np.asarray(layer(x)), np.asarray(theirs(x)), rtol=1e-5, atol=1e-6)
    assert not nx.tree.leaves(layer)
    assert len(nx.make_jaxpr(layer)(x).equations) <= 1


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0, 0, 0)])
def test_nothing_is_flattened(shape):
    assert nn.Flatten()(np.zeros(shape, np.float32)).shape == (shape[0], shape[1] * shape[2])
    assert nn.Flatten(0, 1)(np.zeros(shape, np.float32)).shape == (shape[0] * shape[1], shape[2])


def windows(x, k, s, p, fill):
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
    out = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))
    return out[:, :, ::s, ::s].reshape(*out[:, :, ::s, ::s].shape[:4], -1)


@pytest.mark.parametrize(("k", "s", "p"), [(2, None, 0), (3, 2, 1), (3, 1, 0), (2, 1, 1)])
def test_pools(k, s, p):
    x, stride = array(2, 3, 8, 9), s or k
    close(np.asarray(nn.MaxPool2d(k, s, p)(x)), windows(x, k, stride, p, -np.inf).max(-1))
    close(np.asarray(nn.AvgPool2d(k, s, p)(x)), windows(x, k, stride, p, 0).mean(-1), rtol=1e-5, atol=1e-6)
    inner = nn.AvgPool2d(k, s, p, count_include_pad=False)
    close(np.asarray(inner(x)), np.nanmean(windows(x, k, stride, p, np.nan), -1), rtol=1e-5, atol=1e-6)
    assert nn.MaxPool2d(k, s, p)(x[0]).shape == nn.MaxPool2d(k, s, p)(x).shape[1:]


@pytest.mark.parametrize("size", [1, 2, (4, 3), (3, 5), (8, 9)])
def test_adaptive_pool(size):
    x = array(2, 3, 8, 9)
    m = (size, size) if isinstance(size, int) else size
    want = np.empty((2, 3, *m), np.float32)
    for i in range(m[0]):
        for j in range(m[1]):
            r, c = slice(i * 8 // m[0], -(-(i + 1) * 8 // m[0])), slice(j * 9 // m[1], -(-(j + 1) * 9 // m[1]))
            want[:, :, i, j] = x[:, :, r, c].mean((2, 3))
    close(np.asarray(nn.AdaptiveAvgPool2d(size)(x)), want, rtol=1e-5, atol=1e-6)


def trained_norm(n):
    norm = nn.BatchNorm2d(n)
    return norm.replace(weight=array(n), bias=array(n), mean=array(n), variance=np.abs(array(n)) + 0.1)


def test_batch_norm():
    norm, x = trained_norm(3), array(4, 3, 5, 5)
    w, b, m, v = (np.asarray(p)[:, None, None] for p in (norm.weight, norm.bias, norm.mean, norm.variance))
    close(np.asarray(norm(x)), (x - m) / np.sqrt(v + 1e-5) * w + b, rtol=1e-4, atol=1e-5)
    gradient = nx.grad(lambda n, v: nx.sum(n(v) ** 2))(norm, x)
    assert not np.asarray(gradient.mean).any()
    assert not np.asarray(gradient.variance).any()
    assert np.asarray(gradient.weight).any()


def test_batch_norm_learns_its_statistics():
    norm, x = nn.BatchNorm2d(3, momentum=0.25), array(4, 3, 5, 5) * 2 + 1
    after = norm.updated(x)
    close(np.asarray(after.mean), 0.25 * x.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    close(np.asarray(after.variance), 0.75 + 0.25 * x.var((0, 2, 3), ddof=1), rtol=1e-4)
    assert float(norm.mean[0]) == 0  # the old one is as it was


@pytest.mark.parametrize("bias", [True, False])
def test_folding_keeps_the_function(bias):
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=bias), trained_norm(4), nn.ReLU())
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=bias), trained_norm(4), nn.Residual(block), trained_norm(4), nn.Linear(4 * 36, 2)
    )
    folded, x = nn.fold_batch_norms(model), array(2, 3, 8, 8)
    close(np.asarray(folded(x)), np.asarray(model(x)), rtol=1e-3, atol=1e-4)
    assert repr(folded).count("BatchNorm2d") == 1  # the one after the residual has nothing to join
    with pytest.raises(nx.errors.ShapeError, match="BatchNorm2d"):
        nn.fold_batch_norms(nn.Sequential(nn.Conv2d(3, 4, 3), trained_norm(5)))


@pytest.mark.parametrize("shape", [5, (4, 5)])
def test_layer_norm(shape):
    layer, x = nn.LayerNorm(shape), array(3, 4, 5)
    axes = (-1,) if shape == 5 else (-2, -1)
    layer = layer.replace(weight=array(*layer.shape), bias=array(*layer.shape))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    want = (x - mean) / np.sqrt(var + 1e-5) * np.asarray(layer.weight) + np.asarray(layer.bias)
    close(np.asarray(layer(x)), want, rtol=1e-4, atol=1e-5)


def test_dropout_draws_with_a_key():
    x, key = np.ones((100, 100), np.float32), nx.random.key(0)
    model = nn.Sequential(nn.Dropout(0.25), nn.Residual(nn.Dropout(0.5)))
    assert np.array_equal(np.asarray(nn.Sequential(nn.Dropout(0.25))(x)), x)
    first, second = np.asarray(model(x, key=key)), np.asarray(model(x, key=key))
    assert np.array_equal(first, second)
    assert abs(np.mean(np.asarray(nn.Dropout(0.25)(x, key=key)) == 0) - 0.25) < 0.02
    assert abs(first.mean() - 2.0) < 0.1
    jitted = nx.jit(lambda m, v, k: m(v, key=k))(model, x, key)
    close(np.asarray(jitted), first)


def test_residual():
    x = array(2, 4, 6, 6)
    inner = nn.Conv2d(4, 4, 3, padding=1)
    close(np.asarray(nn.Residual(inner)(x)), x + np.asarray(inner(x)), rtol=1e-5, atol=1e-6)
    short, wide = nn.Conv2d(4, 8, 1, stride=2), nn.Conv2d(4, 8, 3, stride=2, padding=1)
    got = nn.Residual(wide, short)(x)
    close(np.asarray(got), np.asarray(wide(x)) + np.asarray(short(x)), rtol=1e-5, atol=1e-6)
    with pytest.raises(nx.errors.ShapeError, match="two sides differ"):
        nn.Residual(wide)(x)


# --- as trees ---


def test_transforms_of_a_model():
    model, x = document_network(), array(2, 3, 32, 32)
    call = lambda m, v: m(v)
    want = np.asarray(model(x))
    assert want.shape == (2, 10)
    close(np.asarray(nx.jit(call)(model, x)), want, rtol=1e-4, atol=1e-5)
    close(np.asarray(nx.jit(model)(x)), want, rtol=1e-4, atol=1e-5)
    close(np.asarray(nx.vmap(call, in_axes=(None, 0))(model, x)), want, rtol=1e-4, atol=1e-5)
    gradient = nx.grad(lambda m, v: nx.sum(m(v) ** 2))(model, x)
    assert isinstance(gradient, nn.Sequential)
    step = nx.tree.map(lambda p, g: p - 1e-4 * g, model, gradient)
    assert float(nx.sum(step(x) ** 2)) < float(nx.sum(model(x) ** 2))
    jitted = nx.jit(call)
    jitted(model, x)
    with nx.testing.count_traces(jitted) as traces:
        jitted(step, x)
    assert traces.count == 0


@pytest.mark.parametrize("call", [lambda m, v: m(v), lambda m, v: nx.jit(m)(v)])
def test_quantized_models(call):
    model, x = document_network(), array(4, 3, 32, 32)
    quantized = nx.quantize(call, "int8", calibrate=[(model, x)])
    want = np.asarray(model(x))
    assert np.abs(np.asarray(quantized(model, x)) - want).max() < 0.1 * np.abs(want).max()
    small = quantized.quantize_params(model, x)
    assert isinstance(small, nn.Sequential)
    np.testing.assert_array_equal(np.asarray(quantized(small, x)), np.asarray(quantized(model, x)))
    alone = nx.quantize(model, "int8", calibrate=[x])
    assert np.abs(np.asarray(alone(x)) - want).max() < 0.1 * np.abs(want).max()
    assert type(nx.grad(lambda m: nx.sum(quantized(m, x) ** 2))(model)) is nn.Sequential


def test_a_quantized_embedding_outside_and_inside_the_function():
    model = nn.Sequential(nn.Embedding(20, 8), nn.Residual(nn.Linear(8, 8)), nn.LayerNorm(8), nn.Linear(8, 3))
    x = rng.integers(0, 20, (4, 6)).astype(np.int32)
    want = np.asarray(model(x))
    for quantized, args in (
        (nx.quantize(lambda m, v: m(v), "int8", calibrate=[(model, x)]), (model, x)),
        (nx.quantize(model, "int8", calibrate=[x]), (x,)),
    ):
        assert np.abs(np.asarray(quantized(*args)) - want).max() < 0.1 * np.abs(want).max()


def test_gradient_against_jax():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Linear(3 * 4 * 4, 2))
    x = array(2, 2, 6, 6)
    got = nx.grad(lambda m, v: nx.sum(m(v) ** 2))(model, x).named_parameters()

    def theirs(p, v):
        h = jnp.tanh(jax_conv(v, p["layers.0.weight"], (1, 1), "VALID") + p["layers.0.bias"][:, None, None])
        return jnp.sum((h.reshape(2, -1) @ p["layers.2.weight"].T + p["layers.2.bias"]) ** 2)

    want = jax.grad(theirs)({n: np.asarray(v) for n, v in model.named_parameters().items()}, x)
    assert set(got) == set(want)
    for name, g in got.items():
        close(np.asarray(g), want[name], rtol=1e-3, atol=1e-4)


def test_parameters_by_name():
    model = nn.Sequential(nn.Linear(2, 3), nn.Residual(nn.Linear(3, 3)))
    names = model.named_parameters()
    assert list(names) == ["layers.0.weight", "layers.0.bias", "layers.1.inner.weight", "layers.1.inner.bias"]
    other = model.with_parameters({n: np.zeros(v.shape, np.float32) for n, v in names.items()})
    assert not np.asarray(other(array(4, 2))).any()
    assert model.size == 3 * 2 + 3 + 9 + 3
    with pytest.raises(nx.errors.TreeError, match=r"missing \['layers.0.bias'\], unknown \['more'\]"):
        model.with_parameters({**{n: v for n, v in names.items() if n != "layers.0.bias"}, "more": 0})
    with pytest.raises(nx.errors.ShapeError, match=r"layers.0.weight"):
        model.with_parameters({**names, "layers.0.weight": array(3, 3)})


def test_a_stack_of_models_is_a_model():
    keys = nx.random.split(nx.random.key(0), 4)
    models = nx.vmap(lambda k: nn.Linear(3, 2, key=k))(keys)
    assert models.weight.shape == (4, 2, 3)
    x = array(3)
    got = nx.vmap(lambda m, v: m(v), in_axes=(0, None))(models, x)
    close(np.asarray(got[2]), np.asarray(nn.Linear(3, 2, key=keys[2])(x)), rtol=1e-5, atol=1e-6)


def test_copies_and_pickles():
    model, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), array(4, 2)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))
        assert nx.tree.structure(other) == nx.tree.structure(model)


def test_seeds():
    nn.seed(3)
    first = nn.Linear(4, 4)
    second = nn.Linear(4, 4)
    nn.seed(3)
    again = nn.Linear(4, 4)
    assert np.array_equal(np.asarray(first.weight), np.asarray(again.weight))
    assert not np.array_equal(np.asarray(first.weight), np.asarray(second.weight))
    keyed = [np.asarray(nn.Conv2d(2, 2, 3, key=nx.random.key(5)).weight) for _ in range(2)]
    assert np.array_equal(*keyed)
    assert np.abs(keyed[0]).max() <= 1 / np.sqrt(18)
    assert nn.Linear(2, 2, dtype="float16").weight.dtype == np.float16


class Scaled(nn.Module):
    """A user's module: a list of children, a setting, a plain array."""

    def __init__(self, factor):
        self.blocks = [nn.Linear(2, 2), {"last": nn.Linear(2, 1)}]
        self.factor = factor
        self.shift = nx.ones(1)

    def __call__(self, x):
        return self.blocks[1]["last"](self.blocks[0](x)) * self.factor + self.shift


def test_own_modules():
    model, x = Scaled(3), array(4, 2)
    assert len(nx.tree.leaves(model)) == 5
    close(np.asarray(nx.jit(lambda m, v: m(v))(model, x)), np.asarray(model(x)), rtol=1e-5, atol=1e-6)
    assert nx.tree.structure(model) != nx.tree.structure(Scaled(4))
    # What is a child is settled when the module is made, not by what a transform puts in its place.
    marked = nx.tree.map(lambda _: None, model)
    assert nx.tree.map(lambda _: 0, model).shift == 0
    assert marked.shift is None
    assert model.replace(factor=2).factor == 2
    with pytest.raises(nx.errors.TreeError, match="'factor' is neither a parameter nor hashable"):
        Scaled({1, 2})


# --- what is refused ---


def test_a_name_that_a_module_has_not_is_an_attribute_error():
    layer = nx.nn.Linear(2, 2)
    assert not hasattr(layer, "weigth")
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'relu'"):
        layer.relu  # noqa: B018


def test_modules_do_not_change():
    layer = nn.Linear(2, 2)
    with pytest.raises(nx.errors.ImmutableArrayError, match=r"replace\(weight=...\)"):
        layer.weight = 0
    with pytest.raises(nx.errors.ImmutableArrayError):
        del layer.weight
    with pytest.raises(nx.errors.ParameterError, match="no attribute to replace"):
        layer.replace(wieght=0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nn.Conv2d(0, 4, 3), "Conv2d: in_channels"),
        (lambda: nn.Conv2d(3, 4, 0), "Conv2d: kernel_size"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "Conv2d: padding"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "Conv2d: groups"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "Conv2d: kernel_size"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=2), "ConvTranspose2d: output_padding"),
        (lambda: nn.Linear(2.5, 1), "Linear: in_features"),
        (lambda: nn.MaxPool2d(2, padding=2), "MaxPool2d: padding"),
        (lambda: nn.Dropout(1.0), "Dropout: rate"),
        (lambda: nn.Sequential(3), "Sequential: not a layer"),
        (lambda: nn.Sequential(nn.ReLU), "Sequential: a class where a layer should be"),
    ],
)
def test_bad_settings(make, says):
    with pytest.raises(nx.errors.ParameterError, match=says):
        make()


@pytest.mark.parametrize(
    ("layer", "x", "says"),
    [
        (nn.Conv2d(3, 4, 3), array(2, 4, 8, 8), r"Conv2d\(3, 4, kernel_size=3\): input does not fit"),
        (nn.Conv2d(3, 4, 3), array(3, 8), r"\[n, 3, h, w\] or \[3, h, w\]"),
        (nn.MaxPool2d(2), array(8, 8), "MaxPool2d"),
        (nn.BatchNorm2d(3), array(2, 4, 8, 8), r"BatchNorm2d\(3\)"),
        (nn.LayerNorm(4), array(2, 3), r"LayerNorm\(4\)"),
        (nn.Flatten(2), array(2, 3), r"Flatten\(2, -1\)"),
    ],
)
def test_bad_inputs_name_the_module_and_the_shapes(layer, x, says):
    with pytest.raises(nx.errors.ShapeError, match=says):
        layer(x)
    with pytest.raises(nx.errors.ShapeError, match=says):
        nx.jit(lambda m, v: m(v))(layer, x)


def test_repr():
    assert repr(document_network()).splitlines()[3] == "  2: Conv2d(16, 32, kernel_size=3, stride=2, padding=1)"
    assert repr(nn.Residual(nn.Sequential(nn.Linear(1, 1, bias=False)))) == (
        "Residual(\n  inner: Sequential(\n    0: Linear(1, 1, bias=False)\n  )\n)"
    )
    assert repr(nn.Sequential(nn.relu, nn.MaxPool2d(3, 2, 1))) == (
        "Sequential(\n  0: Lambda(relu)\n  1: MaxPool2d(kernel_size=3, stride=2, padding=1)\n)"
    )
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert len(model) == 3
    assert isinstance(model[1], nn.ReLU)
    assert len(model[:2]) == 2


def test_layers_run_in_named_scopes():
    text = str(nx.make_jaxpr(document_network())(array(1, 3, 32, 32)))
    assert "@conv2d_0" in text
    assert "@linear_6" in text
