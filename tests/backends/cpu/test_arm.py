"""ARM: every family of kernels becomes its machine code on any machine, and runs where there is one, or QEMU's
(`tools/emulate.py`)."""

import platform
import subprocess
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.native import emitted
from nxjax.backends.cpu.native.loading import _Linked
from nxjax.backends.cpu.native.relocations import PROCESSORS
from nxjax.backends.cpu.native.sync import SYSTEM
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.kernels.cpu.probe import PeakFma, StreamCopy
from nxjax.lower.cpu.lower import lower
from nxjax.quant.packed import packed
from nxjax.testing import assert_close
from tools.emulate import Emulator, default_folder

pytestmark = pytest.mark.unguarded  # what is compiled here runs elsewhere
TRIPLE = "aarch64-unknown-linux-gnu"
PLAIN = ("neon", "fp-armv8")
NEWER = (*PLAIN, "dotprod", "fullfp16", "bf16", "i8mm", "lse")


def floats(*shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


def integers(*shape, dtype="int32", most=100):
    return jnp.asarray(np.random.default_rng(0).integers(0, most, shape).astype(dtype))


def convolution(x, w, groups=1, **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return nx.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups, **options
    )


def every_function(x):
    names = "exp exp2 expm1 log log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh cbrt sqrt"
    ys = [getattr(jnp, name)(x) for name in names.split()]
    more = [nx.lax.erf(x), nx.lax.erfc(x), nx.lax.erf_inv(x), nx.lax.logistic(x), nx.lax.rsqrt(x), x**x, jnp.round(x)]
    return [*ys, *more, jnp.arctan2(x, x), jnp.floor(x), nx.lax.lgamma(x), x % 3, jnp.sign(x)]


def bits(x):
    return [x // 3, x % 7, x << 2, x >> 1, x ^ 5, ~x, nx.lax.population_count(x), nx.lax.clz(x), x * x, -x]


def converted(x):
    kinds = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
    return [x.astype(k) for k in kinds]


def small_algebra(a):
    lu, pivots, _ = nx.lax.linalg.lu(a)
    return jnp.linalg.cholesky(a), lu, pivots, jnp.linalg.qr(a), jnp.linalg.solve(a, a)


def loops(x):
    total, ys = nx.lax.scan(lambda c, v: (jnp.tanh(c + v), c * v), x[0], x)
    return total, ys, nx.lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, total)


def quantized():
    f = lambda w, x: nx.nn.relu(convolution(x, w)).mean((1, 2)) @ floats(32, 8)
    args = floats(3, 3, 16, 32), floats(1, 9, 9, 16)
    return nx.quantize(f, "int8", calibrate=[args], progress=False), args


def blocks(x):
    w, scale = np.asarray(integers(64, 19, most=8)), np.ones((2, 19), np.float32)
    kinds = [packed(nx.QArray(w.astype(d), scale)) for d in ("int8", nx.numpy.int4)]
    return [k.with_layout(activations=a).product(x) for k in kinds for a in ("float32", "int8")]


PROGRAMS = {
    "functions": (every_function, (floats(70),)),
    "functions in float64": (every_function, (floats(70, dtype="float64"),)),
    "functions in bfloat16": (every_function, (floats(70, dtype="bfloat16"),)),
    "functions in float16": (every_function, (floats(70, dtype="float16"),)),
    "integers": (bits, (integers(70),)),
    "bytes": (bits, (integers(70, dtype="int8"),)),
    "long integers": (bits, (integers(70, dtype="uint64"),)),
    "conversions": (converted, (floats(70),)),
    "conversions of integers": (converted, (integers(70),)),
    "conversions of halves": (converted, (floats(70, dtype="bfloat16"),)),
    "complex numbers": (lambda x: [jnp.exp(x * 1j), abs(x + 2j), (x * 1j) @ (x.T + 1j)], (floats(9, 17),)),
    "softmax": (nx.nn.softmax, (floats(9, 70),)),
    "reductions": (lambda x: [x.sum(0), x.sum(1), x.sum(), x.max(0), jnp.argmax(x, 1), x.mean()], (floats(40, 70),)),
    "movement": (
        lambda x: [x.T, x[::-1], jnp.pad(x, 2), jnp.concatenate([x, x], 1), jnp.roll(x, 3)],
        (floats(40, 70),),
    ),
    "movement of bytes": (lambda x: [x.T, x[::2].T], (integers(70, 40, dtype="int8"),)),
    "large copies": (lambda x: x.T, (floats(1500, 1500),)),
    "running sums": (lambda x: [jnp.cumsum(x, 0), jnp.cumsum(x, 1), nx.lax.cummax(x, 1)], (floats(40, 70),)),
    "gathers": (lambda x, i: [x[i], x[i, i], jnp.take(x, i, 1)], (floats(40, 70), integers(9, most=40))),
    "scatters": (lambda x, i: [x.at[i].add(1), x.at[i].set(2), x.at[:, i].max(x[:, i])], (floats(40, 70), integers(9))),
    "sorting": (lambda x: [jnp.sort(x), jnp.argsort(x, 0), nx.lax.top_k(x, 5)], (floats(40, 300),)),
    "sorting integers": (lambda x: [jnp.sort(x), jnp.argsort(x)], (integers(5000),)),
    "random": (lambda k: [nx.random.normal(k, (99,)), nx.random.bits(k, (99,))], (nx.random.key(0),)),
    "products": (lambda x, y: [x @ y, x @ y[:, 0], x[0] @ y, x.T @ x], (floats(70, 90), floats(90, 130))),
    "products of doubles": (lambda x: [x @ x.T, x @ x[0]], (floats(70, 90, dtype="float64"),)),
    "products of halves": (lambda x: [x @ x.T, x @ x[0]], (floats(70, 90, dtype="bfloat16"),)),
    "products of bytes": (
        lambda x: nx.lax.dot_general(x, x.T, (((1,), (0,)), ((), ())), preferred_element_type="int32"),
        (integers(70, 90, dtype="int8"),),
    ),
    "products of blocks of bytes": (blocks, (floats(3, 64),)),
    "products of integers": (lambda x: [x @ x.T, x @ x[0]], (integers(70, 90),)),
    "batched products": (lambda x: nx.nn.relu(x @ x.swapaxes(1, 2) + 1), (floats(5, 30, 20),)),
    "convolutions": (
        lambda x, w, d, v: [convolution(x, w), convolution(x, d, 16), nx.nn.relu(convolution(x, v) + 1)],
        (floats(2, 19, 19, 16), floats(3, 3, 16, 32), floats(3, 3, 1, 16), floats(5, 3, 16, 32)),
    ),
    "gradient of a convolution": (
        nx.grad(lambda w, x: (convolution(x, w) ** 2).sum(), (0, 1)),
        (floats(3, 3, 16, 32), floats(2, 19, 19, 16)),
    ),
    "convolutions of bytes": (
        lambda x, *ws: [convolution(x, w, preferred_element_type=np.dtype("int32")) for w in ws],
        (integers(2, 19, 19, 32, dtype="int8"), *(integers(k, 3, 32, 32, dtype="int8") for k in (3, 5))),
    ),
    "pools": (
        lambda x: [
            nx.lax.reduce_window(x, init, f, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            for init, f in ((-np.inf, nx.lax.max), (0.0, nx.lax.add))
        ],
        (floats(2, 19, 19, 16),),
    ),
    "gradient of a pool": (
        nx.grad(
            lambda x: (nx.lax.reduce_window(x, -np.inf, nx.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()
        ),
        (floats(2, 19, 19, 16),),
    ),
    "linear algebra": (small_algebra, (floats(9, 12, 12) @ floats(12, 12).T + 40 * jnp.eye(12),)),
    "linear algebra of wide matrices": (small_algebra, (floats(70, 70) + 90 * jnp.eye(70),)),
    "loops": (loops, (floats(20, 8),)),
    "quantized": quantized,
}


@pytest.fixture
def arm(monkeypatch, request):
    """The process believes that it runs on a processor of ARM's with some features; gives a way to compile for it."""
    features = request.param
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    monkeypatch.setattr(isa, "host", lambda: ("generic", dict.fromkeys(features, True), TRIPLE))
    isa.named.cache_clear()

    def assembly(text, name="neon"):
        found = isa.named(name)
        target = llvm.Target.from_triple(TRIPLE)
        return target.create_target_machine(cpu=found.cpu, features=found.features, opt=2).emit_assembly(
            llvm.parse_assembly(text)
        )

    yield assembly
    isa.named.cache_clear()


def texts(kernels, name):
    module = LlvmModule()
    for kernel in dict.fromkeys(kernels):
        kernel.emit(module, isa.named(name))
    return module.text


def check(assembly, text, name):
    """The assembly of ``text``; LLVM has no code for what only other processors have."""
    assert "x86" not in text
    code = assembly(text, name)
    assert "ret" in code
    return code


def compiled(assembly, program, name):
    found = PROGRAMS[program]
    f, args = found() if callable(found) else found
    with nx.config.using(cpu_isa=name):
        kernels = [c.kernel for c in lower(nx.jit(f).trace(*args).program).calls()]
        assert kernels
        return check(assembly, texts(kernels, name), name)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_programs_compile(arm, program):
    compiled(arm, program, "neon")


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_code_is_packed(arm, level):
    """The loader knows all that objects ask it for, those of code that is made in a hurry, too."""
    found = isa.named("neon")
    target = llvm.Target.from_triple(TRIPLE)
    machine = target.create_target_machine(
        cpu=found.cpu, features=found.features, opt=level, jit=True, codemodel="jitdefault"
    )
    for program in ("functions", "complex numbers", "products of bytes", "loops"):
        f, args = PROGRAMS[program]
        with nx.config.using(cpu_isa="neon"):
            kernels = [c.kernel for c in lower(nx.jit(f).trace(*args).program).calls()]
        data = machine.emit_object(llvm.parse_assembly(texts(kernels, "neon")))
        linked = _Linked(data, lambda name: 1 << 40, PROCESSORS["aarch64"])
        assert linked.at(1 << 41)[1]


# The rest of what "portable" is made of is tested where it runs.
@pytest.mark.parametrize("program", ["functions", "large copies", *(p for p in PROGRAMS if " bytes" in p), "sorting"])
@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_portable_code_compiles(arm, program):
    compiled(arm, program, "portable")


@pytest.mark.parametrize("program", [*(p for p in PROGRAMS if " bytes" in p), "products of halves", "quantized"])
@pytest.mark.parametrize("arm", [NEWER], ids=["newer"], indirect=True)
def test_newer_processors(arm, program):
    compiled(arm, program, "neon")


@pytest.mark.parametrize("arm", [PLAIN, NEWER], ids=["plain", "newer"], indirect=True)
def test_products_of_bytes_are_summed_by_an_instruction(arm, request):
    assert ("sdot" in compiled(arm, "products of bytes", "neon")) == ("newer" in request.node.callspec.id)


@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_products_are_fused_and_in_vectors(arm):
    assert "fmla" in compiled(arm, "products", "neon")


@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_probes_compile(arm):
    for name in ("neon", "portable"):
        probes = [StreamCopy(4), PeakFma(4, np.dtype("float32"))]
        check(arm, texts(probes, name), name)


@pytest.mark.parametrize("arm", [PLAIN], ids=["plain"], indirect=True)
def test_the_machine_that_walks_tapes_compiles(arm):
    check(arm, emitted.text(replace(SYSTEM, processor="aarch64")), "neon")


CLOSE = {"bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-9} | dict.fromkeys(("float32", "complex64"), 2e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_agree_with_numpy(program):
    """On the machine that this runs on, whichever it is."""
    found = PROGRAMS[program]
    f, args = found() if callable(found) else found
    with nx.config.using(executor="reference"):
        expected = nx.tree.leaves(nx.jit(f)(*args))
    got = nx.tree.leaves(nx.jit(f, device="cpu")(*args))
    assert len(got) == len(expected)
    for i, (x, y) in enumerate(zip(got, expected, strict=True)):
        finite = np.abs(np.asarray(y, "complex128" if np.dtype(y.dtype).kind == "c" else "float64"))
        size = float(np.max(finite[np.isfinite(finite)], initial=1.0))
        rtol = CLOSE.get(np.dtype(y.dtype).name, 0)
        assert_close(f"{program}, result {i}", "the machine's code", x, y, rtol, rtol * size)


@pytest.mark.skipif(platform.machine() == "aarch64", reason="this is an ARM itself")
def test_programs_run_on_an_emulated_arm():
    emulator = Emulator("arm64", default_folder())
    if not emulator.ready:
        pytest.skip("no emulated ARM here; `python tools/emulate.py setup` brings one")
    names = ("integers", "softmax", "products", "convolutions of bytes", "sorting integers", "loops")
    tests = [f"{__file__}::test_programs_agree_with_numpy[{name}]" for name in names]
    command, environment = emulator.command(["-m", "pytest", "-p", "no:cacheprovider", "-v", *tests])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert f"{len(names)} passed" in done.stdout, done.stdout + done.stderr
