"""What each of several devices computes, read as shard_map: values and gradients on one device and on eight."""

import jax
import jax.export
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import LoweringError
from nxjax.interop import from_stablehlo
from nxjax.sharding import AbstractMesh
from nxjax.sharding import PartitionSpec as P

R = np.random.default_rng(0)
A = R.normal(size=(8, 8)).astype(np.float32)
B = R.normal(size=(4, 3)).astype(np.float32)
MESH = (4, 2), ("x", "y")


def collectives(lib):
    lax = lib.lax

    def body(a, b):
        g = lax.all_gather(b, "x", tiled=True)
        return (
            lax.psum(a, "y") + lax.pmax(a, ("x", "y")).sum() + lax.pmin(a, ("y", "x")).sum() + lax.axis_index("x"),
            g.sum() + lax.psum_scatter(g, "x", tiled=True) + lax.all_gather(b, "x")[0],
            lax.ppermute(a, "x", [(0, 1), (1, 2), (2, 3)]) + lax.axis_index(("x", "y")),
            lax.all_to_all(a, "y", 1, 0, tiled=True),
            lax.fori_loop(0, 3, lambda i, c: c * 2 + lax.psum(c, "y"), a),
            lax.psum(a, "x", axis_index_groups=[[0, 1], [2, 3]]),
            lax.all_gather(a, ("y", "x"), tiled=True)[:2] * lax.psum(1, "x"),
        )

    p = lib.sharding.PartitionSpec
    cut = p("x", "y")
    return body, (cut, p("x")), (p("x", None), p("x"), cut, cut, cut, cut, p("x"))


def ours(mesh):
    body, ins, outs = collectives(nx)
    return nx.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)


def of_jax():
    body, ins, outs = collectives(jax)
    mesh = jax.sharding.AbstractMesh(*MESH)
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))
    return jax.export.export(f)(A, B).serialize()


def near(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module", params=["jax", "nxjax"])
def exported(request):
    if request.param == "jax":
        return nx.export.deserialize(of_jax())
    return nx.export.export(nx.jit(ours(AbstractMesh(*MESH))))(A, B)


def test_collectives_mean_what_they_said(exported):
    expected = ours(AbstractMesh(*MESH))(A, B)
    f = from_stablehlo(exported.mlir_module_serialized, trusted=True)
    near(f(A, B), expected)
    near(exported.call(A, B), expected)
    near([y[0] for y in nx.vmap(exported.call)(A[None], B[None])], expected)
    mesh = nx.make_mesh(*MESH)
    placed = nx.device_put(A, nx.NamedSharding(mesh, P("x", "y"))), nx.device_put(B, nx.NamedSharding(mesh, P("x")))
    for g in (nx.jit(f), nx.jit(exported.call)):
        found = g(*placed)
        near(found, expected)
        assert found[2].sharding.shard_shape((8, 8)) == (2, 4)


def test_gradients():
    def body(a, b):
        return nx.lax.psum(jnp.sin(a) @ nx.lax.all_gather(b, "x", tiled=True), "x") + nx.lax.ppermute(
            b, "x", [(0, 1), (1, 0), (2, 3), (3, 2)]
        )

    g = nx.shard_map(body, mesh=AbstractMesh(*MESH), in_specs=(P("x", None), P("x")), out_specs=P("x"))
    a, b = A[:4, :4], B
    f = from_stablehlo(nx.export.export(nx.jit(g))(a, b).mlir_module_serialized, trusted=True)
    near(
        nx.grad(lambda a, b: (f(a, b) ** 2).sum(), argnums=(0, 1))(a, b),
        nx.grad(lambda a, b: (g(a, b) ** 2).sum(), argnums=(0, 1))(a, b),
    )


def test_axes_that_the_compiler_handles_stay_its():
    g = nx.shard_map(
        lambda a: nx.lax.psum(a, "x") * 2,
        mesh=AbstractMesh(*MESH), in_specs=P("x"), out_specs=P(), axis_names={"x"}, check_vma=False,
    )  # fmt: skip
    f = from_stablehlo(nx.export.export(nx.jit(g))(A).mlir_module_serialized, trusted=True)
    near([f(A)], [g(A)])
    assert f.program.equations[-1].params["manual_axes"] == ("x",)


def test_groups_that_are_no_axes_are_refused():
    text = """
    module {
      sdy.mesh @mesh = <["x"=4]>
      func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>]
             manual_axes={"x"} (%b: tensor<1xf32>) {
          %1 = "stablehlo.all_reduce"(%b) <{replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>}> ({
          ^bb0(%c: tensor<f32>, %d: tensor<f32>):
            %2 = stablehlo.multiply %c, %d : tensor<f32>
            stablehlo.return %2 : tensor<f32>
          }) : (tensor<1xf32>) -> tensor<1xf32>
          sdy.return %1 : tensor<1xf32>
        } : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    with pytest.raises(LoweringError, match="only sums"):
        from_stablehlo(text, trusted=True)
    crossed = text.replace('"x"=4', '"x"=2, "y"=2').replace('{"x"}', '{"x", "y"}')
    crossed = crossed.replace("[[0, 1, 2], [3, -1, -1]]> : tensor<2x3", "[[0, 3], [1, 2]]> : tensor<2x2")
    with pytest.raises(LoweringError, match="do not lie along axes"):
        from_stablehlo(crossed, trusted=True)
    f = from_stablehlo(text.replace("multiply", "add"), trusted=True)
    assert f(np.arange(1.0, 5.0, dtype=np.float32)).tolist() == [6.0, 6.0, 6.0, 4.0]


def test_outside_of_a_manual_computation_there_is_no_mesh():
    text = """
    func.func public @main() -> tensor<ui32> {
      %0 = stablehlo.partition_id : tensor<ui32>
      return %0 : tensor<ui32>
    }"""
    with pytest.raises(LoweringError, match="several devices at once"):
        from_stablehlo(text, trusted=True)
