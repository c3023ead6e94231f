"""Schemes refuse what they cannot mean; policies are what users give, asked per equation, with exceptions by layer."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import NxError, ParameterError
from nxjax.quant.scheme import PRESETS, Layered, Scheme, as_policy, preset, resolve_policy


def equations(f: Any, *args: Any) -> Any:
    program = nx.make_jaxpr(f)(*args)
    names = {v: f"{e.op.name}_{i}" for i, e in enumerate(program.equations) for v in e.outputs}
    return program.equations, names


X = np.ones((2, 3), np.float32)


def test_presets_are_what_the_table_says():
    rows = {
        name: (s.activations and s.activations.name, s.weights and s.weights.name, s.dynamic, s.group, s.integer)
        for name, s in PRESETS.items()
    }
    assert rows == {
        "int8": ("int8", "int8", False, None, True),
        "int16x8": ("int16", "int8", False, None, True),
        "dynamic-int8": ("int8", "int8", True, None, False),
        "int8-weights": (None, "int8", False, None, False),
        "int4-weights": (None, "int4", False, 32, False),
        "fp8": ("float8_e4m3fn", "float8_e4m3fn", True, None, False),
    }
    assert all(preset(name) is s for name, s in PRESETS.items())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"activations": "int4"}, "i8, i16, f8_e4m3fn, f8_e5m2 or None"),
        ({"activations": "float32"}, "Scheme: activations"),
        ({"weights": "int16"}, "i4, i8, f8_e4m3fn, f8_e5m2 or None"),
        ({"weights": "int3"}, "dtype"),
        ({"weights": None}, "integer activations go with integer weights"),
        ({"weights": "float8_e4m3fn"}, "integer activations go with integer weights"),
        ({"activations": "float8_e5m2", "weights": "float8_e5m2"}, "dynamic=True"),
        ({"activations": "int16", "dynamic": True}, "dynamic=False, or int8"),
        ({"rounding": "up"}, "double or single"),
        ({"group": 0}, "a number of weights"),
        ({"group": -32}, "a number of weights"),
        ({"group": True}, "a number of weights"),
        ({"group": 1.5}, "a number of weights"),
    ],
)
def test_wrong_schemes_are_named(arguments: dict[str, Any], said: str):
    with pytest.raises(NxError, match=said) as caught:
        Scheme(**arguments)
    # The user's line, not that of what `dataclass` wrote.
    assert caught.value.source.file == __file__


def test_schemes_are_values():
    a = Scheme(activations="int16", weights=np.int8)
    assert a == PRESETS["int16x8"] and hash(a) == hash(PRESETS["int16x8"])
    assert pickle.loads(pickle.dumps(a)) == a and dataclasses.replace(a, rounding="single").rounding == "single"
    assert Scheme(weights="int4").integer and not Scheme(activations=None, weights="int4").integer


def test_policies_from_what_users_give():
    ((e,), names) = equations(lambda x: x + x, X)
    own = Scheme(per_channel=False)
    for given, wanted in (
        ("int8", PRESETS["int8"]),
        (own, own),
        (lambda op, scope, types: own, own),
        (lambda op, scope, types: "fp8", PRESETS["fp8"]),
        (lambda op, scope, types: None, None),
        (lambda *args: own if args[0] == "add" else None, own),
        (Scheme(activations=None, weights=None), None),
    ):
        assert resolve_policy(as_policy(given), e, names) == wanted
    for wrong in ("int9", 8, None, lambda op: None, lambda op, scope, types, more: None):
        with pytest.raises(ParameterError, match="int8, int16x8, dynamic-int8, int8-weights, int4-weights, fp8"):
            as_policy(wrong)
    for answer in (8, "int9", Scheme):
        with pytest.raises(ParameterError):
            resolve_policy(lambda op, scope, types, answer=answer: answer, e, names)


def test_policies_see_op_scope_and_types():
    def f(x: Any) -> Any:
        with nx.named_scope("a"), nx.named_scope("b"):
            return nx.nn.relu(x)

    ((e,), names) = equations(f, X)
    seen: list[Any] = []
    resolve_policy(lambda *args: seen.append(args), e, names)
    ((op, scope, types),) = seen
    assert (op, scope) == ("relu", "a/b") and [(t.shape, t.dtype.name) for t in types] == [((2, 3), "float32")]


def test_exceptions_by_layer():
    policy = Layered(as_policy("int8"), {"scan_0/dot_general_1": "int16x8", "scan_0": None, "dot_general_0": Scheme()})
    answer = lambda name: policy.of_layer(name, "dot_general", "", ())
    assert answer("scan_0/dot_general_1") == "int16x8" and answer("scan_0/dot_general_1/part_0") == "int16x8"
    assert answer("scan_0/dot_general_0") is None and answer("scan_0/cond_0/0/add_0") is None
    assert answer("scan_01/add_0") == PRESETS["int8"] and answer("dot_general_1") == PRESETS["int8"]
    assert policy("dot_general", "", ()) == PRESETS["int8"]
    # Names of layers serve as exceptions of a user's policy too.
    x, p = np.ones((2, 3), np.float32), {"w": np.eye(3, dtype=np.float32)}
    f = lambda p, x: nx.nn.relu(x @ p["w"]) @ p["w"]
    q = nx.quantize(f, Layered(as_policy("int8"), {"dot_general_1": None}), calibrate=[(p, x)])
    assert list(q.ranges) == ["in_1", "relu_0"]
