"""`to_torch`: functions of nxjax inside of torch's autograd."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, ParameterError

torch: Any = pytest.importorskip("torch")

to_torch = nx.interop.to_torch


def test_values_and_gradients():
    g = to_torch(lambda p, x: {"y": jnp.tanh(x @ p["w"]) + p["b"], "n": x.shape[0]})
    p = {"w": torch.randn(3, 2, requires_grad=True), "b": torch.randn(2)}
    x = torch.randn(4, 3, requires_grad=True)
    y = g(p, x)
    expected = torch.tanh(x @ p["w"]) + p["b"]
    torch.testing.assert_close(y["y"], expected)
    assert y["n"] == 4
    ours = torch.autograd.grad(y["y"].square().sum(), [p["w"], x])
    theirs = torch.autograd.grad(expected.square().sum(), [p["w"], x])
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(
        to_torch(lambda x: jnp.sin(x) * x), torch.randn(3, dtype=torch.float64).requires_grad_()
    )


def test_derivatives_of_higher_order():
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    for f in (lambda x: jnp.exp(2 * x) * x, nx.jit(lambda x: jnp.exp(2 * x) * x)):
        y, t = to_torch(f)(x).sum(), (torch.exp(2 * x) * x).sum()
        for _ in range(3):
            (y,), (t,) = (torch.autograd.grad(v, x, create_graph=True) for v in (y, t))
            torch.testing.assert_close(y, t)
            y, t = y.sum(), t.sum()
    assert torch.autograd.gradgradcheck(to_torch(jnp.sin), x)


def test_integers_and_inputs_without_a_gradient():
    def pick(table: Any, i: Any, scale: Any) -> Any:
        return table[i] * scale, jnp.argmax(table, 1), i + 1

    table, i = torch.randn(4, 3, requires_grad=True), torch.tensor([2, 0, 2])
    y, at, j = to_torch(pick)(table, i, 2.0)
    assert y.requires_grad and not at.requires_grad and not j.requires_grad
    y.sum().backward()
    assert table.grad.tolist() == [[2] * 3, [0] * 3, [4] * 3, [0] * 3] and i.dtype == j.dtype == torch.int64
    frozen = to_torch(pick)(table.detach(), i, 2.0)
    assert not any(t.requires_grad for t in frozen)


def test_no_grad_computes_no_derivative():
    calls: list[str] = []

    @nx.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    f.defvjp(lambda x: calls.append("forward") or (x * 2, None), lambda _, ct: (ct * 2,))
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not to_torch(f)(x).requires_grad
    assert not calls
    assert to_torch(f)(x).requires_grad and calls == ["forward"]


def test_memory_is_shared_where_it_can_be():
    seen: list[Any] = []
    x = torch.arange(6.0)
    y = to_torch(lambda x: seen.append(x) or (x, x + 1))(x)
    assert np.asarray(seen[0]).ctypes.data == x.data_ptr()
    assert y[0].data_ptr() != x.data_ptr()  # an argument that is given back is not the tensor itself
    turned = to_torch(lambda x: x * 1)(x.reshape(2, 3).T)
    torch.testing.assert_close(turned, x.reshape(2, 3).T)


def test_writing_to_what_a_derivative_reads_is_noticed():
    x = torch.ones(3, requires_grad=True)
    y = to_torch(jnp.exp)(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8", "bool", "complex64"])
def test_dtypes(dtype: str):
    x = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    y = to_torch(lambda x: (x, x.reshape(3, 1)))(x)
    assert y[0].dtype == x.dtype and torch.equal(y[1][:, 0], x)


def test_a_module_of_torch_there_and_back():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x = torch.randn(5, 3)
    f = nx.interop.from_torch(net, (x,))
    g = to_torch(nx.jit(f))
    parameters = dict(net.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), 0.1)
    for _ in range(3):
        ours = torch.autograd.grad(g(parameters, x).square().mean(), parameters.values())
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for a, p in zip(ours, parameters.values(), strict=True):
            torch.testing.assert_close(a, p.grad)
        optimizer.step()


def test_what_it_cannot_take_is_said():
    with pytest.raises(ParameterError, match="needs a function"):
        to_torch(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DtypeError, match="cannot hold such a tensor"):
        to_torch(lambda x: x)(torch.eye(2).to_sparse())


def test_transforms_of_torch():
    func = torch.func
    g, h = to_torch(lambda x: (jnp.sin(x) * x).sum()), lambda x: (torch.sin(x) * x).sum()
    x = torch.linspace(-1, 2, 6).reshape(2, 3)
    for transform in (
        lambda f: func.grad(f)(x), lambda f: func.vmap(f)(x), lambda f: func.vmap(func.grad(f))(x),
        lambda f: func.grad(lambda x: func.vmap(f)(x).sum())(x), lambda f: func.jacrev(func.grad(f))(x[0]),
        lambda f: func.vmap(f, in_dims=1)(x), lambda f: func.vmap(func.vmap(f))(x),
    ):  # fmt: skip
        torch.testing.assert_close(transform(g), transform(h))
    two = to_torch(lambda x, w: {"y": x @ w, "n": 3, "i": jnp.argmax(x)})
    w = torch.randn(3, 4)
    made = func.vmap(two, in_dims=(0, None), out_dims={"y": 0, "n": None, "i": 0})(x, w)
    torch.testing.assert_close(made["y"], x @ w)
    assert made["n"] == 3 and made["i"].tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_in_a_compiled_function():
    g = torch.compiler.disable(to_torch(jnp.sin))
    compiled = torch.compile(lambda x: g(x * 2) + 1, backend="eager")
    x = torch.linspace(0, 1, 5, requires_grad=True)
    y = compiled(x)
    torch.testing.assert_close(y, torch.sin(x * 2) + 1)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * torch.cos(x * 2))
