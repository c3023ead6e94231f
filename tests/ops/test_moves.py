"""Ops that only move elements say so (`Moves`), once: whoever looks at elements asks for that, and keeps no table."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.ad_checkpoint import checkpoint_name
from nxjax.experimental import checkify as c
from nxjax.lower.ipu.wide import in_words
from nxjax.ops import base, vocabulary
from nxjax.ops.quant_base import QuantizedOp
from nxjax.trace import dtypes
from nxjax.trace.text import parse_program
from nxjax.transforms.checkify import OOBError
from nxjax.transforms.checkify_checks import CHECKS

LINES = (Path(__file__).parent.parent / "trace" / "parameters.txt").read_text().splitlines()
# An op of each kind; further ones have no parameters.
SAMPLES = {
    found.group(1): text for text in LINES if (found := re.search(r"= ([a-z_0-9]+)\[", text)) and "f32" in text
} | {
    "copy": "{ lambda ; a:f32[3]. let b:f32[3] = copy a in (b,) }",
    "stop_gradient": "{ lambda ; a:f32[3]. let b:f32[3] = stop_gradient a in (b,) }",
    "optimization_barrier": "{ lambda ; a:f32[3]. let b:f32[3] = optimization_barrier a in (b,) }",
    "dynamic_update_slice": "{ lambda ; a:f32[3] b:f32[2] c:i32[]. let d:f32[3] = dynamic_update_slice a b c in (d,) }",
    "select_n": "{ lambda ; a:bool[3] b:f32[3] c:f32[3]. let d:f32[3] = select_n a b c in (d,) }",
    "pad": "{ lambda ; a:f32[3] b:f32[]. let c:f32[5] = pad[padding_config=((1, 1, 0),)] a b in (c,) }",
    "concatenate": "{ lambda ; a:f32[3] b:f32[3]. let c:f32[6] = concatenate[dimension=0] a b in (c,) }",
}
# Ops that compare elements and give some of them; between devices, the elements are other ones.
CHOOSES = {
    "cummax", "cummin", "reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min", "sort", "top_k",
    "scatter_max", "scatter_min", "select_and_gather_add",
}  # fmt: skip


def gives_elements(text):
    """Whether all floats that the only equation of a program gives are among those that it takes; None without any."""
    program = parse_program(text)
    (e,) = program.equations
    rng = np.random.default_rng(0)
    xs = [np.asarray(rng.uniform(-1.9, 1.9, t.shape)).astype(t.dtype) for t in program.in_types]
    moved = xs[e.op.moved] if isinstance(e.op, base.DataMovement) else xs
    known = {x for v in moved if v.dtype in dtypes.FLOAT for x in v.ravel().tolist()}
    args = iter(xs)
    with np.errstate(all="ignore"):
        y = e.op.eval(*(next(args) if a in program.inputs else a.value.numpy() for a in e.inputs), **e.params)
    found = [x for v in (y if e.op.multi else [y]) if v.dtype in dtypes.FLOAT for x in v.ravel().tolist()]
    return {*found} <= known if found and known else None


def alone():
    for name, text in SAMPLES.items():
        op = vocabulary.every().get(name)
        single = len(parse_program(text).equations) == 1
        if op is not None and single and name != "no_derivative" and not op.nested and not op.has("batch_axis"):
            yield name, op, text


def test_what_moves_elements_says_so_and_nothing_else_does():
    moves = {name for name, op, _ in alone() if isinstance(op, base.DataMovement)}
    rest = {name for name, op in vocabulary.every().items() if isinstance(op, base.DataMovement)} - moves
    assert rest <= {"name", "sharding_constraint"}
    giving = {name for name, op, text in alone() if not op.effect and gives_elements(text)}
    assert giving - CHOOSES == moves


def test_a_nan_that_only_moves_is_not_made():
    f = lambda x: checkpoint_name(nx.jit(lambda x: x[::-1].reshape(1, 3))(x), "a")
    error, _ = c.checkify(f, errors=c.nan_checks)(np.float32([1, np.nan, 2]))
    assert error.get() is None


@pytest.mark.parametrize(("index", "apart"), [("i32", True), ("i64", False)])
def test_wide_integers_move_in_words_where_no_index_is_wide(index, apart):
    text = f"{{ lambda ; a:i64[3] b:{index}[]. let c:i64[1] = dynamic_slice[slice_sizes=(1,)] a b in (c,) }}"
    (e,) = parse_program(text).equations
    assert in_words(e) == apart


def test_ops_that_make_no_nan_of_numbers_say_so():
    """`checkify` and `nx.debug` ask for it. Infinities, zeros and the largest numbers are among the operands."""
    found = 0
    for name, op, text in alone():
        program = parse_program(text)
        if op.makes_nan or name == "bitcast_convert_type":  # of bits, every float can be made
            continue
        (e,) = program.equations
        special = [np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-45]
        for shift in range(len(special)):
            values = np.asarray(special[shift:] + special[:shift], np.float32)
            xs = [
                np.resize(values, t.shape).astype(t.dtype) if t.dtype in dtypes.FLOAT else np.zeros(t.shape, t.dtype)
                for t in program.in_types
            ]
            args = iter(xs)
            with np.errstate(all="ignore"):
                y = e.op.eval(*(next(args) if a in program.inputs else a.value.numpy() for a in e.inputs), **e.params)
            assert not any(np.isnan(v).any() for v in (y if op.multi else [y]) if v.dtype in dtypes.FLOAT), name
        found += 1
    assert found > 20


def test_every_op_that_takes_indices_has_a_check_of_them():
    """`checkify` finds indices that are out of bounds in the rows of one table."""
    takes = {
        op
        for op in vocabulary.every().values()
        if {"indices", "starts"} & {*inspect.signature(op.infer).parameters} and not isinstance(op, QuantizedOp)
    }
    assert takes == {op for op, (kind, _) in CHECKS.items() if kind is OOBError}
