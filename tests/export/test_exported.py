"""Exported functions: both directions between nxjax and JAX, derivatives, transforms, and errors that teach."""

import collections
import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax import export
from nxjax.errors import GradientError, LoweringError, ParameterError, ShapeError, TreeError
from nxjax.export import format as fb
from nxjax.trace.types import ArrayType

Point = collections.namedtuple("Point", "x y")
export.register_namedtuple_serialization(Point, serialized_name="tests.export.Point")
jax.export.register_namedtuple_serialization(Point, serialized_name="tests.export.Point")

R = np.random.default_rng(0)
W = R.standard_normal((3, 4)).astype(np.float32)
X = R.standard_normal((2, 3)).astype(np.float32)


def network(n):
    def apply(params, x, *, scale=1.0):
        hidden = n.tanh(x @ params["w"]) + params["b"]
        return {"y": hidden * scale, "none": None, "t": (x.sum(), [x.astype(n.int32)]), "p": Point(hidden[0], x)}

    return apply


ARGS = ({"w": W, "b": np.ones(4, np.float32)}, X)
FUNCTIONS = {
    "network": (network, ARGS),
    "no arguments": (lambda n: lambda: n.arange(3), ()),
    "no results": (lambda n: lambda x: (), (X,)),
    "unused argument": (lambda n: lambda x, y: y * 2, (X, W)),
    "loops": (lambda n: lambda x: _loop(n, x), (X,)),
    "special functions": (lambda n: lambda x: n.arccosh(n.abs(x) + 1.5) + n.sinh(x), (X,)),
    "sort and scatter": (lambda n: lambda x: n.sort(x, axis=0).at[0].add(n.argsort(x[0])), (X,)),
    "fft": (lambda n: lambda x: n.fft.fft(x), (X,)),
    "complex": (lambda n: lambda x: (x * 1j).real, (X.astype(np.complex64),)),
    "bfloat16": (lambda n: lambda x: x * 2 + 1, (jnp.bfloat16(1.5),)),
    "bool and int8": (lambda n: lambda b, i: n.where(b, i, -i), (np.array([True, False]), np.array([3, 4], np.int8))),
    "cholesky": (lambda n: lambda x: n.linalg.cholesky(x @ x.T + n.eye(2)), (X,)),
    "qr": (lambda n: lambda x: n.abs(n.linalg.qr(x)[1]), (X,)),
}


def _loop(n, x):
    lax = nx.lax if n is nx.numpy else jax.lax
    return lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), lax.scan(lambda c, r: (c + r, c), x[0], x)


def same(ours, theirs, tolerance=2e-6):
    ours, ours_def = nx.tree.flatten(ours)
    theirs, theirs_def = nx.tree.flatten(theirs)
    assert ours_def == theirs_def
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), tolerance, tolerance)


CASES = [(name, ("cpu",)) for name in FUNCTIONS]
CASES += [(name, ("tpu", "cuda", "cpu")) for name in ("network", "unused argument", "loops", "cholesky")]


@pytest.mark.parametrize(("name", "platforms"), CASES)
def test_jax_calls_what_nxjax_exports(name, platforms):
    make, args = FUNCTIONS[name]
    exported = export.export(nx.jit(make(nx.numpy)), platforms=platforms)(*args)
    loaded = jax.export.deserialize(exported.serialize())
    assert loaded.platforms == platforms
    assert loaded.fun_name == exported.fun_name
    wanted = make(jnp)(*args)
    same(jax.jit(loaded.call)(*args), wanted)
    same(exported.call(*args), wanted)
    same(export.deserialize(exported.serialize()).call(*args), wanted)


@pytest.mark.parametrize(("name", "platforms"), CASES)
def test_nxjax_calls_what_jax_exports(name, platforms):
    make, args = FUNCTIONS[name]
    theirs = jax.export.export(jax.jit(make(jnp)), platforms=platforms)(*args)
    loaded = export.deserialize(theirs.serialize())
    assert loaded.platforms == platforms
    assert [(a.shape, a.dtype) for a in loaded.in_avals] == [(a.shape, a.dtype) for a in theirs.in_avals]
    wanted = make(jnp)(*args)
    same(loaded.call(*args), wanted)
    same(nx.jit(lambda *xs: loaded.call(*xs))(*args), wanted)


