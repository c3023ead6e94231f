"""The bytes of exported functions: damaged, cut and hostile ones give nxjax's errors and nothing else."""

import contextlib
import hashlib
import random

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax import export
from nxjax.errors import InvalidFileError, NxError
from nxjax.export import format as fb
from nxjax.export import trees

X = np.ones((2, 3), np.float32)
ARGS = ({"w": np.ones((3, 4), np.float32), "b": [np.ones(4, np.float32), None]}, X)


def f(p, x):
    return {"y": x @ p["w"] + p["b"][0]}


OURS = export.export(nx.jit(f))(*ARGS).serialize(vjp_order=1)
THEIRS = bytes(jax.export.export(jax.jit(f))(*ARGS).serialize(vjp_order=1))


def tried(data):
    """Everything but running the module's computation, which is trusted."""
    exported = export.deserialize(data)
    repr(exported)
    if exported.has_vjp():
        exported.vjp()
    return exported


def test_the_hash_finds_every_single_flipped_bit():
    for _ in range(300):
        position = random.randrange(len(OURS) - 40)
        damaged = bytearray(OURS)
        damaged[position] ^= 1 << random.randrange(8)
        with pytest.raises(InvalidFileError, match="damaged"):
            export.deserialize(damaged)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_bytes_give_errors_or_a_function(data):
    blob = bytearray(data.draw(st.sampled_from([OURS[:-40], THEIRS])))
    for _ in range(data.draw(st.integers(1, 6))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob)))]
    with contextlib.suppress(NxError):
        tried(bytes(blob))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes(data):
    with contextlib.suppress(NxError):
        tried(data)


@pytest.mark.parametrize("blob", [OURS, THEIRS], ids=["ours", "JAX's"])
def test_cut_bytes(blob):
    for size in [*range(80), *range(80, len(blob), 97)]:
        with contextlib.suppress(NxError):
            tried(blob[:size])


def test_modules_that_are_damaged_do_not_end_the_process():
    """MLIR's own reader does: a child process reads first."""
    chance = random.Random(1)
    refused = 0
    for _ in range(8):
        table = fb.read(THEIRS)
        module = bytearray(table["mlir_module_serialized"])
        for _ in range(3):
            module[chance.randrange(8, len(module))] ^= 1 << chance.randrange(8)
        exported = export.deserialize(_with(table, mlir_module_serialized=bytes(module)))
        try:
            exported.mlir_module()
        except NxError:
            refused += 1
    assert refused


def _with(table, **changes):
    return fb.write(_plain({**table, **changes}))


def _plain(x):
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, list) else x


def test_the_signature_must_be_the_modules():
    table = fb.read(OURS)
    values = [dict(v) for v in table["unique_avals"]]
    values[0]["shape"] = ["7"]
    exported = export.deserialize(_with(table, unique_avals=values))
    sizes = [np.zeros(t.shape, t.dtype) for t in exported.in_avals]
    args, kwargs = nx.tree.unflatten(exported.in_tree, sizes)
    with pytest.raises(InvalidFileError, match="another signature"):
        exported.call(*args, **kwargs)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calling_convention_version": 8}, "calling convention"),
        ({"calling_convention_version": 11}, "calling convention"),
        ({"platforms": []}, "platform"),
        ({"mlir_module_serialized": None}, "no module"),
        ({"module_kept_var_idx": [0, 0]}, "arguments that do not exist"),
        ({"module_kept_var_idx": [9]}, "arguments that do not exist"),
        ({"ordered_effects": [{"type_name": "<class 'Some'>"}]}, "effects in order"),
        ({"in_tree": None}, "structure"),
        ({"in_tree": {"kind": 0}}, "number of leaves"),
        ({"in_tree": {"kind": 77}}, "unknown kind"),
        ({"in_tree": {"kind": fb.CUSTOM, "custom_name": "nobody"}}, "not registered"),
        ({"in_tree": {"kind": fb.DICT, "children": [{"kind": 1}], "children_names": []}}, "keys that do not fit"),
        ({"in_avals_idxs": [99, 0, 0]}, "damaged"),
        ({"disabled_checks": [{"kind": 9}]}, "check that nxjax does not know"),
    ],
)
def test_fields_that_cannot_be(changes, words):
    with pytest.raises(NxError, match=words):
        export.deserialize(_with(fb.read(OURS), **changes))


@pytest.mark.parametrize("size", ["-1", "x" * 300, "99999999999999999999", "\u0661", "import os;"])
def test_sizes_that_are_none(size):
    table = fb.read(OURS)
    value = {"shape": [size, "2"], "dtype": 10}
    with contextlib.suppress(NxError):
        shape = export.deserialize(_with(table, unique_avals=[value] * 9)).in_avals[0].shape
        assert shape == (size, 2)  # read as an expression, which no call fits
    huge = {"shape": ["999999999", "999999999"], "dtype": 10}
    with pytest.raises(InvalidFileError, match="beyond any memory"):
        export.deserialize(_with(table, unique_avals=[huge] * 9))


def test_trees_that_share_their_parts_cannot_grow_without_end():
    """A node whose two children are one node, sixty times over, would have 2**60 leaves."""
    node = {"kind": fb.NONE, "children": None}
    for _ in range(60):
        node = {"kind": fb.TUPLE, "children": [node, node]}
    with pytest.raises(InvalidFileError, match="no end"):
        trees.read(node, [], "arguments")


def test_dtypes_that_nxjax_has_not_are_named():
    theirs = jax.export.export(jax.jit(lambda x: x))(jax.ShapeDtypeStruct((2,), jnp.float8_e3m4))
    with pytest.raises(InvalidFileError, match="float8_e3m4"):
        export.deserialize(theirs.serialize())


def test_no_bytes():
    for data in (b"", None, "text", 3):
        with pytest.raises(InvalidFileError):
            export.deserialize(data)


def test_the_hash_stands_where_other_readers_do_not_look():
    assert OURS[-40:-32] == b"NXSHA256"
    assert OURS[-32:] == hashlib.sha256(OURS[:-40]).digest()
    assert jax.export.deserialize(bytearray(OURS)).fun_name == "f"
