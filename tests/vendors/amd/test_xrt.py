"""AMD's runtime adapter against a stand-in for pyxrt that keeps the real package's rules; no NPU is involved."""

import gc
import threading

import numpy as np
import pytest

from nxjax.errors import ExecutionError, InvalidFileError, MissingExtraError, ParameterError
from nxjax.vendors.amd import xrt, xrt_runtime
from nxjax.vendors.amd.xrt_artifact import XrtArtifact, XrtBuffer, instructions
from nxjax.vendors.amd.xrt_runtime import XrtRuntime, open_contexts
from tests.backends.sensors.trees import ANSWERS, Driver, roots, ryzen
from tests.vendors.amd.fake_pyxrt import machine, xclbin

BUFFERS = (
    XrtBuffer("a", (4,), "int32", "in"),
    XrtBuffer("b", (4,), "int32", "in"),
    XrtBuffer("c", (4,), "int32", "out"),
)
A, B = np.arange(4, dtype=np.int32), np.full(4, 10, np.int32)


def adding(kernel="MLIR_AIE", word=0, **options) -> XrtArtifact:
    data = xclbin(kernel, "add", [[4]] * 3, ["int32"] * 3)
    return XrtArtifact(data, np.array([word, 7], "<i4").tobytes(), BUFFERS, **options)


@pytest.fixture
def fake():
    # What other tests left in cycles holds contexts too.
    gc.collect()
    made = machine()
    yield made
    gc.collect()
    assert not made.dead, "a run was let go while the chip worked on it"


def opened(fake, **options):
    return XrtRuntime(module=fake, **options)


def test_names_of_chips_and_what_is_missing_here(tmp_path):
    names = ("NPU Phoenix", "xilinx_u250", "RyzenAI-npu10", "NPU Krackan 2")
    found = xrt.devices(roots(tmp_path), machine(names))
    assert [(d.index, d.chip, d.device, d.contexts) for d in found] == [
        (0, "npu1", "npu1", 6),
        (2, "npu3", "npu3", 6),
        (3, "npu4", "npu2", 16),
    ]
    assert "amdxdna driver" in xrt.unavailable(roots(tmp_path))
    ryzen(tmp_path)
    # The driver's own word on how many contexts there are.
    told = {**ANSWERS, 12: b"".join(n.to_bytes(8, "little") for n in (1600, 16, 4, 0, 1))}
    assert xrt.devices(roots(tmp_path, ioctl=Driver(told)), machine())[0].contexts == 4
    assert "pyxrt" in xrt.unavailable(roots(tmp_path))
    with pytest.raises(MissingExtraError, match=r"xrt: AMD's runtime.*\n.*pyxrt"):
        XrtRuntime()
    with pytest.raises(ExecutionError, match="xrt: no NPU"):
        XrtRuntime(module=machine(("xilinx_u250",)))


def test_a_program_runs_and_its_memory_is_used_again(fake):
    with opened(fake) as npu:
        add = npu.open(adding(word=100, chip="npu1"))
        assert add.label == "emitted"
        for _ in range(3):
            (c,) = add(A, B)
            assert c.dtype == np.int32 and c.tolist() == (A + B + 100).tolist()
        kept = add(A, B)[0]
        add(B, B)
        assert kept.tolist() == (A + B + 100).tolist()
        # Nothing here knows what the program is to compute: no run of it is proof.
        assert add.label == "emitted" and [r.act for r in add.evidence] == ["loaded"]
        assert len([e for e in fake.log if e[0] == "context"]) == 1 == npu.held
        assert npu.open(adding(length="words", word=1))(A, A)[0].tolist() == (2 * A + 1).tolist()
        assert npu.held == 1, "programs of one xclbin share a context"
        with pytest.raises(ParameterError, match="another NPU"):
            npu.open(adding(chip="npu4"))
    assert npu.held == 0 and open_contexts() == 0
    with pytest.raises(ExecutionError, match="closed"):
        add(A, B)