def test_keyword_arguments():
    exported = export.export(nx.jit(network(nx.numpy)))(*ARGS, scale=np.float32(3))
    wanted = network(jnp)(*ARGS, scale=np.float32(3))
    same(jax.export.deserialize(exported.serialize()).call(*ARGS, scale=np.float32(3)), wanted)
    same(exported.call(*ARGS, scale=np.float32(3)), wanted)


def loss(n):
    def total(params, x, count):
        y = n.tanh(x @ params["w"]) * params["b"]
        return (y**2).sum() + count.astype(n.float32), count + 1

    return total


def test_derivatives_of_what_nxjax_exports_in_jax():
    args = (*ARGS, np.int32(2))
    exported = export.export(nx.jit(loss(nx.numpy)))(*args)
    assert exported.has_vjp()
    loaded = jax.export.deserialize(exported.serialize(vjp_order=2))
    grad = jax.grad(lambda p, f: f(p, *args[1:])[0])
    same(grad(ARGS[0], loaded.call), grad(ARGS[0], loss(jnp)))
    twice = lambda f: jax.grad(lambda x: jax.grad(lambda x: f(ARGS[0], x, args[2])[0])(x).sum())(X)
    same(twice(loaded.call), twice(loss(jnp)), 1e-5)
    vjp = exported.vjp()
    assert vjp.in_avals[-1].dtype == nx.float0 and vjp.out_avals[-1].dtype == nx.float0
    assert vjp.vjp().has_vjp()


def test_derivatives_of_what_jax_exports_in_nxjax():
    args = (*ARGS, np.int32(2))
    theirs = jax.export.export(jax.jit(loss(jnp)))(*args)
    loaded = export.deserialize(theirs.serialize(vjp_order=2))
    wanted = jax.grad(lambda p: loss(jnp)(p, *args[1:])[0])(ARGS[0])
    same(nx.grad(lambda p: loaded.call(p, *args[1:])[0])(ARGS[0]), wanted)
    same(nx.jit(nx.grad(lambda p: loaded.call(p, *args[1:])[0]))(ARGS[0]), wanted)
    ours = nx.grad(lambda x: nx.grad(lambda x: loaded.call(ARGS[0], x, args[2])[0])(x).sum())(X)
    same(ours, jax.grad(lambda x: jax.grad(lambda x: loss(jnp)(ARGS[0], x, args[2])[0])(x).sum())(X), 1e-5)


def test_a_users_own_derivative_goes_with_the_file():
    @nx.custom_vjp
    def ours(x):
        return x * 1.0

    ours.defvjp(lambda x: (x, x), lambda x, ct: (ct * 10.0 * x,))

    @jax.custom_vjp
    def theirs(x):
        return x * 1.0

    theirs.defvjp(lambda x: (x, x), lambda x, ct: (ct * 10.0 * x,))
    blob = export.export(nx.jit(ours))(np.float32(2)).serialize(vjp_order=1)
    assert float(jax.grad(jax.export.deserialize(blob).call)(np.float32(2))) == 20
    blob = jax.export.export(jax.jit(theirs))(np.float32(2)).serialize(vjp_order=1)
    assert float(nx.grad(export.deserialize(blob).call)(np.float32(2))) == 20


def test_a_file_without_derivatives_says_how_to_write_them():
    exported = export.export(nx.jit(loss(nx.numpy)))(*ARGS, np.int32(1))
    loaded = export.deserialize(exported.serialize())
    assert not loaded.has_vjp()
    with pytest.raises(GradientError, match="vjp_order=1"):
        nx.grad(lambda p: loaded.call(p, X, np.int32(1))[0])(ARGS[0])
    with pytest.raises(GradientError, match="no derivative to write"):
        loaded.serialize(vjp_order=1)
    with pytest.raises(GradientError):
        export.deserialize(exported.serialize(vjp_order=1)).serialize(vjp_order=2)


