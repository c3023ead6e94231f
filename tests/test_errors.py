"""Bad input: the right class, the user's own line, the likely fix; and nothing left half done."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import errors
from nxjax.errors import ParameterError, StaticArgumentError
from nxjax.trace.core import EVAL, current_trace

X = jnp.ones((2, 3))
KEPT = []
too_many_rules = nx.custom_jvp(lambda x: x)
too_many_rules.defjvps(None, None)


class Thing:
    pass


def leak(x):
    KEPT.append(x)
    return x


def donated():
    f = nx.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.arange(3.0) * 1
    f(x)
    return x + 1


@nx.custom_vjp
def wrong_rule(x):
    return x


wrong_rule.defvjp(lambda x: (x, None), lambda _, ct: (ct, ct))


# name -> (what a user writes, the class, what the message says)
CASES = {
    "float in grad": (lambda: nx.grad(lambda x: float(x) ** 2)(1.0), errors.ConcretizationTypeError, "float"),
    "a string to jit": (lambda: nx.jit(lambda x, act: x)(1.0, "relu"), errors.DtypeError, "argument act"),
    "an object to jit": (lambda: nx.jit(lambda x: x)(object.__new__(Thing)), errors.DtypeError, "register_dataclass"),
    "a string from jit": (lambda: nx.jit(lambda x: "a")(1.0), errors.DtypeError, "give arrays"),
    "an option of jit": (lambda: nx.jit(lambda x: x, static_args=1), errors.ParameterError, "static_argnums"),
    "jit of a result": (lambda: nx.jit(X), errors.ParameterError, "not jit(f(x))"),
    "vmap of a result": (lambda: nx.vmap(X), errors.ParameterError, "not vmap(f(x))"),
    "ranks of concatenate": (lambda: jnp.concatenate([X, jnp.ones(3)]), errors.ShapeError, "x[None]"),
    "einsum sizes": (lambda: jnp.einsum("ij,jk->ik", X, X), errors.ShapeError, "swap its letters"),
    "einsum letters": (lambda: jnp.einsum("ij,jk-ik", X, X), errors.ParameterError, '"->"'),
    "a scan without a pair": (lambda: nx.lax.scan(lambda c, x: c, 0.0, X), errors.TreeError, "an array, f32[]"),
    "a tangent of an integer": (lambda: nx.jvp(jnp.sin, (1.0,), (1,)), errors.DtypeError, "i32"),
    "has_aux without a pair": (
        lambda: nx.value_and_grad(lambda x: x, has_aux=True)(1.0),
        errors.GradientError,
        "an array, f32[]",
    ),
    "a misspelt dtype": (lambda: jnp.zeros(3, "flot32"), errors.DtypeError, "perhaps 'float32'"),
    "not linear": (
        lambda: nx.linear_transpose(lambda x: x * x, jnp.ones(3))(jnp.ones(3)),
        errors.GradientError,
        "not linear",
    ),
    "the shape of a broadcast": (lambda: jnp.broadcast_to(X, (3, 3)), errors.ShapeError, "insert axes"),
    "the axis of a scalar": (lambda: jnp.argsort(nx.random.key(0)), errors.AxisError, "scalar"),
    "shapes of an operator": (lambda: X + jnp.ones((2, 4)), errors.ShapeError, "shapes"),
    "shapes of matmul": (lambda: X @ X, errors.ShapeError, "contracting"),
    "shapes of concatenate": (lambda: jnp.concatenate([X, jnp.ones((3, 4))]), errors.ShapeError, "concatenate"),
    "reshape": (lambda: X.reshape(4, 2), errors.ShapeError, "reshape"),
    "dtypes of lax": (lambda: nx.lax.add(jnp.ones(2), jnp.ones(2, int)), errors.DtypeError, "cast"),
    "a dtype without meaning": (lambda: jnp.bitwise_and(X, X), errors.DtypeError, "bitwise_and"),
    "an axis": (lambda: X.sum(axis=2), errors.AxisError, "axis"),
    "an axis twice": (lambda: X.sum(axis=(0, 0)), errors.AxisError, "twice"),
    "if": (lambda: nx.jit(lambda x: x if x > 0 else -x)(1.0), errors.TracerBoolConversionError, "nx.where"),
    "while": (
        lambda: nx.vmap(lambda x: [1 for _ in iter(lambda: bool(x > 0), False)])(X),
        errors.TracerBoolConversionError,
        "cond",
    ),
    "int": (lambda: nx.jit(lambda x: int(x))(1), errors.ConcretizationTypeError, "static"),
    "float": (lambda: nx.jit(lambda x: float(x))(1.0), errors.ConcretizationTypeError, "concrete"),
    "range": (lambda: nx.jit(lambda n: list(range(n)))(3), errors.TracerIntegerConversionError, "static"),
    "numpy": (lambda: nx.jit(lambda x: np.sin(x))(1.0), errors.TracerArrayConversionError, "nxjax"),
    "a mask": (lambda: nx.jit(lambda x: x[x > 0])(X), errors.NonConcreteBooleanIndexError, "where"),
    "an escaped tracer": (lambda: (nx.jit(leak)(1.0), KEPT[-1] + 1), errors.UnexpectedTracerError, "return the value"),
    "grad of a vector": (lambda: nx.grad(lambda x: x * 2)(X), errors.GradientError, "scalar"),
    "grad of integers": (lambda: nx.grad(lambda x: x * 2)(3), errors.GradientError, "cast"),
    "grad of a tree": (lambda: nx.grad(lambda x: {"a": x})(3.0), errors.GradientError, "scalar"),
    "grad through while": (
        lambda: nx.grad(lambda x: nx.lax.while_loop(lambda v: v < 9, lambda v: v * 2, x))(1.0),
        errors.GradientError,
        "scan",
    ),
    "argnums": (lambda: nx.grad(lambda x: x, argnums=1)(1.0), errors.ParameterError, "argnums"),
    "a static list": (lambda: nx.jit(lambda x, n: x, static_argnums=1)(1.0, [1]), errors.StaticArgumentError, "hash"),
    "a static name": (
        lambda: nx.jit(lambda x: x, static_argnames="y"),
        errors.StaticArgumentError,
        "names no parameter",
    ),
    "in_axes too short": (lambda: nx.vmap(lambda x, y: x, in_axes=(0,))(X, X), errors.AxisSpecError, "entry per"),
    "in_axes out of range": (lambda: nx.vmap(lambda x: x, in_axes=2)(X), errors.AxisSpecError, "out of range"),
    "in_axes of a tree": (lambda: nx.vmap(lambda x: x, in_axes=({"b": 0},))({"a": X}), errors.AxisSpecError, "prefix"),
    "in_axes of None only": (lambda: nx.vmap(lambda x: x, in_axes=None)(X), errors.AxisSpecError, "axis_size"),
    "out_axes": (lambda: nx.vmap(lambda x: x, out_axes=None)(X), errors.AxisSpecError, "out_axes"),
    "sizes of mapped axes": (lambda: nx.vmap(lambda x, y: x)(X, jnp.ones(3)), errors.ShapeError, "one size"),
    "carry dtype": (
        lambda: nx.lax.scan(lambda c, _: (c.astype(jnp.bfloat16), None), jnp.float32(0), None, length=2),
        errors.CarryTypeError,
        "bf16",
    ),
    "carry shape": (
        lambda: nx.lax.fori_loop(0, 3, lambda i, c: jnp.concatenate([c, c]), jnp.ones(2)),
        errors.CarryTypeError,
        "f32[4]",
    ),
    "branches": (
        lambda: nx.lax.cond(True, lambda x: x, lambda x: (x, x), 1.0),
        errors.BranchTypeError,
        "true_fun",
    ),
    "assignment": (lambda: X.__setitem__(0, 1.0), errors.ImmutableArrayError, ".at["),
    "an int as key": (lambda: nx.random.uniform(42), errors.KeyTypeError, "nx.random.key(0)"),
    "a float as key": (lambda: nx.random.split(1.5), errors.KeyTypeError, "key"),
    "trees": (lambda: nx.tree.map(lambda a, b: a, {"x": 1}, [1]), errors.TreeError, "structure"),
    "a tangent's type": (lambda: nx.jvp(jnp.sin, (X,), (jnp.ones(3),)), errors.ShapeError, "tangent"),
    "an unknown axis name": (lambda: nx.lax.psum(1.0, "batch"), errors.NxError, "batch"),
    "a list as operand": (lambda: jnp.sin([1.0]), errors.DtypeError, "nx.array"),
    "an unknown device": (lambda: nx.jit(lambda x: x, device="abacus")(1.0), errors.ParameterError, "abacus"),
    "transposing integers": (
        lambda: nx.linear_transpose(lambda x: x, nx.ShapeDtypeStruct((), int)),
        errors.DtypeError,
        "float",
    ),
    "a traced value as key": (lambda: nx.jit(lambda x: {x: 1})(X), errors.ConcretizationTypeError, "unhashable type"),
    "a traced value in a set": (lambda: nx.jit(lambda x: x in {1, 2})(1), errors.ConcretizationTypeError, "x of"),
    "a traced value's digits": (
        lambda: nx.jit(lambda x: f"{x:.2f}")(1.0),
        errors.ConcretizationTypeError,
        'nx.debug.print("{x:.2f}", x=x)',
    ),
    "a slice of traced length": (
        lambda: nx.jit(lambda x, n: x[:n])(X, 1),
        errors.JAXIndexError,
        "dynamic_slice_in_dim",
    ),
    "keys without an order": (lambda: nx.grad(lambda d: d[1])({"a": 0.0, 1: 0.0}), errors.TreeError, "int and str"),
    "argnums by name": (lambda: nx.grad(jnp.sum, argnums="a")(X), errors.ParameterError, "names are not taken"),
    "argnums of a Jacobian": (lambda: nx.jacrev(jnp.sum, argnums=1.5)(X), errors.ParameterError, "jacrev: argnums"),
    "grad by name": (lambda: nx.grad(lambda x: x)(x=1.0), errors.ParameterError, "by position, not by name"),
    "an array as a tree": (lambda: nx.vjp(lambda x: (x, x), X)[1](X), errors.TreeError, "an array, f32[2,3] instead"),
    "arrays as arguments": (lambda: nx.jvp(jnp.sin, X, X), errors.TreeError, "got:      an array"),
    "too many rules": (lambda: nx.grad(too_many_rules)(1.0), errors.ParameterError, "2 rules"),
    "a loop's shape": (
        lambda: nx.lax.fori_loop(0, 3, lambda i, x: x[1:], X),
        errors.CarryTypeError,
        "fori_loop: body_fun changes the shape",
    ),
    "a loop's structure": (
        lambda: nx.jit(lambda n: nx.lax.fori_loop(0, n, lambda i, x: (x, x), X))(3),
        errors.CarryTypeError,
        "fori_loop: body_fun changes the structure",
    ),
    "axes of a dict": (
        lambda: nx.vmap(lambda d: d, in_axes=({"w": 0},))({"v": X}),
        errors.AxisSpecError,
        "({'w': 0},) for PyTreeSpec(({'v': *},))",
    ),
    "a policy's name": (lambda: nx.checkpoint(jnp.sin, policy="dots"), errors.ParameterError, "dots_saveable"),
    "a string's shape": (
        lambda: nx.eval_shape(lambda a: a, "x"),
        errors.DtypeError,
        "eval_shape: argument a of <lambda>",
    ),
    "a string's program": (lambda: nx.make_jaxpr(jnp.sin)("x"), errors.DtypeError, "make_jaxpr: argument x of sin"),
    "minus a bool": (lambda: -(X > 0), errors.DtypeError, "integer, float or complex"),
    "a sum with a key": (lambda: nx.random.key(0) + 1, errors.DtypeError, "key_data"),
    "arrays one by one": (lambda: jnp.concatenate(X, X), errors.ParameterError, "concatenate([x, y])"),
    "arrays of two shapes": (lambda: jnp.stack([X, X[0]]), errors.ShapeError, "stack: "),
    "indices of another rank": (
        lambda: jnp.take_along_axis(X, jnp.array([0]), axis=1),
        errors.ShapeError,
        "take_along_axis: ",
    ),
    "points without values": (lambda: jnp.interp(X, X[0], X[0, :2]), errors.ShapeError, "interp: "),
    "an index that is no letter": (lambda: jnp.einsum("i$->i", X), errors.ParameterError, "an index is a letter"),
    "an integer normal": (lambda: nx.random.normal(nx.random.key(0), dtype=int), ValueError, "float or complex"),
    "an unknown setting": (lambda: nx.config.update("jax_debug_nan", 1), AttributeError, "debug_nans"),
    "a setting's type": (lambda: nx.config.update("jax_enable_x64", "maybe"), errors.ParameterError, "True or False"),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    function, cls, says = CASES[name]
    with pytest.raises(cls) as caught:
        function()
    message = str(caught.value)
    assert says in message
    assert "test_errors.py" in message, message
    assert "nxjax explain " in message
    # Whatever went wrong, nothing is left behind.
    assert current_trace() is EVAL
    assert nx.sin(0.0) == 0.0


def test_errors_have_the_classes_that_jax_programs_catch():
    for ours in vars(errors).values():
        theirs = getattr(jax.errors, getattr(ours, "__name__", ""), None)
        if theirs is not None and ours.__module__ == "nxjax.errors":
            common = {c for c in theirs.__mro__ if c.__module__ == "builtins"} - {object, BaseException}
            assert common <= set(ours.__mro__), ours


def test_the_line_is_the_users_under_every_transform():
    def wrong(x):
        return x @ jnp.ones(7)  # the wrong line

    for wrapped in (
        wrong,
        nx.jit(wrong),
        nx.vmap(wrong),
        nx.grad(lambda x: wrong(x).sum()),
        nx.jit(nx.vmap(nx.jit(wrong))),
    ):
        with pytest.raises(errors.ShapeError, match="the wrong line"):
            wrapped(X)


def test_a_failed_trace_leaves_no_entry():
    calls = []

    @nx.jit
    def f(x):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the first time")
        return x + 1

    with pytest.raises(ValueError, match="the first time"):
        f(1.0)
    assert f(1.0) == 2.0
    assert f(2.0) == 3.0
    assert len(calls) == 2


def test_donated_arrays_cannot_be_used_again():
    with pytest.raises(RuntimeError, match="deleted"):
        donated()


def test_a_wrong_rule_is_named():
    with pytest.raises((errors.TreeError, errors.NxError), match=r"(?s)custom_vjp|rule|tree"):
        nx.grad(wrong_rule)(1.0)


def test_a_missing_extra_names_the_command(monkeypatch):
    from nxjax.backends import registry
    from nxjax.backends.xla import client

    monkeypatch.setattr(client, "available", lambda: (False, "jaxlib is not installed"))
    registry._best.cache_clear()
    try:
        with pytest.raises(errors.MissingExtraError, match=r'pip install "nxjax\[xla\]"'):
            client.need_jaxlib()
        # Where the extra is missing, jit compiles all the same.
        assert registry.default().name == "cpu"
        assert nx.jit(lambda x: x * 2 + 0.25)(1.0) == 2.25
    finally:
        registry._best.cache_clear()


def test_python_numbers_too_large_are_refused():
    with pytest.raises(OverflowError, match=r"(?s)too large|does not fit"):
        jnp.ones(2, int) + 2**40


def test_tracebacks_show_the_users_frames():
    import traceback

    from nxjax.config import config
    from nxjax.errors import is_internal

    def inner(x):
        return x @ jnp.ones(7)

    def outer(x):
        return nx.lax.scan(lambda c, _: (inner(x), None), x, None, length=2)

    def frames():
        with pytest.raises(errors.ShapeError) as caught:
            nx.jit(nx.vmap(outer))(jnp.ones((2, 2, 3)))
        return traceback.extract_tb(caught.value.__traceback__)

    shown = frames()
    assert [f.name for f in shown if not is_internal(f.filename)] == ["frames", "outer", "<lambda>", "inner"]
    assert len([f for f in shown if is_internal(f.filename)]) <= 4
    with config.using(traceback_filtering=False):
        assert len(frames()) > 2 * len(shown)


def test_keys_and_donated_arrays_are_python_errors():
    with pytest.raises(TypeError, match="key_data"):
        np.asarray(nx.random.key(0))
    f = nx.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.arange(3.0) * 1
    f(x)
    with pytest.raises(RuntimeError, match=r"shape=f32\[3\].*donate_argnums"):
        _ = x + 1


WRONG = {
    "profile(f, x)": (lambda: nx.profile(lambda x: x, nx.ones(3)), "profile.*cannot take"),
    "progress_bar": (lambda: nx.debug.progress_bar("3"), "progress_bar(.|\n)*got: *str"),
    "log": (lambda: nx.debug.log(3), "log(.|\n)*got: *int"),
    "linearize": (lambda: nx.linearize(3.0, 1.0), "linearize: needs a function"),
    "vjp": (lambda: nx.vjp(nx.ones(3), 1.0), "vjp: needs a function"),
    "linear_transpose": (lambda: nx.linear_transpose(None, 1.0), "linear_transpose: needs a function"),
    "closure_convert": (lambda: nx.closure_convert("f", 1.0), "closure_convert: needs a function"),
    "make_jaxpr(f, x)": (lambda: nx.make_jaxpr(lambda x: x, nx.ones((2, 3))), "make_jaxpr: cannot take"),
    "custom_jvp(f, x)": (lambda: nx.custom_jvp(lambda x: x, nx.ones(3)), "nondiff_argnums"),
    "PartitionSpec": (lambda: nx.P({"a": 1}), "PartitionSpec: cannot take"),
    "make_mesh": (lambda: nx.make_mesh(len, "x"), "make_mesh: cannot take"),
    "devices": (lambda: nx.devices({}), "devices: cannot take"),
    "prefetch": (lambda: nx.prefetch(3), "prefetch: cannot take"),
    "unified_buffer": (lambda: nx.unified_buffer(None), "unified_buffer: cannot take"),
    "HeatLimits": (lambda: nx.hybrid.HeatLimits("hot"), "HeatLimits: cannot take"),
    "Plugin": (lambda: nx.hybrid.Plugin(3), "Plugin: cannot take"),
    "nas.key_of": (lambda: nx.nas.key_of(nx.ones((2, 3))), "key_of: cannot take"),
    "generation.forward": (lambda: nx.generation.forward({}, [1], None), "forward: cannot take"),
    "generation.Tokenizer": (lambda: nx.generation.Tokenizer(len), "Tokenizer: cannot take"),
    "checkpoints.save": (lambda: nx.checkpoints.save(3, 0, {}), "save: cannot take"),
    "checkpoints.latest_step": (lambda: nx.checkpoints.latest_step(nx.ones(3)), "latest_step: cannot take"),
    "cost(f, x)": (lambda: nx.cost(lambda x: x, nx.ones(3)), "cost: cannot take"),
    "explain(f)": (lambda: nx.explain(lambda x: x), "explain: cannot take"),
    "compile(f)": (lambda: nx.compile(lambda x: x), "compile: cannot take"),
    "bucketed(f)": (lambda: nx.bucketed(lambda x: x), "bucketed: cannot take"),
    "pairs of padding": (lambda: nx.lax.pad(nx.ones((2, 2)), 0.0, ((1, 1), (0, 2))), "pad: padding_config"),
    "no pairs of padding": (lambda: nx.lax.pad(nx.ones((2, 2)), 0.0, 2), "pad: padding_config"),
    "attention": (lambda: nx.nn.dot_product_attention(*[nx.ones((2, 1, 4))] * 3, scale="x"), "attention: cannot take"),
    "hardware.sensors": (lambda: nx.hardware.sensors("cpu"), "sensors: cannot take"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_names_the_function_and_the_users_line(name):
    call, text = WRONG[name]
    with pytest.raises(ParameterError, match=text) as caught:
        call()
    assert "test_errors.py" in str(caught.value.source)


@pytest.mark.parametrize(
    "wrong", [{"static_argnums": "x"}, {"donate_argnums": 1.5}, {"static_argnames": 3}, {"donate_argnames": (0,)}]
)
def test_parameters_are_named_by_integers_and_strings(wrong):
    with pytest.raises(StaticArgumentError, match="are of other types"):
        nx.jit(lambda x: x, **wrong)
    assert nx.jit(lambda n: n + 1, static_argnums=np.int64(0))(2) == 3


def test_what_a_users_function_raises_passes_as_it_is():
    def wrong(x):
        return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        nx.make_jaxpr(wrong)(1.0)
    with pytest.raises(KeyError, match="missing"):
        nx.profile(wrong)(nx.ones(3))


def test_a_command_has_no_line_of_the_user(tmp_path):
    script = tmp_path / "nxjax"
    script.write_text("import sys\nfrom nxjax.__main__ import main\nsys.exit(main())\n")
    here = {**os.environ, "PYTHONPATH": str(Path(nx.__file__).parents[1])}
    (tmp_path / "file").touch()
    for arguments in (
        ["generate", str(tmp_path / "none"), "hi"],
        ["power", "nonsense"],
        ["fuzz", "--seconds", "0"],
        ["fuzz", "--what", "nonsense"],
        ["fuzz", "--out", str(tmp_path / "file")],
    ):
        run = subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True, check=False, env=here
        )
        assert run.returncode
        assert "nxjax explain " in run.stderr + run.stdout
        assert "at:" not in run.stderr + run.stdout


@pytest.mark.parametrize(
    "call",
    [
        lambda: nx.testing.fuzz(seconds=-1),
        lambda: nx.testing.fuzz(what="nonsense"),
        lambda: nx.testing.check_grads(lambda x: x, ("no",)),
        lambda: nx.testing.check_batch(3, (jnp.ones(2),)),
        lambda: importlib.import_module("nxjax.demo.parallel.model").blocks({"w": 1.0}, jnp.ones(2)),
        lambda: importlib.import_module("nxjax.demo.parallel.ways").mesh_of("data", None, "none"),
    ],
    ids=["fuzz", "targets", "check_grads", "check_batch", "blocks", "mesh_of"],
)
def test_functions_that_are_written_as_a_users_name_the_users_line(call):
    """Tests' and demos' own lines count as a program's, but not for what they were given."""
    with pytest.raises(errors.NxError) as caught:
        call()
    assert caught.value.source.file == __file__
