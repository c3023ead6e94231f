"""Functions over a mesh, written once for JAX and for nxjax, and what runs them. As a script: what JAX gives, a file.

Each case takes a library (`jax` or `nxjax`) and gives a function and its arguments. Values, gradients and second
derivatives of the two libraries are compared on eight CPU devices.
"""

import json
import os
import sys
from types import SimpleNamespace

import numpy as np

rng = np.random.default_rng(0)
A = rng.normal(size=(8, 16)).astype(np.float32)
B = rng.normal(size=(16, 4)).astype(np.float32)
V = rng.normal(size=(16,)).astype(np.float32)
S = np.float32(0.7)
CASES = {}


def case(ins, outs, *args, **options):
    def add(body):
        CASES[body.__name__] = (body, ins, outs, args, options)
        return body

    return add


def both(ins, outs, *args, **options):
    """With and without the check: their gradients come about in different ways."""

    def add(body):
        CASES[body.__name__] = (body, ins, outs, args, options)
        CASES[body.__name__ + " unchecked"] = (body, ins, outs, args, {**options, "check_vma": False})
        return body

    return add


@both([("x", "y"), ("y",)], [("x",)], A, B)
def contracted(l, a, b):
    return l.lax.psum(a @ b, "y")


@both([("x", "y")], [()], A)
def total(l, a):
    return l.lax.psum((a**2).sum(), ("x", "y"))


@both([("x",), ()], [()], A, S)
def shared_scalar(l, a, s):
    return l.lax.pmean((a * s).sum(), "x")


@both([(("x", "y"),), ()], [(("x", "y"),)], A, V)
def shared_vector_kept(l, a, v):
    return l.np.sin(a * v)


@both([("x",)], [()], A)
def normalized(l, a):
    return l.lax.pmean(a / l.lax.psum((a**2).sum(), "x"), "x")


@case([("x",)], [()], A)
def extrema(l, a):
    return l.lax.pmax(a.max(), "x") - l.lax.pmin(a.min(), "x")


@both([("y",)], [("y",)], A)
def gathered(l, a):
    return (l.lax.all_gather(a, "y") * l.np.arange(4.0)[:, None, None]).sum(0)


@both([("y",)], [("y",)], A)
def gathered_tiled(l, a):
    whole = l.lax.all_gather(a, "y", axis=1, tiled=True)
    return l.np.tanh(whole[:, :16]) * whole[:, 16:32]


@both([(None, ("x", "y"))], [("x", "y")], A)
def gathered_over_two(l, a):
    whole = l.lax.all_gather(a, ("x", "y"), axis=1, tiled=True)
    i = l.lax.axis_index("x") * 4 + l.lax.axis_index("y")
    return l.np.sin(whole[:1, :4]) * (1.0 + i)


@both([("x",)], [("x", "y")], A)
def scattered(l, a):
    return l.lax.psum_scatter(l.np.sin(a), "y", scatter_dimension=1, tiled=True)


@both([(None, "y")], [("y",)], A[:4])
def scattered_whole(l, a):
    return l.lax.psum_scatter(a * a, "y", scatter_dimension=0)[None]


@both([("y",)], [(None, "y")], A)
def exchanged(l, a):
    return l.lax.all_to_all(a, "y", 1, 0, tiled=True) ** 2


@both([(None, "y")], [("y",)], A[:4])
def exchanged_whole(l, a):
    return l.lax.all_to_all(a, "y", 0, 0) * a


@both([(None, "y")], [("y",)], A[:4])
def exchanged_moved(l, a):
    return l.lax.all_to_all(a, "y", 0, 1)


@both([("y",)], [("y",)], A)
def permuted(l, a):
    return l.lax.ppermute(a, "y", [(i, (i + 1) % 4) for i in range(4)]) * a


@both([("y",)], [("y",)], A)
def permuted_partly(l, a):
    return l.lax.ppermute(a * a, "y", [(0, 2), (3, 1)])


@both([("y",)], [("y",)], A)
def shuffled(l, a):
    return l.lax.pshuffle(a, "y", [2, 0, 3, 1])


@both([("x",)], [("x", "y")], A)
def indexed(l, a):
    i = l.lax.axis_index("y")
    return l.lax.dynamic_slice_in_dim(a, i * 4, 4, 1) * (i + 1)