def test_bfloat16_and_matrices(fake):
    import ml_dtypes

    x = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    shapes = [[2, 3], [2, 3]]
    rows = tuple(XrtBuffer(n, (2, 3), "bfloat16", r) for n, r in (("x", "in"), ("y", "out")))
    double = XrtArtifact(xclbin("d", "double", shapes, ["bfloat16"] * 2), bytes(4), rows)
    (y,) = opened(fake).open(double)(x)
    assert y.dtype == x.dtype and (y == x * 2).all()
    shapes = ((5, 3), (3, 4), (5, 4))
    kinds = ("int8", "int8", "int32")
    rows = tuple(XrtBuffer(n, s, d, r) for n, s, d, r in zip("abc", shapes, kinds, ("in", "in", "out"), strict=True))
    product = XrtArtifact(xclbin("m", "matmul", shapes, kinds), bytes(4), rows)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s, dtype=np.int8) for s in shapes[:2])
    # A view that is not contiguous goes over as what it shows.
    (c,) = opened(fake).open(product)(np.asfortranarray(a), b)
    assert (c == a.astype(np.int32) @ b.astype(np.int32)).all()


def test_arguments_that_xrt_would_drop_are_refused(fake):
    add = opened(fake).open(adding())
    for wrong in ((A,), (A, B, B), (A, B.astype(np.int64)), (A, B[:3])):
        with pytest.raises(ParameterError, match="xrt: "):
            add(*wrong)
    with pytest.raises(ParameterError, match="deadline"):
        add(A, B, deadline=0)
    assert not [e for e in fake.log if e[0] == "run"]
    many = XrtArtifact(xclbin(most=2), bytes(4), BUFFERS)
    with pytest.raises(ParameterError, match="at most 2"):
        opened(fake).open(many)(A, B)
    with pytest.raises(ParameterError, match="no such kernel"):
        opened(fake).open(XrtArtifact(xclbin(), bytes(4), BUFFERS, kernel="other"))(A, B)


@pytest.mark.parametrize("state", ["ERROR", "ABORT", "TIMEOUT", "NORESPONSE"])
def test_a_run_that_fails_is_named_and_the_context_is_made_anew(fake, state):
    with opened(fake) as npu:
        add = npu.open(adding())
        add(A, B)
        fake.script = [state]
        with pytest.raises(ExecutionError, match=f"MLIR_AIE on NPU Phoenix failed[^$]*{state}") as caught:
            add(A, B)
        # Whoever keeps the error does not keep the chip's context.
        assert npu.held == 0 and caught.value.__traceback__ is not None
        assert add(A, B)[0].tolist() == (A + B).tolist()
        assert len([e for e in fake.log if e[0] == "context"]) == 2
        fake.script = ["refused"]
        with pytest.raises(ExecutionError, match="can't launch"):
            add(A, B)
        assert add(A, B)[0].tolist() == (A + B).tolist()


def test_a_run_that_hangs_is_given_up_kept_and_let_go_when_it_ends(fake):
    npu = opened(fake)
    add = npu.open(adding())
    fake.script = ["hang"]
    with pytest.raises(ExecutionError, match=r"MLIR_AIE on NPU Phoenix hangs\n.*0\.02 s, state QUEUED"):
        add(A, B, deadline=0.02)
    assert npu.hanging == 1 and npu.held == 1 == open_contexts()
    assert add(A, B)[0].tolist() == (A + B).tolist() and npu.held == 2
    # Whoever drops the runtime does not drop the run.
    del npu, add
    gc.collect()
    assert not fake.dead and xrt_runtime._KEPT
    fake.release()
    xrt_runtime.leave_nothing_running(1.0)
    assert not xrt_runtime._KEPT and not fake.dead


def test_an_interrupt_lets_nothing_go(fake):
    with opened(fake) as npu:
        add = npu.open(adding())
        fake.script = ["interrupt"]
        with pytest.raises(KeyboardInterrupt):
            add(A, B)
        gc.collect()
        assert npu.hanging == 1 and not fake.dead
        fake.release()
        assert npu.hanging == 0 and add(A, B)[0].tolist() == (A + B).tolist()


def test_contexts_are_few_and_the_one_longest_unused_gives_way(fake):
    with opened(fake, contexts=2) as npu:
        one, two, three = (npu.open(adding(k)) for k in ("one", "two", "three"))
        for program in (one, two, one, three, one, two):
            assert program(A, B)[0].tolist() == (A + B).tolist() and npu.held <= 2
        # two was made again: three had taken its place, and one had been used since.
        assert len([e for e in fake.log if e[0] == "context"]) == 4
        fake.limit = 1
        assert three(A, B)[0].tolist() == (A + B).tolist() and npu.held == 1, "other processes have the rest"
        fake.limit = 0
        with pytest.raises(ExecutionError, match=r"gives no hardware context[^$]*CREATE_HWCTX"):
            one(A, B)
    fake.limit = 6
    with opened(fake, contexts=1) as npu:
        stuck, other = npu.open(adding("one")), npu.open(adding("two"))
        fake.script = ["hang"]
        with pytest.raises(ExecutionError, match="hangs"):
            stuck(A, B, deadline=0.01)
        with pytest.raises(ExecutionError, match=r"every hardware context of NPU Phoenix is busy[^$]*1 runs hang"):
            other(A, B, deadline=0.02)
        fake.release()
        xrt_runtime.leave_nothing_running(1.0)
        assert other(A, B)[0].tolist() == (A + B).tolist()


