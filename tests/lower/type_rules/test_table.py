"""The rules apart from the ops: every op has one, no fault in an equation gets by, nothing well formed is refused."""

import ast
import itertools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.config import config
from nxjax.errors import NxError, ProgramError
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.simplify import simplified
from nxjax.lower.type_rules import table
from nxjax.lower.type_rules.table import RULES, WITHOUT, flaw
from nxjax.ops import vocabulary
from nxjax.ops.base import Elementwise
from nxjax.ops.elementary import Composed
from nxjax.ops.shape import transpose
from nxjax.testing.generator import random_text
from nxjax.testing.judge import defined
from nxjax.testing.productions import ROWS
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import get_op
from nxjax.trace.kinds import _parameters
from nxjax.trace.program import Equation, Literal, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from tests.lower.type_rules.planted import equations, inferred, judged

PARAMETERS = Path(__file__).parents[2] / "trace" / "parameters.txt"
F32 = ArrayType((2, 3), dtypes.float32)
SQUARE, KEYS, WORDS = (
    ArrayType(s, d) for s, d in (((3, 3), dtypes.float32), ((2,), dtypes.key), ((2,), dtypes.uint32))
)
# Equations of ops that have no parameters and aren't elementwise: operands that they take.
OPERANDS = {
    "cholesky": [SQUARE],
    "clamp": [F32.with_shape(()), F32, F32],
    "copy": [F32],
    "dynamic_update_slice": [F32, F32.with_shape((1, 2)), *[ArrayType((), dtypes.int32)] * 2],
    "geqrf": [F32],
    "hessenberg": [SQUARE],
    "householder_product": [SQUARE, F32.with_shape((3,))],
    "lu": [F32],
    "optimization_barrier": [F32, SQUARE],
    "prelu": [F32, F32],
    "qr_pivots": [F32],
    "random_clone": [KEYS],
    "random_fold_in": [KEYS, WORDS],
    "random_seed": [WORDS],
    "random_unwrap": [KEYS],
    "random_wrap": [ArrayType((3, 2), dtypes.uint32)],
    "select_n": [ArrayType((2, 3), dtypes.bool_), F32, F32],
    "stop_gradient": [F32],
    "threefry2x32": [WORDS] * 4,
}


def every_op():
    return vocabulary.every()


def equation(op, *types, **params):
    found = op.infer(*types, **params)
    return Equation(op, tuple(map(Var, types)), tuple(map(Var, found if op.multi else (found,))), params)


def functions():
    """Programs of the ops that hold Python functions."""
    x = jnp.ones((2, 3))
    ours = nx.custom_jvp(lambda a: jnp.sin(a))
    ours.defjvp(lambda xs, ts: (jnp.sin(xs[0]), ts[0]))
    back = nx.custom_vjp(lambda a: jnp.sin(a))
    back.defvjp(lambda a: (jnp.sin(a), a), lambda a, ct: (ct * a,))
    mapped = nx.custom_batching.custom_vmap(lambda a: a * 2)
    mapped.def_vmap(lambda size, batched, a: (a * 2, batched[0]))
    host = lambda a: np.asarray(a) * 2
    linear = nx.custom_derivatives.linear_call
    solve = lambda f, b: lax.custom_linear_solve(f, b, lambda _, r: r / 2, lambda _, r: r / 2)
    root = lambda a: lax.custom_root(lambda y: y * y - a, a, lambda f, y: y - f(y) / 2, lambda g, y: y / g(1.0))
    return [
        nx.make_jaxpr(f)(x)
        for f in (
            ours,
            back,
            lambda a: nx.linearize(back, a)[1](a),
            lambda a: nx.jvp(nx.jit(back), (a,), (a,))[1],
            lambda a: nx.vjp(nx.jit(back), a)[1](a),
            mapped,
            lambda a: linear(lambda r, y: y * r, lambda r, ct: ct * r, a, a),
            lambda a: solve(lambda y: 2 * y, a),
            lambda a: nx.vmap(nx.vmap(root))(a),
            lambda a: nx.pure_callback(host, a, a),
            lambda a: nx.experimental.io_callback(host, a, a),
            lambda a: nx.debug.callback(lambda y: None, a) or a,
            lax.composite(lambda a: a * 2, "mine.double"),
        )
    ]


def examples():
    """Well-formed equations, of every op that has a row."""
    found = []
    for line in PARAMETERS.read_text().splitlines():
        if re.search(r"= ([a-z_0-9]+)\[", line):
            found += equations(nx.parse_program(line))
    found += [equation(get_op(name), *types) for name, types in OPERANDS.items()]
    for op in every_op().values():
        if isinstance(op, Elementwise) and not _parameters(type(op))[0]:
            found += taken(op)[:2]
    for program in functions():
        found += equations(program)
    return found


