"""Files of `torch.export.save` are read without PyTorch; the numbers are those that PyTorch computed for them."""

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import InvalidFileError, LoweringError, NxError
from nxjax.transforms.inline import inlined

FILES = Path(__file__).parent / "files"
EXPECTED = dict(np.load(FILES / "expected.npz"))
from_torch = nx.interop.from_torch


def close(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, 1e-5, 1e-5 * max(float(np.abs(y).max(initial=0)), 1e-3))


def test_results_and_gradients():
    f = from_torch(FILES / "eval.pt2")
    assert f.state is None and "d" not in f.params and "rnn.weight_hh_l0" in f.params
    assert str(f.inputs[0]).startswith("x: float32[s") and f.__name__ == "eval"
    y = f(f.params, EXPECTED["x"])
    close(y["logits"], EXPECTED["logits"])
    assert y["classes"].tolist() == EXPECTED["classes"].tolist() and y["rows"] == len(EXPECTED["x"])
    grads = nx.grad(lambda p: (f(p, EXPECTED["x"])["logits"] ** 2).sum())(f.params)
    scale = max(float(np.abs(v).max()) for k, v in EXPECTED.items() if k.startswith("d "))
    for k, g in grads.items():
        np.testing.assert_allclose(g, EXPECTED[f"d {k}"], 1e-5, 1e-5 * scale)


def test_a_graph_that_writes_in_place():
    """As it was exported in training mode: relu_, add_ and batch_norm write to what they are given."""
    f = from_torch(str(FILES / "train.pt2"))
    state, y = f(f.params, f.state, EXPECTED["x"][:2])
    close(y["logits"], EXPECTED["train logits"])
    assert list(state) == ["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"]
    for k, v in state.items():
        close(v, EXPECTED[f"state {k}"])


def test_a_file_on_a_chip():
    f = from_torch((FILES / "eval.pt2").read_bytes(), closed=True, shapes={})
    x = jnp.asarray(EXPECTED["x"])
    q = nx.quantize(lambda x: f(x)["logits"], "int8", calibrate=[(x,)])
    assert float(jnp.abs(q(x) - EXPECTED["logits"]).max()) < 0.2


def changed(change: Any, name: str = "eval.pt2") -> bytes:
    """The file with another graph."""
    made = io.BytesIO()
    with zipfile.ZipFile(FILES / name) as old, zipfile.ZipFile(made, "w") as new:
        for i in old.infolist():
            data = old.read(i)
            if i.filename.endswith("models/model.json"):
                graph = json.loads(data)
                change(graph)
                data = json.dumps(graph).encode()
            new.writestr(i.filename, data)
    return made.getvalue()


def nodes(graph: Any) -> Any:
    return graph["graph_module"]["graph"]["nodes"]


def test_damaged_and_hostile_files_are_one_clear_error():
    for data in (b"", b"PK", b"not a file" * 10):
        with pytest.raises(InvalidFileError, match="or damaged"):
            from_torch(data)
    with pytest.raises(InvalidFileError, match="a version of the format"):
        from_torch(changed(lambda g: g["schema_version"].update(major=9)))
    unknown = changed(lambda g: nodes(g)[0].update(target="torch.ops.aten.frobnicate.default"))
    with pytest.raises(LoweringError, match=r"no rule for operator aten\.frobnicate"):
        from_torch(unknown, closed=True)(EXPECTED["x"])
    loose = changed(lambda g: nodes(g)[1]["inputs"][0].update(arg={"as_tensor": {"name": "nothing"}}))
    with pytest.raises(InvalidFileError, match="used before it is made"):
        from_torch(loose, closed=True)(EXPECTED["x"])
    strange = changed(lambda g: nodes(g)[0]["inputs"][0].update(arg={"as_custom_obj": {"name": "x"}}))
    with pytest.raises(LoweringError, match="cannot take"):
        from_torch(strange)
    spec = json.dumps([1, {"type": None, "context": None, "children_spec": []}])
    other = changed(lambda g: g["graph_module"]["module_call_graph"][0]["signature"].update(in_spec=spec))
    with pytest.raises(InvalidFileError, match="containers do not hold"):
        from_torch(other)


def _first(graph: Any, target: str) -> Any:
    return next(n for n in nodes(graph) if n["target"].startswith(f"torch.ops.aten.{target}"))