@both([("x",), ()], [("x",)], A, V)
def a_loop_of_sums(l, a, v):
    def step(c, w):
        return l.np.tanh(c @ a.T * 0.1) @ a * w + c, c.sum()

    c, ys = l.lax.scan(step, a[0], v[:3])
    return (c + ys.sum())[None]


@both([("x",), ()], [()], A, V)
def a_loop_with_collectives(l, a, v):
    def step(c, w):
        return l.lax.pmean(l.np.sin(c * a.sum(0) * w), "x"), None

    return l.lax.scan(step, v, v[:3])[0]


@both([("x",), ()], [("x",)], A, S)
def branches(l, a, s):
    return l.lax.cond(s > 0, lambda z: z * s, lambda z: l.np.sin(z), a)


@case([("x",), ()], [("x",)], A, S)
def branches_of_places(l, a, s):
    i = l.lax.axis_index("x")
    return l.lax.cond(i > 0, lambda z: z * s, lambda z: l.np.sin(z) + s, a)


@both([("x",), ()], [("x",)], A, S)
def a_jit_inside(l, a, s):
    return l.jit(lambda z, t: l.np.sin(z * t) + l.lax.psum(z.sum() * t, "x"))(a, s)


@both([("x",), ()], [("x",)], A, S)
def recomputed(l, a, s):
    return l.checkpoint(lambda z: l.np.sin(l.np.sin(z * s)) * l.lax.psum(z.sum(), "x"))(a)


@case([("x",), ()], [()], A, V)
def gradient_inside(l, a, v):
    # The parameter is shared: its gradient is already summed over the devices.
    return l.grad(lambda w: (l.np.tanh(a @ w) ** 2).sum())(v)


@case([("x",), ()], [()], A, V)
def gradient_inside_of_a_mean(l, a, v):
    return l.lax.pmean(l.grad(lambda w: (l.np.tanh(a @ w) ** 2).sum())(v), "x")


@case([("x",), ()], [()], A, V)
def gradient_inside_through_a_sum(l, a, v):
    return l.grad(lambda w: l.lax.psum((l.np.tanh(a @ w) ** 2).sum(), "x"))(v)


@case([("x",), ()], [()], A, V)
def gradient_inside_of_an_offset(l, a, v):
    # No factor of the derivative varies, but the loss does.
    return l.grad(lambda w: (a + w).sum())(v)


@case([("x",), ()], [("x",)], A, V, check_vma=False)
def gradient_inside_unchecked(l, a, v):
    return l.grad(lambda w: (l.np.tanh(a @ w) ** 2).sum())(v)[None]


@case([("x",), ()], [("x",)], A, V, check_vma=False)
def gradient_inside_unchecked_through_a_sum(l, a, v):
    return l.grad(lambda w: l.lax.psum((l.np.tanh(a @ w) ** 2).sum(), "x"))(v)[None]


@case([("x",), ()], [()], A, V)
def training_inside(l, a, v):
    def step(w, _):
        loss, g = l.value_and_grad(lambda w: l.lax.pmean(((a @ w) ** 2).mean(), "x"))(w)
        return w - 0.1 * g, loss

    w, losses = l.lax.scan(step, v, None, length=3)
    return w * losses.sum()


@case([("x",), ()], [()], A, V)
def training_inside_on_own_losses(l, a, v):
    def step(w, _):
        g = l.grad(lambda w: ((a @ w) ** 2).mean())(w)
        return w - 0.1 * g / l.lax.axis_size("x"), None

    return l.lax.scan(step, v, None, length=3)[0]


@case([("x",), ()], [("x",)], A, V)
def forward_mode_inside(l, a, v):
    return l.jvp(lambda w: l.np.tanh(a * w) * l.lax.psum((a @ w).sum(), "x"), (v,), (v * 2,))[1]


@both([("x",), ()], [("x",)], A, V)
def batched_inside(l, a, v):
    return l.vmap(lambda row: row * l.lax.psum(row.sum() * v[0], "x"))(a)


@both([("x",), ()], [("x",)], A, V)
def own_derivative(l, a, v):
    @l.custom_jvp
    def f(z):
        return l.np.sin(z)

    f.defjvp(lambda p, t: (f(p[0]), 2.0 * l.np.cos(p[0]) * t[0]))
    return f(a * v)


