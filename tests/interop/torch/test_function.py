"""`from_torch`: arguments, state, sizes, random numbers, control flow, dtypes, transforms, refusals."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, LoweringError, ParameterError, ShapeError

torch: Any = pytest.importorskip("torch")

from tests.interop.torch.networks import Fn  # noqa: E402
from tests.interop.torch.test_networks import close  # noqa: E402

from_torch = nx.interop.from_torch


def made(function: Any, *args: Any, **options: Any) -> Any:
    """A function of tensors, with its arguments; no module, so that there is nothing before them."""
    f = from_torch(Fn(lambda self, *xs: function(*xs)), args, closed=True, **options)
    return f


def linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()


X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def test_a_function_of_parameters_and_arrays():
    net, batch = linear(), torch.export.Dim("batch")
    f = from_torch(net, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    assert repr(f) == "Sequential(params, input: float32[batch,4]) -> relu: float32[batch,3]"
    assert list(f.params) == list(net.state_dict()) and "input: float32[batch,4]" in str(f.__doc__)
    expected = net(torch.from_numpy(X))
    for y in (f(f.params, X), f(f.params, input=X), f(f.params, torch.from_numpy(X)), nx.jit(f)(f.params, X)):
        close(y, expected)
    program = torch.export.export(net, (torch.from_numpy(X),))
    close(from_torch(program, closed=True)(X), expected)
    with torch.no_grad():
        net[0].bias += 1
    close(f(f.params, X), net(torch.from_numpy(X)))  # one memory


def test_transforms_work_on_it():
    net = linear()
    f = from_torch(net, (torch.from_numpy(X),), closed=True)
    batched = nx.vmap(f)(jnp.stack([X, 2 * X]))
    close(batched[1], net(2 * torch.from_numpy(X)))
    hessian = nx.hessian(lambda x: (f(x) ** 2).sum())(jnp.asarray(X))
    theirs = torch.autograd.functional.hessian(lambda x: (net(x) ** 2).sum(), torch.from_numpy(X))
    close(hessian, theirs)
    q = nx.quantize(f, "int8", calibrate=[(jnp.asarray(X),)])
    np.testing.assert_allclose(q(jnp.asarray(X)), f(X), atol=0.1)
    artifact = nx.compile(q, target="tflite")(jnp.asarray(X))
    assert [r.op for r in artifact.report.rows][-1] == "fully_connected"


def test_buffers_that_are_written_are_an_argument_and_a_result():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(inplace=True)).train()
    x = torch.randn(4, 2, 6, 6)
    f = from_torch(net, (x,))
    assert list(f.state) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    state = f.state
    for _ in range(2):
        y = net(x)
        state, ours = f(f.params, state, x)
        close(ours, y)
        close(state, {k: net.state_dict()[k] for k in state})
    net.zero_grad()
    net(x).square().sum().backward()
    grads = nx.grad(lambda p: (f(p, f.state, x)[1] ** 2).sum())(f.params)
    close(grads, {k: p.grad for k, p in net.named_parameters()}, 1e-4, 1.0)
    states, ys = nx.lax.scan(lambda s, v: f(f.params, s, v), f.state, jnp.stack([x.numpy(), 2 * x.numpy()]))
    assert int(states["1.num_batches_tracked"]) == 2 and ys.shape == (2, 4, 3, 4, 4)
    with pytest.raises(ParameterError, match="second argument holds the state"):
        f(f.params, x)
    with pytest.raises(ParameterError, match=r"1\.running_mean"):
        f(f.params, {}, x)


def test_inputs_that_are_written_are_a_result():
    def write(cache: Any, x: Any) -> Any:
        cache[:, 1] = x
        return cache.sum()

    f = made(write, torch.zeros(2, 3), torch.ones(2))
    y, written = f(jnp.zeros((2, 3)), jnp.full(2, 5.0))
    assert float(y) == 10 and list(written) == ["args_0"]
    np.testing.assert_array_equal(written["args_0"], [[0, 5, 0], [0, 5, 0]])


def test_operators_that_write_in_place():
    def write(x: Any, i: Any) -> Any:
        a, b = (x * 1).chunk(2)
        a += 1
        whole = torch.zeros(3, 4)
        left, right = whole.split(2, 1)
        left.add_(x[:3, :2])
        right[1].mul_(0).sub_(2)
        half = x.to(torch.float16) * 1
        half += x
        values, _ = x.topk(2)
        values /= values.sum(-1, keepdim=True)
        view = whole.view(-1)
        whole[0, 0] = 7
        flat = i.clone().reshape(-1)
        flat[:2] = 9
        y = torch.nn.functional.dropout(x * 2, 0.5, training=False)
        z = y.relu_()
        return a, b, whole, left + 0, half, values, view, flat, y, z, torch.relu_(x.T[1:].clone()[:, ::2])

    x, i = torch.randn(4, 4), torch.arange(4).reshape(2, 2)
    close(made(write, x, i)(x, i), write(x, i))


def test_structures_of_arguments():
    def add(pair: Any, named: Any, scale: Any) -> Any:
        return {"sum": pair[0] + named["a"] * scale, "n": pair[0].shape[0], "rest": (None, "text", 2.5)}

    args = ((torch.ones(2), torch.ones(1)), {"a": torch.ones(2)}, 3)
    f = made(add, *args)
    y = f((jnp.ones(2), jnp.ones(1)), {"a": jnp.ones(2)}, 3)
    assert y["sum"].tolist() == [4, 4] and y["n"] == 2 and y["rest"] == (None, "text", 2.5)
    for wrong, match in (
        (((jnp.ones(2),), {"a": jnp.ones(2)}, 3), "not what was exported"),
        (((jnp.ones(2), jnp.ones(1)), {"b": jnp.ones(2)}, 3), "other keys"),
        (((jnp.ones(2), jnp.ones(1)), {"a": jnp.ones(2)}, 4), "a Python value is part"),
        (((jnp.ones(2), jnp.ones(1)),), "other arguments"),
    ):
        with pytest.raises(ParameterError, match=match):
            f(*wrong)


def test_what_is_wrong_with_arguments_is_said():
    net, batch = linear(), torch.export.Dim("batch", min=2, max=8)
    f = from_torch(net, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    with pytest.raises(ParameterError, match="first argument holds the parameters"):
        f(X)
    with pytest.raises(ParameterError, match="other parameters"):
        f({"w": X}, X)
    with pytest.raises(DtypeError, match="input has another dtype"):
        f(f.params, X.astype(np.float64))
    with pytest.raises(ShapeError, match="dynamic_shapes"):
        f(f.params, X[:, :3])
    with pytest.raises(ShapeError, match="2 to 8"):
        f(f.params, np.ones((9, 4), np.float32))
    with pytest.raises(ShapeError, match="'batch': 3"):
        from_torch(net, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},), shapes={"batch": 3})(f.params, X)
    with pytest.raises(ParameterError, match="no input or size"):
        from_torch(net, (torch.zeros(2, 4),), shapes={"q": 3})
    with pytest.raises(ParameterError, match="example arguments"):
        from_torch(net)
    with pytest.raises(ParameterError, match="stand in a tuple"):
        from_torch(net, torch.zeros(2, 4))
    with pytest.raises(ParameterError, match="not a module"):
        from_torch(3)
    with pytest.raises(LoweringError, match=r"torch\.export cannot export"):
        made(lambda x: x.sum().item() and x, torch.ones(2), dynamic_shapes={"args": ({0: "n"},)})


def test_sizes_that_depend_on_others():
    batch = torch.export.Dim("batch")
    cat = Fn(lambda self, x, y: (torch.cat([x.reshape(-1), y]), x.shape[0] * 2))
    f = from_torch(
        cat, (torch.zeros(3, 4), torch.zeros(6)), dynamic_shapes={"args": ({0: batch}, {0: 2 * batch})}, closed=True
    )
    assert str(f.inputs[1]) == "args_1: float32[2*batch]"
    y, n = f(np.ones((5, 4), np.float32), np.ones(10, np.float32))
    assert y.shape == (30,) and n == 10 and type(n) is int
    with pytest.raises(ShapeError, match=r"size 2\*batch"):
        f(np.ones((5, 4), np.float32), np.ones(9, np.float32))


def test_random_operators_need_a_key():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 400), torch.nn.Dropout(0.25)).train()
    f = from_torch(net, (torch.zeros(5, 4),), closed=True)
    with pytest.raises(LoweringError, match=r"key=nx\.random\.key"):
        f(X)
    y, z = (f(X, key=nx.random.key(i)) for i in (0, 1))
    kept = np.asarray(y) != 0
    assert 0.7 < kept.mean() < 0.8 and (kept != (np.asarray(z) != 0)).any()
    plain = net[0](torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(np.asarray(y)[kept], plain[kept] / 0.75, rtol=1e-5)
    assert (nx.jit(lambda k: f(X, key=k))(nx.random.key(0)) == y).all()
    g = made(lambda x: (torch.rand_like(x), torch.randn(50, 50), torch.randint(2, 5, (100,))), torch.ones(4))
    u, n, i = g(np.ones(4, np.float32), key=nx.random.key(0))
    assert ((u >= 0) & (u < 1)).all() and abs(float(n.std()) - 1) < 0.1 and set(i.tolist()) == {2, 3, 4}


def test_control_flow_becomes_ours_and_has_gradients():
    def branch(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x * 3, (x,))

    f = made(branch, torch.ones(3))
    for x in (np.ones(3, np.float32), -np.ones(3, np.float32)):
        t = torch.tensor(x, requires_grad=True)
        branch(t).sum().backward()
        close(f(x), branch(t))
        close(nx.grad(lambda v: f(v).sum())(jnp.asarray(x)), t.grad)
    from torch._higher_order_ops import map as mapped
    from torch._higher_order_ops import scan, while_loop

    def count(i: Any, x: Any) -> Any:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (i, x))

    g = made(count, torch.tensor(0), torch.ones(2))
    assert g(2, jnp.ones(2))[1].tolist() == [8, 8] and nx.jit(g)(0, jnp.ones(2))[1].tolist() == [32, 32]

    def rows(c: Any, xs: Any) -> Any:
        last, ys = scan(lambda c, x: (c + x, c * x), c, xs)
        return last, ys, mapped(lambda x, c: x.sin() + c, xs, c)

    c, xs = torch.ones(2), torch.randn(4, 2)
    close(made(rows, c, xs)(c, xs), rows(c, xs))


def test_values_that_decide_shapes_run_op_by_op():
    f = made(lambda x: x[x > 0], torch.tensor([1.0, -1.0, 2.0]))
    assert f(np.array([-1, 3, 4], np.float32)).tolist() == [3, 4]
    assert f(np.array([5, 3, 4], np.float32)).tolist() == [5, 3, 4]
    with pytest.raises(LoweringError, match="outside jit"):
        nx.jit(f)(np.array([-1, 3, 4], np.float32))


def test_dtypes_are_those_of_torch():
    def mixed(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + b, a * 2.5, b / 2, c + d, c * a[0], a.to(torch.float64) + b, (a > 0) + b, b.mean(dtype=torch.float64)

    args = (
        torch.tensor([1, 2], dtype=torch.int32), torch.tensor([3, 1 << 40]),
        torch.tensor([1.5, 2], dtype=torch.bfloat16), torch.tensor(2.5, dtype=torch.float32),
    )  # fmt: skip
    expected = mixed(*args)
    f = made(mixed, *args)
    given = [np.asarray(args[0]), np.asarray(args[1]), args[2], np.float32(2.5)]
    for y, t in zip(f(*given), expected, strict=True):
        assert y.dtype.name == str(t.dtype).removeprefix("torch.")
        np.testing.assert_allclose(np.asarray(y).astype(np.float64), t.double().numpy(), rtol=1e-6)


def test_an_operator_without_a_rule_is_named():
    f = made(lambda x: torch.special.bessel_j0(x), torch.ones(2))
    with pytest.raises(LoweringError, match=r"no rule for operator aten\.special_bessel_j0") as caught:
        f(np.ones(2, np.float32))
    assert "test_function.py" in str(caught.value)


FUNCTIONAL = torch.nn.functional


@pytest.mark.parametrize(
    "function",
    [
        torch.relu, FUNCTIONAL.relu6, FUNCTIONAL.hardtanh, FUNCTIONAL.hardsigmoid, FUNCTIONAL.hardswish,
        FUNCTIONAL.elu, FUNCTIONAL.celu, FUNCTIONAL.selu, lambda x: FUNCTIONAL.elu(x, 0.5),
        lambda x: FUNCTIONAL.hardtanh(x, 0.0, 6.0),
    ],
)  # fmt: skip
def test_derivatives_where_a_function_has_a_corner(function: Any):
    x = torch.tensor([-4.0, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0])
    f = made(function, x)
    close(nx.grad(lambda v: f(v).sum())(jnp.asarray(x.numpy())), torch.func.grad(lambda v: function(v).sum())(x))