def taken(op):
    """Equations of an elementwise op without parameters that it takes, of every dtype."""
    found = []
    for dtype, count in itertools.product(sorted(dtypes.NAMED, key=str), (1, 2, 3)):
        e = Equation(op, tuple([Var(ArrayType((2, 3), dtype)) for _ in range(count)]), (), {})
        try:
            found.append(equation(op, *(v.type for v in e.inputs)))
        except (NxError, TypeError):
            continue
    return found


def test_every_op_has_a_row_or_a_reason():
    ops = every_op()
    # The types of a decomposition are looked at where it is written out.
    composed = {name for name, op in ops.items() if isinstance(op, Composed)}
    assert not set(ops) - set(RULES) - set(WITHOUT) - composed
    assert not set(RULES) - set(ops), "rows of ops that there are not"
    assert not set(RULES) & set(WITHOUT)


def test_the_rules_share_no_code_with_ops():
    for path in Path(table.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("nxjax"):
                assert node.module.startswith(("nxjax.trace.", "nxjax.lower.type_rules")) or node.module in (
                    "nxjax.trace",
                ), f"{path.name}: {node.module}"
                assert "infer" not in [a.name for a in node.names]


def test_faults_of_every_row_are_refused_and_nothing_else():
    rows, wrong = {}, []
    for e in examples():
        assert flaw(e) is None, f"{e}: {flaw(e)}"
        if e.op.name in RULES:
            judged(e, rows.setdefault(e.op.name, Counter()), wrong)
    assert not wrong, "\n".join(wrong[:20])
    # Of an op that users' programs reach through `checkify` alone there is no equation here; it shares its row.
    assert set(RULES) - set(rows) <= {"check"}
    for name, tally in rows.items():
        assert tally["result", "harmless"] == 0, name
        assert sum(n for (_, verdict), n in tally.items() if verdict == "refused"), name
    total = sum(rows.values(), Counter())
    assert min(total[what, "refused"] for what in ("result", "operand", "parameter")) > 1000


def test_elementwise_ops_take_what_their_rows_take():
    """Every pair of dtypes, also such as nobody thought of."""
    named = sorted(dtypes.NAMED, key=str)
    for name, op in every_op().items():
        if not isinstance(op, Elementwise) or name not in RULES or _parameters(type(op))[0]:
            continue
        for a, b in itertools.chain(zip(named, named, strict=True), ((d, dtypes.float32) for d in named)):
            for count in (1, 2):
                types = [ArrayType((2, 3), d) for d in (a, b)[:count]]
                try:
                    e = equation(op, *types)
                except (NxError, TypeError):
                    outs = (Var(types[0]),)
                    e = Equation(op, tuple(map(Var, types)), outs, {})
                assert (flaw(e) is None) == inferred(e), f"{e}: {flaw(e)}"


@pytest.mark.parametrize("seed", range(30))
def test_faults_in_programs_of_the_generator(seed):
    """Whole programs, as they are traced and as they are lowered."""
    tally, wrong = Counter(), []
    drawn = random_text(ROWS, seed, lambda *_: False)
    with config.using(enable_x64=drawn.x64), np.errstate(all="ignore"):
        traced = nx.make_jaxpr(defined(drawn.text))(*drawn.values())
        lowered = simplified(traced)
    found = [*equations(traced), *equations(lowered)]
    for k, e in enumerate(found):
        assert flaw(e) is None, f"{e}: {flaw(e)}"
        if k % 4 == seed % 4 or len(found) < 9:
            judged(e, tally, wrong)
    assert not wrong, "\n".join(wrong[:20])
    # A program of few equations may have none in which something can be wrong.
    refused = sum(n for (_, verdict), n in tally.items() if verdict == "refused")
    assert refused > sum(tally.values()) / 2 or len(found) < 9


def _staged(lie, program):
    stage(lambda a: [transpose(a, permutation=(1, 0))], [F32])


def _derived(lie, program):
    Program(program.inputs, (), program.inputs).derive("key", lambda: (program, 3))


def _passed(lie, program):
    dead_code_eliminated(Program(program.inputs, (lie, lie.replaced(lie.inputs, (Var(F32),))), lie.outputs))


@pytest.mark.parametrize("way", [_staged, _derived, _passed])
def test_an_op_that_infers_wrongly_does_not_check_itself(monkeypatch, way):
    monkeypatch.setattr(type(transpose), "infer", lambda self, x, /, *, permutation: x)
    x = Var(F32)
    lie = Equation(transpose, (x,), (Var(F32),), {"permutation": (1, 0)})
    with pytest.raises(ProgramError, match=r"transpose: results are f32\[2,3\], and should be"):
        way(lie, Program((x,), (lie,), lie.outputs))


def test_a_literal_is_a_scalar_of_its_type():
    found = Literal(wrap(np.float32(1)))
    found.type = ArrayType((), dtypes.int32)
    with pytest.raises(ProgramError, match="a literal that is no scalar of its type"):
        Program((), (), (found,)).check()