def test_no_memory_is_said_with_the_limit(fake):
    fake.memory = 8
    with pytest.raises(ExecutionError, match=r"no memory for buffer a[^$]*16 bytes: failed to allocate BO"):
        opened(fake).open(adding())(A, B)


@pytest.mark.parametrize("timed", [False, True])
def test_many_runs_are_with_the_chip_at_once(timed):
    fake = machine(timed_lists=timed)
    batch = [(A + i, B) for i in range(11)]
    with opened(fake) as npu:
        add = npu.open(adding())
        assert [c[0].tolist() for c in add.many(batch)] == [(a + b).tolist() for a, b in batch]
        assert add.many([]) == []
        assert [e for e in fake.log if e[0] == "list"] == ([("list", 11)] if timed else [])
        fake.script = ["ok", "ok", "ERROR"]
        with pytest.raises(ExecutionError, match=r"run 2 failed\n.*state ERROR"):
            add.many(batch[:4])
        fake.script = ["hang"]
        with pytest.raises(ExecutionError, match="hangs"):
            add.many(batch[:3], deadline=0.01)
        fake.release()
        xrt_runtime.leave_nothing_running(1.0)
        fake.script = ["ok", "refused"]
        gc.disable()
        try:
            with pytest.raises(ExecutionError, match="can't launch"):
                add.many(batch[:3])
            xrt_runtime.leave_nothing_running(1.0)
            assert npu.held == 0, "no cycle of an error and its frames keeps the context"
        finally:
            gc.enable()
        assert add.many(batch[:2])[1][0].tolist() == (A + 1 + B).tolist()
    gc.collect()
    assert not fake.dead


def test_threads_have_their_own_buffers(fake):
    with opened(fake) as npu:
        add = npu.open(adding())
        found = {}

        def work(i):
            found[i] = [add(A + i, B * j)[0].tolist() == (A + i + B * j).tolist() for j in range(8)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert all(all(found[i]) for i in range(4)) and npu.held == 1


def test_artifacts_are_saved_whole_and_damage_is_found(tmp_path):
    made = adding(word=5, kernel="MLIR_AIE", chip="npu1", length="words")
    assert XrtArtifact.load(made.save(tmp_path / "add")) == made
    assert sorted(p.name for p in (tmp_path / "add").iterdir()) == ["final.xclbin", "insts.bin", "xrt.json"]
    for name, content in (
        ("xrt.json", b"{}"),
        ("xrt.json", b"{"),
        ("insts.bin", b"abc"),
        ("final.xclbin", b"\x7fELF"),
    ):
        made.save(tmp_path / "bad")
        (tmp_path / "bad" / name).write_bytes(content)
        with pytest.raises((InvalidFileError, ParameterError), match="xrt: "):
            XrtArtifact.load(tmp_path / "bad")
    with pytest.raises(InvalidFileError, match="holds no program"):
        XrtArtifact.load(tmp_path / "none")
    text = tmp_path / "insts.txt"
    text.write_text("06030100\n00000105\n")
    assert instructions(text) == np.array([0x06030100, 0x105], "<u4").tobytes()
    assert instructions(tmp_path / "add/insts.bin") == made.insts
    files = tmp_path / "add/final.xclbin", tmp_path / "add/insts.bin"
    assert XrtArtifact.of(*files, BUFFERS, chip="npu1", length="words") == made
    for wrong in ("xyz", "1" * 9):
        text.write_text(wrong)
        with pytest.raises(InvalidFileError, match="word 1"):
            instructions(text)
    for options in ({"role": "both"}, {"dtype": "int7"}, {"shape": (-1,)}):
        with pytest.raises((ParameterError, TypeError)):
            XrtBuffer(**({"name": "x", "shape": (1,), "dtype": "int8", "role": "in"} | options))