def test_vmap_of_a_call():
    loaded = export.deserialize(jax.export.export(jax.jit(network(jnp)))(*ARGS).serialize())
    xs = np.stack([X, X * 2, -X])
    ours = nx.vmap(loaded.call, in_axes=(None, 0))(ARGS[0], xs)
    same(ours["y"], jax.vmap(network(jnp), in_axes=(None, 0))(ARGS[0], xs)["y"])
    ours = nx.jit(nx.vmap(loaded.call, in_axes=(None, 2)))(ARGS[0], np.moveaxis(xs, 0, 2))
    same(ours["y"], jax.vmap(network(jnp), in_axes=(None, 0))(ARGS[0], xs)["y"])


def test_gradients_for_each_of_a_batch():
    theirs = jax.export.export(jax.jit(loss(jnp)))(*ARGS, np.int32(2))
    loaded = export.deserialize(theirs.serialize(vjp_order=1))
    xs = np.stack([X, X * 2])
    ours = nx.vmap(nx.grad(lambda x: loaded.call(ARGS[0], x, np.int32(2))[0]))(xs)
    same(ours, jax.vmap(jax.grad(lambda x: loss(jnp)(ARGS[0], x, np.int32(2))[0]))(xs))


def test_calls_inside_exported_functions():
    inner = export.deserialize(jax.export.export(jax.jit(lambda x: jnp.sin(x) * 2))(X).serialize())
    outer = export.export(nx.jit(lambda x: inner.call(x) + inner.call(x * 2)))(X)
    same(outer.call(X), np.sin(X) * 2 + np.sin(2 * X) * 2)
    same(jax.export.deserialize(outer.serialize()).call(X), np.sin(X) * 2 + np.sin(2 * X) * 2)
    again = jax.export.export(jax.jit(jax.export.deserialize(outer.serialize()).call))(X)
    same(export.deserialize(again.serialize()).call(X), np.sin(X) * 2 + np.sin(2 * X) * 2)


def test_keys_of_random_numbers():
    ours = export.export(nx.jit(lambda k: (nx.random.split(k, 3), nx.random.normal(k, (4,)))))(nx.random.key(0))
    loaded = jax.export.deserialize(ours.serialize())
    keys, values = loaded.call(jax.random.key(7))
    wanted = jax.random.split(jax.random.key(7), 3)
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(wanted))
    same(values, jax.random.normal(jax.random.key(7), (4,)))
    theirs = jax.export.export(jax.jit(lambda k: jax.random.split(k[0], 3)))(jax.random.split(jax.random.key(0), 2))
    loaded = export.deserialize(theirs.serialize())
    assert loaded.in_avals[0].shape == (2,)
    found = loaded.call(nx.random.split(nx.random.key(1), 2))
    wanted = jax.random.split(jax.random.split(jax.random.key(1), 2)[0], 3)
    np.testing.assert_array_equal(nx.random.key_data(found), jax.random.key_data(wanted))


def test_symbolic_shapes_of_jax_are_read():
    b, n = jax.export.symbolic_shape("b, n")
    theirs = jax.export.export(jax.jit(lambda x: jnp.concatenate([x, x]) * x.shape[0]))(
        jax.ShapeDtypeStruct((b, n), np.float32)
    )
    loaded = export.deserialize(theirs.serialize(vjp_order=1))
    assert loaded.in_avals[0].shape == ("b", "n") and loaded.out_avals[0].shape == ("2*b", "n")
    assert export.is_symbolic_dim(loaded.in_avals[0].shape[0])
    for shape in ((2, 3), (5, 1)):
        x = R.standard_normal(shape).astype(np.float32)
        same(loaded.call(x), np.concatenate([x, x]) * np.float32(shape[0]))
        assert nx.eval_shape(loaded.call, x).shape == (2 * shape[0], shape[1])
        same(nx.grad(lambda x: loaded.call(x).sum())(x), np.full(shape, 2.0 * shape[0], np.float32))
    same(jax.export.deserialize(loaded.serialize()).call(X), np.concatenate([X, X]) * np.float32(2))


