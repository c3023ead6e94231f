"""TFLite files that keep a state: signatures over variables, constants stored once, and order after a compiler."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ExecutionError, InvalidFileError, LoweringError
from nxjax.lower.npu.formats import flatbuffer, tflite_variables
from nxjax.lower.npu.formats.tflite_file import parse_all, tables
from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA
from nxjax.lower.npu.formats.tflite_variables import StatefulGraph, StateVariable, begun, write
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor

TABLE = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")


def tensor(name, shape=(1, 64), **more):
    return Tensor(name, shape, "float32", **more)


def adder(name="add", gives=True):
    """total, kept = add(total, kept, x): total + x @ TABLE; ``kept`` stays as it is."""
    total, kept, x, y, made = map(tensor, ("total", "kept", "x", "y", "made"))
    w = tensor("w", TABLE.shape, data=TABLE)
    nodes = [Node("fully_connected", (x, w, None), (y,)), Node("add", (total, y), (made,))]
    graph = NpuGraph(name, [total, kept, x], [made, kept, y] if gives else [made], nodes).check()
    return StatefulGraph(name, graph, {0: 0, 1: 1}, {0: 0, 1: 1} if gives else {})


def variables():
    return [
        StateVariable(name, tensor(name), np.full((1, 64), first, np.float32))
        for name, first in (("total", 1), ("kept", 2))
    ]


def litert(data):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    found = interpreter.Interpreter(model_content=data)
    return lambda key, **args: found.get_signature_runner(key)(**args)


def test_a_file_keeps_its_state_between_calls_of_any_signature():
    call = litert(write([adder(), adder("look", gives=False)], variables()))
    x = np.random.default_rng(1).normal(size=(1, 64)).astype("float32")
    y = x @ TABLE.T
    assert np.allclose(call("look", x=x)["made"], 1 + y, atol=1e-5)
    for n in (1, 2, 3):
        assert np.allclose(call("add", x=x)["y"], y, atol=1e-5)
        assert np.allclose(call("save")["total"], 1 + n * y, atol=1e-4)
    assert (call("save")["kept"] == 2).all()


def test_a_restored_state_is_not_set_again():
    call = litert(write([adder()], variables()))
    zero = np.zeros((1, 64), np.float32)
    call("restore", total=zero, kept=zero)
    saved = call("save")
    assert (saved["total"] == 0).all() and (saved["kept"] == 0).all()


def test_it_is_read_back_as_a_function_of_the_state():
    data = write([adder()], variables())
    f = nx.interop.from_tflite(data, signature="add")
    x = np.ones((1, 64), np.float32)
    state, y = f(f.params, f.state, x)
    assert np.allclose(state["total"], 1 + y, atol=1e-5) and (state["kept"] == f.state["kept"]).all()


def test_an_npu_graph_of_it_is_refused_with_what_reads_it(tmp_path):
    (tmp_path / "add.tflite").write_bytes(write([adder()], variables()))
    with pytest.raises(InvalidFileError, match=r"keeps a state in variables(.|\n)*from_tflite"):
        nx.deploy.load(tmp_path / "add.tflite")


def test_constants_of_several_graphs_are_stored_once():
    one, two = (len(write([adder(), *more], variables())) for more in ([], [adder("look", gives=False)]))
    assert two - one < TABLE.nbytes / 4


def test_what_stays_as_it_is_is_not_assigned():
    (main, *_) = parse_all(write([adder()], variables()))
    kinds = [o.name for o in main.operators]
    assert kinds.count("READ_VARIABLE") == 2 and kinds.count("ASSIGN_VARIABLE") == 1


def test_two_signatures_of_one_name_and_another_type_are_refused():
    with pytest.raises(LoweringError, match="two signatures have one name"):
        write([adder(), adder("save", gives=False)], variables())
    total, kept = variables()
    with pytest.raises(LoweringError, match="another type of the variable total"):
        write([adder()], [StateVariable("total", tensor("total", (64,)), total.first[0]), kept])


def reordered(data, order):
    """The file with the operators of its first graph in another order, as a compiler may leave them."""
    root = tables(data)
    graph = root["subgraphs"][0]
    codes = [c["builtin_code"] for c in root["operator_codes"]]
    graph["operators"] = sorted(graph["operators"], key=lambda o: order(codes[o["opcode_index"]]))
    return flatbuffer.write(SCHEMA, "Model", root, IDENTIFIER)


CALL_ONCE, ASSIGN_VARIABLE, READ_VARIABLE = 129, 144, 143


def test_first_values_are_set_before_anything_else():
    data = reordered(write([adder()], variables()), lambda code: code == CALL_ONCE)
    assert parse_all(data)[0].operators[-1].name == "CALL_ONCE"
    again = begun(data)
    assert len(again) == len(data)
    (main, *rest) = parse_all(again)
    assert [o.name for o in main.operators].index("CALL_ONCE") == 0
    names = lambda data: [[o.name for o in g.operators if o.name != "CALL_ONCE"] for g in parse_all(data)]
    assert names(again) == names(data) and len(rest) == 3
    x = np.zeros((1, 64), np.float32)
    call = litert(again)
    call("add", x=x)
    assert (call("save")["total"] == 1).all()


def test_a_variable_that_is_assigned_before_it_is_read_is_an_error():
    late = lambda code: 2 if code == READ_VARIABLE else 1 if code == ASSIGN_VARIABLE else 0
    with pytest.raises(ExecutionError, match="assigns a variable before it reads it"):
        begun(reordered(write([adder()], variables()), late))


def test_files_are_named_after_their_main_graph():
    assert tflite_variables.file_name([adder()]) == "add_variables.tflite"
    assert tflite_variables.file_name([adder()], "_vela") == "add_variables_vela.tflite"
