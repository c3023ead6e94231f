"""`TorchFunction.save` and `state_dict`: files with the module's names, read again here and by PyTorch."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError

FILES = Path(__file__).parent / "files"
EXPECTED = dict(np.load(FILES / "expected.npz"))
from_torch = nx.interop.from_torch


def moved(tree: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {k: jnp.asarray((np.asarray(v) * rng.uniform(0.5, 1.5, v.shape)).astype(v.dtype)) for k, v in tree.items()}


def equal(x: Any, y: Any) -> None:
    assert x.keys() == y.keys()
    for k, v in x.items():
        assert v.dtype == y[k].dtype
        np.testing.assert_array_equal(np.asarray(v), np.asarray(y[k]), k)


def test_a_program_is_written_without_torch(tmp_path: Path):
    f, file = from_torch(FILES / "eval.pt2"), tmp_path / "eval.pt2"
    f.save(file)
    assert file.read_bytes() == (FILES / "eval.pt2").read_bytes()
    params = moved(f.params)
    for _ in range(2):  # and over the file itself, while it is mapped
        f.save(file, params)
        f = from_torch(file)
        equal(f.params, params)
        params = moved(params)
    np.testing.assert_array_equal(
        f(f.params, EXPECTED["x"])["logits"], from_torch(FILES / "eval.pt2")(f.params, EXPECTED["x"])["logits"]
    )
    assert os.listdir(tmp_path) == ["eval.pt2"] and file.stat().st_size < 1.2 * (FILES / "eval.pt2").stat().st_size


def test_buffers_that_were_written_are_saved(tmp_path: Path):
    f = from_torch(FILES / "train.pt2")
    state, _ = f(f.params, f.state, EXPECTED["x"][:2])
    for name in ("m.pt2", "m.pt", "m.safetensors"):
        f.save(tmp_path / name, f.params, state)
    g = from_torch(tmp_path / "m.pt2")
    equal(g.state, state)
    equal(g.params, f.params)
    for weights in (nx.interop.load_torch(tmp_path / "m.pt"), nx.interop.load_safetensors(tmp_path / "m.safetensors")):
        assert weights.keys() >= {*f.params, *state}
        equal({k: weights[k] for k in state}, state)
        equal({k: weights[k] for k in f.params}, f.params)


def test_what_the_function_holds_now_is_saved(tmp_path: Path):
    """Also where it was changed in place, or replaced."""
    for given in (False, True):
        f = from_torch(FILES / "train.pt2")
        f.params = moved(f.params)
        assert f.state is not None
        f.state["bn.running_mean"] += 1
        for name in ("m.pt2", "m.pt", "m.safetensors"):
            f.save(tmp_path / name, *((f.params, f.state) if given else ()))
        g = from_torch(tmp_path / "m.pt2")
        equal(g.params, f.params)
        equal(g.state, f.state)
        for read, name in ((nx.interop.load_torch, "m.pt"), (nx.interop.load_safetensors, "m.safetensors")):
            weights = read(tmp_path / name)
            equal({k: weights[k] for k in f.params}, f.params)
            equal({k: weights[k] for k in f.state}, f.state)


def test_what_cannot_be_saved_is_said(tmp_path: Path):
    f = from_torch(FILES / "train.pt2")
    name = next(iter(f.params))
    with pytest.raises(ParameterError, match="save writes no such files"):
        f.save(tmp_path / "m.onnx")
    with pytest.raises(ParameterError, match="other parameters"):
        f.save(tmp_path / "m.pt2", {})
    with pytest.raises(ShapeError, match="has another shape"):
        f.save(tmp_path / "m.pt2", {**f.params, name: jnp.ones((1, 2, 3))})
    with pytest.raises(DtypeError, match="has another kind of numbers"):
        f.save(tmp_path / "m.pt2", {**f.params, name: np.ones(f.params[name].shape, np.int32)})
    with pytest.raises(ParameterError, match="other state"):
        f.save(tmp_path / "m.pt2", f.params, {})
    with pytest.raises(ParameterError, match="takes the state by name"):
        f.save(tmp_path / "m.pt2", f.params, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="other state"):
        from_torch(FILES / "eval.pt2").save(tmp_path / "m.pt2", state={"x": jnp.ones(2)})
    assert not os.listdir(tmp_path)


# --- with PyTorch ---


def network(torch: Any) -> Any:
    """Tied weights, a buffer that is not saved, an unused parameter, strides, several dtypes."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 4)
            self.out = torch.nn.Linear(4, 7, bias=False)
            self.out.weight = self.embedding.weight
            self.norm = torch.nn.BatchNorm1d(4)
            self.unused = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
            self.turned = torch.nn.Parameter(torch.randn(4, 5).T[:4])
            self.small = torch.nn.Parameter(torch.randn(4).half())
            self.register_buffer("kept", torch.arange(4))
            self.register_buffer("passing", torch.ones(4), persistent=False)

        def forward(self, i: Any) -> Any:
            x = self.norm(self.embedding(i) @ self.turned) + self.passing + self.kept
            return self.out(x * self.small.float())

    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.filterwarnings("ignore:No complete tensor found")