def test_symbolic_shapes_that_do_not_fit():
    b = jax.export.symbolic_shape("b, b")
    theirs = jax.export.export(jax.jit(lambda x: x.T))(jax.ShapeDtypeStruct(b, np.float32))
    loaded = export.deserialize(theirs.serialize())
    same(loaded.call(np.eye(3, dtype=np.float32)), np.eye(3, dtype=np.float32))
    with pytest.raises(ParameterError, match="dimensions do not fit"):
        loaded.call(X)


def test_symbolic_shapes_are_not_written_and_say_what_to_do():
    assert export.symbolic_shape("2, 3") == (2, 3)
    for refused in (
        lambda: export.symbolic_shape("b, 3"),
        lambda: export.SymbolicScope(),
        lambda: export.symbolic_args_specs(X, "b, _"),
    ):
        with pytest.raises(LoweringError, match=r"nx\.bucketed"):
            refused()


SHARDED = """
import jax, numpy as np, sys
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
place = NamedSharding(mesh, P(("x", "y"), None))
f = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("x"))), in_shardings=place)
sys.stdout.write(jax.export.export(f)(np.ones((4, 3), np.float32)).serialize().hex())
"""


def test_shardings_are_read_and_written_and_one_device_computes_the_whole():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    code = [sys.executable, "-c", SHARDED.replace("import jax,", "import jax, jax.export,")]
    blob = bytes.fromhex(subprocess.run(code, env={**os.environ, **flags}, capture_output=True, text=True).stdout)
    loaded = export.deserialize(blob)
    assert loaded.nr_devices == 4
    (place,) = loaded.in_shardings
    assert place.mesh.shape == {"x": 2, "y": 2} and place.spec == nx.sharding.PartitionSpec(("x", "y"), None)
    x = R.standard_normal((4, 3)).astype(np.float32)
    same(loaded.call(x), x * 2)
    same(nx.vmap(loaded.call)(np.stack([x, -x])), np.stack([x * 2, x * -2]))
    again, theirs = jax.export.deserialize(loaded.serialize()), jax.export.deserialize(blob)
    assert again.nr_devices == 4
    for a, b in zip(again._in_named_shardings, theirs._in_named_shardings, strict=True):
        assert (a.spec, a.mesh.shape, a.memory_kind) == (b.spec, b.mesh.shape, b.memory_kind)
    assert export.deserialize(loaded.serialize()).in_shardings == loaded.in_shardings
    with pytest.raises(ParameterError, match="another mesh"):
        loaded.in_shardings_jax(nx.sharding.AbstractMesh((4,), ("x",)))
    assert loaded.in_shardings_jax(place.mesh) == (place,)


def test_what_it_says_of_itself():
    exported = export.export(nx.jit(network(nx.numpy)), platforms=("cpu", "tpu"))(*ARGS)
    assert exported.fun_name == "apply"
    assert exported.in_avals == tuple(ArrayType(np.shape(x), np.dtype(np.float32)) for x in nx.tree.leaves((ARGS, {})))
    assert exported.in_tree == nx.tree.structure((ARGS, {}))
    assert exported.nr_devices == 1 and exported.calling_convention_version == 10
    assert exported.uses_global_constants and exported.in_shardings == (None,) * 3
    assert exported.disabled_checks == exported.disabled_safety_checks == ()
    assert "stablehlo.tanh" in exported.mlir_module() and "_platform_index" in exported.mlir_module()
    assert "apply" in repr(exported) and "f32[3,4]" in str(exported)
    assert exported.mlir_module_serialized.startswith(b"ML\xefR")
    assert export.default_export_platform() == jax.export.default_export_platform() == "cpu"
    for name in ("minimum", "maximum"):
        attribute = f"{name}_supported_calling_convention_version"
        assert getattr(export, attribute) == getattr(jax.export, attribute)