@both([("x",), ()], [()], A, V)
def own_derivative_with_collectives(l, a, v):
    @l.custom_vjp
    def f(z):
        return l.lax.psum(z, "x")

    def bwd(n, ct):
        return (ct * (n + l.lax.axis_index("x") + 3.0),)

    f.defvjp(lambda z: (l.lax.psum(z, "x"), l.lax.axis_index("x")), bwd)
    return f(a * v)


@both([("x",), ()], [()], A, V)
def own_tangent_with_collectives(l, a, v):
    @l.custom_jvp
    def f(z):
        return l.lax.psum(l.np.sin(z), "x")

    f.defjvp(lambda p, t: (f(p[0]), l.lax.psum(l.np.cos(p[0]) * t[0], "x")))
    return f(a * v)


@both([("x", "y"), ("x",), ()], [()], A, B[:8], S)
def shared_over_different_axes(l, a, b, s):
    # The scalar's cotangent comes in three parts: of both axes, of one, and of none.
    return l.lax.psum((a * s).sum(), ("x", "y")) + l.lax.psum((b * s * s).sum(), "x") + s**3


@case([("x",), ()], [("x",)], A, S)
def a_loop_that_starts_shared(l, a, s):
    start = l.lax.pcast(s, "x", to="varying")
    return l.lax.fori_loop(0, 3, lambda i, c: l.np.sin(c + a.sum() * 0.1) * s, start)[None]


@case([("x",), ()], [("x",)], A, S)
def a_loop_of_own_length(l, a, s):
    n = l.lax.axis_index("x") + 2
    return l.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2.0), (0, s))[1][None]


@case([("x",), ()], [("x",)], A, S)
def one_branch_varies(l, a, s):
    return l.lax.cond(s > 0, lambda z: a.sum() * z, lambda z: l.lax.pcast(z * z, "x", to="varying"), s)[None]


@case([("x",), ()], [("x",)], A, S)
def one_branch_varies_and_bends(l, a, s):
    return l.lax.cond(s > 0, lambda z: a.sum() * z * z, lambda z: l.lax.pcast(z * z, "x", to="varying"), s)[None]


@both([("x",), ()], [()], A, S)
def both_branches_shared(l, a, s):
    return l.lax.cond(s > 0, lambda z: l.lax.psum(a.sum(), "x") * z, lambda z: z * z, s)


@both([("x",)], [("x",)], A)
def a_constant_result(l, a):
    return l.np.ones(2) * 3.0 + 0 * a[0, 0]


@both([(None, "x")], [("x",)], A)
def random_bits_of_places(l, a):
    key = l.random.fold_in(l.random.key(3), l.lax.axis_index("x"))
    return l.random.normal(key, (4,)) * a[0, 0]


@case([("y",)], [("y",)], A, check_vma=False)
def groups(l, a):
    g = [[0, 2], [1, 3]]
    kinds = (
        l.lax.psum(a, "y", axis_index_groups=g),
        l.lax.pmax(a, "y", axis_index_groups=g),
        l.lax.all_gather(a, "y", axis_index_groups=g).sum(0),
        l.lax.psum_scatter(a, "y", axis_index_groups=g, tiled=True).repeat(2, 0),
        l.lax.all_to_all(a, "y", 0, 0, axis_index_groups=g, tiled=True),
    )
    return sum(k * i for i, k in enumerate(kinds, 1))


@case([("x",), ()], [("x",)], A, V)
def own_pullback(l, a, v):
    @l.custom_vjp
    def f(z):
        return l.np.sin(z)

    f.defvjp(lambda z: (f(z), z), lambda z, ct: (3.0 * l.np.cos(z) * ct,))
    return f(a * v)


@both([("x",), ()], [("x",)], A, V, axis_names=("x",))
def one_axis_of_two(l, a, v):
    return l.np.tanh(a * v) * l.lax.psum(a.sum(), "x") + l.lax.axis_index("x")


def tree_specs(l):
    P = l.P
    a = ({"w": A, "b": V[:8]}, B)
    specs = ({"w": P("x"), "b": P("x")}, P("y"))

    def body(p, b):
        return {"h": (p["w"].sum(1) + p["b"])[:, None] * b.sum(1)[None]}, l.lax.psum(b.sum(), "y")

    return l.shard_map(body, mesh=l.mesh, in_specs=specs, out_specs=({"h": P("x", "y")}, P())), a