def test_torch_reads_what_was_written(training: bool, tmp_path: Path):
    torch = pytest.importorskip("torch")
    net, i = network(torch).train(training), torch.tensor([0, 3, 6])
    exported = torch.export.export(net, (i,))
    torch.export.save(exported, tmp_path / "net.pt2")
    for f in (from_torch(net, (i,)), from_torch(exported), from_torch(tmp_path / "net.pt2")):
        assert "out.weight" not in f.params and (f.state is not None) == training
        params, state = moved(f.params), None if f.state is None else moved(f.state)
        for name in ("m.pt2", "m.pt", "m.safetensors"):
            f.save(tmp_path / name, params, state)
        read = torch.load(tmp_path / "m.pt", weights_only=True)
        assert read.keys() == net.state_dict().keys()
        other = network(torch).train(training)
        assert not any(other.load_state_dict(read))
        for k, v in f.state_dict(params, state).items():
            assert v.dtype == read[k].dtype and torch.equal(v, read[k])
        for k, v in {**params, **(state or {})}.items():
            np.testing.assert_array_equal(read[k].float().numpy(), np.asarray(v, np.float32), k)
        program = torch.export.load(tmp_path / "m.pt2")
        assert all(torch.equal(program.state_dict[k], v) for k, v in read.items())
        torch.testing.assert_close(program.module()(i), other(i))
        equal(from_torch(tmp_path / "m.pt2").params, params)
        weights = nx.interop.load_safetensors(tmp_path / "m.safetensors")
        assert list(weights) == list(read)
        safe = pytest.importorskip("safetensors.torch").load_file(tmp_path / "m.safetensors")
        assert all(torch.equal(safe[k], v) for k, v in read.items())


def test_torch_and_the_function_agree_after_training(tmp_path: Path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    f = from_torch(net, (torch.from_numpy(x),))
    step = nx.jit(nx.value_and_grad(lambda p: ((f(p, x) - x[:, :1]) ** 2).mean()))
    params = f.float_params()
    for _ in range(20):
        loss, grads = step(params)
        params = {k: v - 0.1 * grads[k] for k, v in params.items()}
    f.save(tmp_path / "net.pt2", params)
    with torch.no_grad():
        y = torch.export.load(tmp_path / "net.pt2").module()(torch.from_numpy(x))
        np.testing.assert_allclose(f(params, x), y, rtol=1e-4, atol=1e-6)
        net.load_state_dict(f.state_dict(params))
        np.testing.assert_allclose(net(torch.from_numpy(x)), y, rtol=1e-6)
    assert float(((y.numpy() - x[:, :1]) ** 2).mean()) < float(loss) + 1e-4