def test_the_cpu_alone_calls_lapack_and_other_platforms_do_not():
    f = nx.jit(lambda x: nx.linalg.cholesky(x))
    alone, many = (export.export(f, platforms=p)(np.eye(3, dtype=np.float32)) for p in (("cpu",), ("cpu", "cuda")))
    assert "lapack" in alone.mlir_module() and "custom_call" not in many.mlir_module()


def test_arguments_that_were_not_exported_are_named():
    exported = export.export(nx.jit(network(nx.numpy)))(*ARGS)
    with pytest.raises(ShapeError, match=r"\['w'\]") as error:
        exported.call({"w": W[:2], "b": np.ones(4, np.float32)}, X)
    assert "f32[2,4]" in str(error.value) and "f32[3,4]" in str(error.value)
    with pytest.raises(ShapeError, match="and 1 more"):
        exported.call({"w": W.astype(np.float16), "b": np.ones(5, np.float32)}, X)
    with pytest.raises(ValueError, match=r"\['b'\]"):
        exported.call({"w": W}, X)
    with pytest.raises(TreeError, match="positional"):
        exported.call(ARGS[0])
    with pytest.raises(TreeError, match="keyword"):
        exported.call(*ARGS, scale=2.0)


def test_another_platform():
    exported = export.export(nx.jit(lambda x: x), platforms=("tpu",))(X)
    with pytest.raises(ParameterError, match="another platform"):
        exported.call(X)
    anywhere = export.export(
        nx.jit(lambda x: x + 1), platforms=("tpu",), disabled_checks=[export.DisabledSafetyCheck.platform()]
    )(X)
    same(anywhere.call(X), X + 1)
    loaded = jax.export.deserialize(anywhere.serialize())
    assert loaded.disabled_safety_checks == (jax.export.DisabledSafetyCheck.platform(),)
    same(loaded.call(X), X + 1)
    same(export.deserialize(anywhere.serialize()).call(X), X + 1)


def test_wrong_arguments_of_export():
    with pytest.raises(ParameterError, match=r"nx\.jit"):
        export.export(lambda x: x)
    f = nx.jit(lambda x: x)
    for platforms in ((), ("cpu", "cpu"), "cpu", ("gpu",), (3,)):
        with pytest.raises(ParameterError, match=r"platforms|cuda"):
            export.export(f, platforms=platforms)
    with pytest.raises(ParameterError, match="DisabledSafetyCheck"):
        export.export(f, disabled_checks=["platform"])


def test_callbacks_are_refused_with_the_users_line():
    def f(x):
        y = nx.pure_callback(np.sin, nx.ShapeDtypeStruct((2, 3), np.float32), x)
        return nx.lax.cond(x.sum() > 0, lambda y: nx.debug.print("{}", y) or y, lambda y: y, y)

    with pytest.raises(LoweringError, match="pure_callback") as error:
        export.export(nx.jit(f))(X)
    assert "test_exported.py" in str(error.value) and "debug_callback" in str(error.value)


def test_static_arguments_and_closed_over_arrays():
    f = nx.jit(lambda x, n: x * n + nx.asarray(W), static_argnums=1)
    exported = export.export(f)(nx.ShapeDtypeStruct((3, 4), np.float32), 3)
    same(exported.call(W), W * 4)
    same(jax.export.deserialize(exported.serialize()).call(W), W * 4)


def test_python_numbers():
    exported = export.export(nx.jit(lambda x: x * 2))(1.0)
    assert exported.in_avals == (ArrayType((), np.dtype(np.float32)),)
    assert float(exported.call(4.0)) == 8
    assert float(jax.export.deserialize(exported.serialize()).call(4.0)) == 8


def test_arguments_of_64_bits():
    exported = export.export(nx.jit(lambda x, n: x * n))(
        nx.ShapeDtypeStruct((2,), "float64"), nx.array(2, dtype="int64")
    )
    loaded = export.deserialize(exported.serialize())
    for n in (3, np.int64(3)):
        found = loaded.call(np.full(2, 1 / 3), n)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.full(2, 1 / 3) * 3)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.export.deserialize(exported.serialize()).call(np.full(2, 1 / 3), 3), found)
    with pytest.raises(ShapeError, match="another type"):
        loaded.call(np.ones(2), 3.0)