HOSTILE = {
    "two names for one result": lambda g: nodes(g)[0].update(outputs=nodes(g)[0]["outputs"] * 2),
    "a number that is a text": lambda g: _first(g, "mul.Scalar")["inputs"][1].update(arg={"as_string": "x"}),
    "a bound that is a text": lambda g: next(iter(g["range_constraints"].values())).update(max_val="many"),
    "a bound that is a list": lambda g: next(iter(g["range_constraints"].values())).update(min_val=[1]),
    "a size below zero": lambda g: g["graph_module"]["graph"]["tensor_values"]["x"]["sizes"].__setitem__(
        1, {"as_int": -1}
    ),
    "a size that is no expression": lambda g: g["graph_module"]["graph"]["tensor_values"]["x"]["sizes"].__setitem__(
        0, {"as_expr": {"expr_str": "1/"}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_graphs_whose_values_are_of_other_kinds(change: Any):
    with pytest.raises(NxError):
        from_torch(changed(change), closed=True)(EXPECTED["x"])


def test_a_tensor_that_repeats_its_storage():
    """Strides of zero name any number of elements; that many are not made."""
    huge = {"sizes": [{"as_int": 1 << 40}], "strides": [{"as_int": 0}]}
    made = io.BytesIO()
    with zipfile.ZipFile(FILES / "eval.pt2") as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("model_weights_config.json"):
                rows = json.loads(data)
                next(iter(rows["config"].values()))["tensor_meta"].update(huge)
                data = json.dumps(rows).encode()
            new.writestr(name, data)
    with pytest.raises(InvalidFileError, match="repeats its"):
        from_torch(made.getvalue())


def test_any_damage_is_an_error_of_ours():
    whole, rng = (FILES / "train.pt2").read_bytes(), random.Random(0)
    fine = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 4, 40))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            from_torch(bytes(data[: rng.choice((len(data), rng.randrange(len(data))))]))
            fine += 1
        except NxError:
            pass
    assert fine < 60


def test_views_that_are_written_go_back_into_what_they_are_a_view_of():
    from nxjax.interop.torch.functional import functional
    from nxjax.interop.torch.graph import USER, NodeRef, TorchGraph, TorchNode
    from nxjax.interop.torch.walk import TorchWalker

    x = NodeRef("x")
    graph = [
        TorchNode("aten.alias", (x,), {}, "y"),
        TorchNode("aten.transpose.int", (NodeRef("y"), 0, 1), {}, "turned"),
        TorchNode("aten.select.int", (NodeRef("turned"), 0, 1), {}, "column"),
        TorchNode("aten.slice.Tensor", (NodeRef("y"), 0, 0, 1), {}, "first"),
        TorchNode("aten.mul_.Tensor", (NodeRef("column"), 10.0), {}, "mul_"),
        TorchNode("aten.add_.Tensor", (NodeRef("mul_"), 1.0), {}, "add_"),
        TorchNode("aten.zero_", (NodeRef("first"),), {}, "zero_"),
    ]
    outputs = tuple(map(NodeRef, ("y", "column", "first", "add_")))
    made, written = functional(TorchGraph(("x",), tuple(graph), outputs), [(USER, "x")])
    assert written == (("USER_INPUT_MUTATION", "x"),)
    new, y, column, first, added = TorchWalker(None).run(made, [jnp.arange(6.0).reshape(3, 2)])
    assert y.tolist() == new.tolist() == [[0, 0], [2, 31], [4, 51]]
    assert column.tolist() == added.tolist() == [0, 31, 51] and first.tolist() == [[0, 0]]
    unclear = [
        TorchNode("aten.reshape", (x, [6]), {}, "flat"),
        TorchNode("aten.zero_", (x,), {}, "zero_"),
    ]
    with pytest.raises(LoweringError, match=r"aten\.reshape may share"):
        functional(TorchGraph(("x",), tuple(unclear), (NodeRef("flat"),)), [(USER, "x")])


def test_equations_are_in_the_scopes_of_the_nodes_of_their_graph():
    def scopes(data: bytes) -> set[str]:
        f = from_torch(data, closed=True)
        xs = [np.zeros([n if isinstance(n, int) else 2 for n in p.dims or ()], p.dtype) for p in f.inputs]
        return {e.scope for e in inlined(nx.make_jaxpr(f)(*xs)).equations}

    found = scopes((FILES / "eval.pt2").read_bytes())
    assert "" not in found and len(found) > 1

    def named(graph: Any) -> None:
        # The submodules around a node, as torch writes them.
        stack = "L__self__,,Net;L__self___body,L['self'].body,Sequential;L__self___body_0@1,L['self'].body.0,Conv2d"
        next(n for n in nodes(graph) if "conv" in n["target"])["metadata"] = {"nn_module_stack": stack}

    assert "body.0" in scopes(changed(named)) - found