def built(l, name):
    """The function of a case in one library, and its arguments."""
    if name == "trees":
        return tree_specs(l)
    body, ins, outs, args, options = CASES[name]
    options = dict(options)
    if "axis_names" in options:
        options["axis_names"] = set(options["axis_names"])
    specs = tuple(l.P(*s) for s in ins)
    out = tuple(l.P(*s) for s in outs)
    f = l.shard_map(
        lambda *xs: body(l, *xs), mesh=l.mesh, in_specs=specs, out_specs=out[0] if len(out) == 1 else out, **options
    )
    return f, args


def derived(l, f):
    """First and second derivatives of a scalar of all results."""

    def scalar(*args):
        leaves = l.leaves(f(*args))
        return sum(
            (l.np.sin(y) * l.np.cos(l.np.arange(y.size, dtype=np.float32)).reshape(y.shape)).sum() for y in leaves
        )

    def squares(*args):
        return sum((g**2).sum() for g in l.leaves(first(*args)))

    n = len
    first = lambda *args: l.grad(scalar, tuple(range(n(args))))(*args)
    second = lambda *args: l.grad(squares, tuple(range(n(args))))(*args)
    return first, second


def results(l, name):
    """Value, gradient and second derivative, as far as the case has them, of one compiled function."""
    f, args = built(l, name)
    g, h = derived(l, f)
    runs = {"value": f}
    if name not in ONCE:
        runs["gradient"] = g
    if name in TWICE:
        runs["second"] = h
    found = l.jit(lambda *xs: {k: r(*xs) for k, r in runs.items()})(*args)
    return {k: [np.asarray(y) for y in l.leaves(y)] for k, y in found.items()}


def saved(file):
    """Results by case, as the script wrote them."""
    found = {}
    with np.load(file) as arrays:
        for key in arrays:
            name, kind, _ = json.loads(key)
            found.setdefault(name, {}).setdefault(kind, []).append(arrays[key])
    return found


def difference(ours, theirs):
    worst = ""
    for kind, expected in theirs.items():
        for i, (x, y) in enumerate(zip(ours[kind], expected, strict=True)):
            if x.shape != y.shape or x.dtype != y.dtype:
                return f"{kind} {i}: {x.dtype}{x.shape} for {y.dtype}{y.shape}"
            scale = max(1.0, float(np.abs(y).max()) if y.size else 1.0)
            if not np.allclose(x, y, rtol=2e-5, atol=2e-5 * scale):
                worst = worst or f"{kind} {i}: off by {np.abs(x - y).max():.3g} of {scale:.3g}"
    return worst


WORDS = [
    "grad",
    "jit",
    "vmap",
    "jvp",
    "value_and_grad",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "lax",
    "random",
    "shard_map",
]


def library(lib, mesh):
    """What the cases need of `jax` or `nxjax`."""
    l = SimpleNamespace(**{n: getattr(lib, n) for n in WORDS}, np=lib.numpy, P=lib.sharding.PartitionSpec, mesh=mesh)
    l.leaves = lib.tree_util.tree_leaves
    return l


NAMES = [*CASES, "trees"]
# JAX has no derivative of these: none written, or one that fails.
ONCE = {"extrema", "groups", "a_loop_of_own_length", "exchanged_moved", "exchanged_moved unchecked"}
TWICE = {
    "contracted", "shared_scalar", "shared_scalar unchecked", "normalized", "gathered_tiled", "scattered", "branches",
    "a_loop_with_collectives", "shared_over_different_axes", "training_inside", "own_derivative", "one_axis_of_two",
    "one_branch_varies_and_bends",
}  # fmt: skip

if __name__ == "__main__":
    # JAX's results of the cases named, as one file.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy

    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")).reshape(2, 4), ("x", "y"))
    l = library(jax, mesh)
    file, *names = sys.argv[1:]
    found = {(name, kind, i): y for name in names for kind, ys in results(l, name).items() for i, y in enumerate(ys)}
    np.savez_compressed(file, **{json.dumps(key): y for key, y in found.items()})