def test_files_written_before_values_were_shared():
    table = fb.read(bytes(jax.export.export(jax.jit(lambda p, x: p["a"] * x))({"a": X}, X).serialize()))
    old = {k: v for k, v in table.items() if not k.endswith("_idxs") and not k.startswith("unique_")}
    loaded = export.deserialize(fb.write(_present({**old, "nr_devices": 0, "nr_devices_short": 1})))
    assert loaded.nr_devices == 1
    same(loaded.call({"a": X}, X), X * X)


def _present(x):
    if isinstance(x, dict):
        return {k: _present(v) for k, v in x.items()}
    return [_present(v) for v in x] if isinstance(x, list) else x


def test_saved_and_loaded(tmp_path):
    exported = export.export(nx.jit(loss(nx.numpy)))(*ARGS, np.int32(0))
    path = tmp_path / "f.nxp"
    export.save(path, exported, vjp_order=1)
    same(export.load(path).call(*ARGS, np.int32(0)), exported.call(*ARGS, np.int32(0)))
    assert jax.export.deserialize(bytearray(path.read_bytes())).has_vjp()
    assert [p.name for p in tmp_path.iterdir()] == ["f.nxp"]

    before = path.read_bytes()
    with pytest.raises(TypeError):
        export.save(path, exported, vjp_order="one")
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([np.float32, np.int32, np.uint8, np.bool_, np.float16, np.complex64]),
)
def test_any_shape_and_dtype(shape, dtype):
    x = (R.standard_normal(shape) * 4).astype(dtype)
    exported = export.export(nx.jit(lambda x: (x, nx.reshape(x, (-1,)))))(x)
    loaded = jax.export.deserialize(exported.serialize())
    assert loaded.in_avals[0].shape == x.shape and loaded.in_avals[0].dtype == x.dtype
    same(loaded.call(x), (x, x.reshape(-1)))
    same(export.deserialize(exported.serialize()).call(x), (x, x.reshape(-1)))


@pytest.mark.parametrize("read", [True, False], ids=["a program of nxjax", "known to XLA alone"])
def test_batches_of_a_module_that_can_be_read_or_not(read, monkeypatch):
    exported = export.export(nx.jit(lambda x, n: (nx.linalg.cholesky(x) + n, n)))(np.eye(3, dtype=np.float32), 1.0)
    loaded = export.deserialize(exported.serialize(vjp_order=1))
    if not read:

        def refuse(*_):
            raise LoweringError("no")

        monkeypatch.setattr(type(loaded.body), "_imported", refuse)
    xs = np.stack([np.eye(3, dtype=np.float32) * n for n in (1, 4, 9)])
    same(nx.vmap(loaded.call, in_axes=(0, None))(xs, 1.0), (np.sqrt(xs) + 1, np.ones(3, np.float32)))
    same(nx.jit(nx.vmap(loaded.call, in_axes=(2, 0)))(np.moveaxis(xs, 0, 2), nx.zeros(3))[0], np.sqrt(xs))
    trace = nx.vmap(nx.grad(lambda x: nx.numpy.trace(loaded.call(x, 0.0)[0])))(xs)
    same(nx.diagonal(trace, axis1=1, axis2=2), 0.5 / np.sqrt(nx.diagonal(xs, axis1=1, axis2=2)))


@pytest.mark.parametrize("name", ["network", "loops", "sort and scatter", "special functions"])
def test_other_executors_read_the_module(name):
    make, args = FUNCTIONS[name]
    loaded = export.deserialize(jax.export.export(jax.jit(make(jnp)))(*args).serialize())
    program = nx.make_jaxpr(loaded.call)(*args)
    with nx.config.using(executor="reference"):
        same(loaded.call(*args), make(jnp)(*args))
    leaves = nx.tree.leaves((args, {}))
    assert "call_exported" in str(program)
    same(list(loaded.body.program(loaded.in_avals)(*map(nx.asarray, leaves))), nx.tree.leaves(make(jnp)(*args)))
