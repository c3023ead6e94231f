"""Poplar projects: what is emitted compiles, runs against the shim and computes what the program means."""

import os
import stat
import subprocess

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.ipu.poplar import PoplarProject, sdk
from nxjax.errors import ExecutionError, KernelError, MissingExtraError, ParameterError
from nxjax.kernels.ipu.chip import system
from nxjax.kernels.ipu.host_compiler import SHIM, compiler
from nxjax.lower.ipu.lower import lower

pytestmark = pytest.mark.skipif(not compiler()[0], reason="no C++ compiler")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 10)).astype(np.float32)
W = RNG.standard_normal((10, 7)).astype(np.float32)


def project(f, *args) -> PoplarProject:
    return PoplarProject(lower(nx.make_jaxpr(f)(*args), system("bow")))


def check(f, *args, tolerance=1e-5, runs=1):
    found = project(f, *args).run([np.asarray(a) for a in args], "host", runs)
    for y, want in zip(found, nx.tree.leaves(f(*args)), strict=True):
        np.testing.assert_allclose(y, np.asarray(want), rtol=tolerance, atol=tolerance)
    return found


def step(w, x):
    loss = lambda w: (nx.nn.log_softmax(nx.nn.relu(x @ w)) ** 2).mean()
    value, grad = nx.value_and_grad(loss)(w)
    return w - 0.1 * grad, value


def several(x):
    """Loops, branches, lookups, sorting, halves and integers in one program, which is built once."""
    total, sums = nx.lax.scan(lambda c, row: (nx.tanh(c + row), c.sum()), x[0], x)
    grown = nx.lax.while_loop(lambda v: v.sum() < 50.0, lambda v: nx.abs(v) * 2 + 1, x[1])
    chosen = nx.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x[2])
    rows = x[nx.asarray([3, 0, 3])]
    return total, sums, grown, chosen, rows, nx.sort(x, axis=1), x.astype(nx.float16) * 2, (x * 10).astype(nx.int8)


def test_a_training_step():
    check(step, W, X)


def test_control_flow_lookups_and_dtypes():
    check(several, X, tolerance=1e-3)


def test_states_stay_on_the_chip_between_runs():
    made = PoplarProject(lower(nx.make_jaxpr(step)(W, X), system("bow"), donate=(0,)))
    main = made.files["main.cpp"].decode()
    assert main.count("s.input(load") == main.count("s.output(save") == 1
    found, value = made.run([W, X], "host", runs=3)
    w = W
    for _ in range(3):
        w, want = step(w, X)
    np.testing.assert_allclose(found, np.asarray(w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, np.asarray(want), rtol=1e-5)


def test_inputs_are_checked():
    made = project(lambda x: nx.tanh(x), X)
    with pytest.raises(ExecutionError, match="another type"):
        made.run([X.astype(np.float64)], "host")
    with pytest.raises(ExecutionError, match="number of inputs"):
        made.run([], "host")


def test_files_are_whole_and_readable(tmp_path):
    made = project(step, W, X)
    folder = made.save(tmp_path / "p")
    assert {p.name for p in folder.iterdir()} == set(made.files)
    main = (folder / "main.cpp").read_text()
    assert "test_poplar.py" in main  # the user's lines are comments
    assert os.access(folder / "build.sh", os.R_OK) and "popc" in (folder / "build.sh").read_text()
    assert "in_0.bin  float32[10, 7]" in (folder / "README.md").read_text()


def test_the_emitted_program_refuses_what_it_cannot_do(tmp_path):
    made = project(lambda x: nx.tanh(x), X)
    folder = made.save(tmp_path)
    made.build(folder, host=True)
    for words, message in [
        (["--device=ipu"], "no 1 free IPUs"),
        (["--device=x"], "--device is"),
        (["x"], "options are"),
    ]:
        done = subprocess.run(["./program", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1 and message in done.stderr
    done = subprocess.run(["./program", "--device=cpu"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "in_0.bin" in done.stderr
    assert subprocess.run(["./program", "--device=offline"], cwd=folder).returncode == 0


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_a_file_is_compiled_once_on_a_machine(tmp_path, monkeypatch):
    """And anew where its text, or that of a file that it includes, is another."""
    log = tmp_path / "log"
    said = f'[ "$1" = --version ] && {{ echo stand-in; exit 0; }}\nfor last; do :; done; echo $last >> {log}; '
    script(tmp_path / "cxx", said + "echo made > $last\n")
    monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
    made = project(lambda x: nx.tanh(x), X)

    def compiled(name):
        log.write_text("")
        made.build(made.save(tmp_path / name), host=True)
        return sorted(log.read_text().split())

    with nx.config.using(cache_dir=str(tmp_path / "cache")):
        assert compiled("first") == ["main.o", "program", "register_0.o"]
        assert compiled("second") == ["program"]
        made.files["codelet_0.cpp"] += b"// another\n"
        assert compiled("third") == ["program", "register_0.o"]
        made.files["nx_graph.hpp"] += b"// another\n"
        assert compiled("fourth") == ["main.o", "program"]


def test_without_the_sdk():
    if sdk()[0]:
        pytest.skip("the Poplar SDK is here")
    with pytest.raises(MissingExtraError, match="enable"):
        project(lambda x: nx.tanh(x), X).run([X], "cpu")


def test_the_sdks_commands(tmp_path, monkeypatch):
    """Stand-ins for popc and for the compiler with the SDK's libraries, which use the shim: the road of the SDK."""
    real = compiler()[0]
    script(tmp_path / "popc", f'case "$*" in *--target=ipu2*codelet_0.cpp*) {REFUSES}{SUMS};; *) exit 3;; esac\n')
    cxx = f"""[ "$1" = --version ] && exec {real} --version
    for i in codelet_*.cpp; do n=${{i#codelet_}}; n=${{n%.cpp}}
    {real} -std=c++17 -w -I{SHIM}/host -I{SHIM} -I. -c register_$n.cpp -o register_$n.o || exit 1; done
    {real} -std=c++17 -w -I{SHIM} -I. main.cpp register_*.o -o program
    """
    script(tmp_path / "c++sdk", cxx)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = project(lambda x: nx.tanh(x), X)
    from nxjax.lower.ipu.formats.poplar_host import registrations

    made.files.update({n: t.encode() for n, t in registrations(made.program.codelets()).items()})
    assert sdk()[0]
    monkeypatch.setenv("CXX", str(tmp_path / "c++sdk"))
    (y,) = made.run([X], "cpu")
    np.testing.assert_allclose(y, np.tanh(X), rtol=1e-5)
    script(tmp_path / "popc", "echo no such architecture >&2; exit 1\n")
    with pytest.raises(MissingExtraError, match="no such architecture"):
        made.run([X], "cpu")


def test_the_target():
    artifact = nx.compile(step, target="poplar")(W, X)
    assert artifact.label == ("emitted" if not sdk()[0] else artifact.label)
    assert next(iter(artifact.files)).endswith("/main.cpp") and artifact.deviation is not None
    w, _ = artifact.run(W, X)
    want = step(W, X)
    np.testing.assert_allclose(np.asarray(w), np.asarray(want[0]), rtol=1e-5, atol=1e-6)
    assert artifact.report.rows and artifact.memory.fits
    with pytest.raises(ParameterError, match="system"):
        nx.compile(step, target="poplar", system=3)(W, X)


# Stand-ins for popc: what they do, and whether the codelets are compiled then.
REFUSES = "grep -qs '#error' codelet_*.cpp && exit 1; "
SUMS = "touch left; cksum codelet_*.cpp > codelets.gp 2> said; exit 0"
POPC = {
    "fails": ("exit 1", False),
    "fails on the project": ("grep -q 'Smallest\\|#error' codelet_0.cpp || exit 2; " + REFUSES + SUMS, False),
    "killed": ("kill -9 $$", False),
    "does nothing": ("exit 0", False),
    "writes nothing": (": > codelets.gp", False),
    "writes a folder": ("mkdir codelets.gp", False),
    "writes a link": ("ln -s /etc/passwd codelets.gp", False),
    "writes, and fails": ("echo made > codelets.gp; exit 1", False),
    "talks only": ("echo POPLAR version 3.3.0", False),
    "no program": ("\0\1", False),
    "garbage": ("echo garbage > codelets.gp", False),
    "garbage of all but errors": (REFUSES + "echo garbage > codelets.gp", False),
    "other garbage each time": ("date +%N > codelets.gp; echo $$ >> codelets.gp", False),
    "copies": (REFUSES + "cat codelet_*.cpp > codelets.gp", False),
    "compiles": ("echo POPLAR version 3.3.0; " + REFUSES + SUMS, True),
}
# An SDK, IPUs and a tool that lists 64 of them, all of it only said.
LISTED = 'touch left; for i in $(seq 64); do echo "-+- Id: [$i], target: [PCIe]"; done\n'


def machine(folder, monkeypatch, popc, cxx="exit 1"):
    script(folder / "popc", popc + "\n")
    script(folder / "gc-info", LISTED)
    script(folder / "cxx", f'[ "$1" = --version ] && {{ echo stand-in; exit 0; }}\n{cxx}\n')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("POPLAR_SDK_ENABLED", str(folder))
    monkeypatch.setenv("CXX", str(folder / "cxx"))


@pytest.mark.parametrize("how", POPC)
def test_the_label_follows_from_what_popc_did(how, tmp_path, monkeypatch):
    """And never from its being there, from a variable of the environment, or from a list of IPUs."""
    text, compiles = POPC[how]
    machine(tmp_path, monkeypatch, text)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    target = next(t for t in nx.targets() if t.name == "poplar")
    small = compiles or how in ("fails on the project", "garbage of all but errors")
    assert target.label == ("vendor-compiled" if small else "emitted")
    made = nx.compile(lambda x: nx.tanh(x), target="poplar", compile_only=True)(X)
    assert made.label == made.report.label == ("vendor-compiled" if compiles else "emitted")
    (note,) = made.notes
    assert ("compiled 1 codelets to 30 bytes" in note or "POPLAR version" in note) == compiles, note
    ran = nx.compile(lambda x: nx.tanh(x), target="poplar", verify=False)(X)
    # The host's part does not compile on this machine: nothing of the SDK runs, whatever is listed.
    assert ran.label == made.label and "IPUs" not in ran.runs_on
    if compiles:
        assert any("the SDK runs nothing of it here" in n for n in ran.notes)
    assert not os.listdir(here), "tools leave nothing where the user is"


PROGRAMS = {
    "gives the results": ("cp in_0.bin out_0.bin", ""),
    "fails": ("echo no free IPUs >&2; exit 1", "no free IPUs"),
    "ends without results": ("exit 0", "did not complete out_0.bin"),
    "gives half of them": ("head -c 100 in_0.bin > out_0.bin", "did not complete out_0.bin"),
    "gives more": ("cat in_0.bin in_0.bin > out_0.bin", "did not complete out_0.bin"),
    "gives a folder": ("mkdir out_0.bin", "did not complete out_0.bin"),
}


@pytest.mark.parametrize("how", PROGRAMS)
def test_hardware_is_what_ran_on_ipus(how, tmp_path, monkeypatch):
    """A stand-in for the C++ compiler writes the program; the label comes from how a run ends and what it gives."""
    words, message = PROGRAMS[how]
    made_program = f"printf '#!/bin/sh\\n{words}\\n' > program; chmod +x program"
    machine(tmp_path, monkeypatch, POPC["compiles"][0], made_program)
    made = nx.compile(lambda x: nx.where(x > 0, x, x), target="poplar", verify=False)(X)
    assert made.label == made.report.label == "vendor-compiled" and "IPUs" in made.runs_on
    if message:
        with pytest.raises(ExecutionError, match=message):
            made.run(X)
        assert made.label == "vendor-compiled"
        kept = nx.compile(lambda x: nx.where(x > 0, x, x), target="poplar")(X)
        assert kept.label == "vendor-compiled" and kept.deviation is None and message in " ".join(kept.notes)
    else:
        np.testing.assert_array_equal(np.asarray(made.run(X)), X)
        assert made.label == "vendor-compiled"
        made.verify([X])
        assert made.label == "hardware"


def test_a_manager_says_hardware_once_a_model_ran_there(tmp_path, monkeypatch):
    from nxjax.hardware.graphcore import GraphCoreManager, is_ipu_available

    program = "printf '#!/bin/sh\\ncp in_0.bin out_0.bin\\n' > program; chmod +x program"
    machine(tmp_path, monkeypatch, POPC["compiles"][0], program)
    assert is_ipu_available()
    with pytest.raises(KernelError, match="wrote no library"):
        nx.compile(lambda x: nx.sinh(x), target="ipu-bow")(X)
    monkeypatch.setenv("CXX", "")
    with GraphCoreManager(num_ipus=2) as ipu:
        assert ipu.label == ipu.get_ipu_info()["label"] == "own-model" and ipu.get_ipu_count() == 2
        stages = ipu.compile_model(lambda x: nx.tanh(nx.sin(x)), X, execution="pipelined")
        one = ipu.compile_model(lambda x: nx.where(x > 0, x, x), X, execution="single")
        assert stages.label == one.label == "emitted"
        ipu.execute_model(stages, X)
        # Stages run on the model of the IPU, though 64 of them are listed.
        assert stages.label == ipu.label == "own-model"
        monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
        np.testing.assert_array_equal(np.asarray(ipu.execute_model(one, X)), X)
        assert one.label == ipu.label == "hardware" and ipu.get_ipu_count() == 64
        # The program there gives what it takes, whatever it is asked for.
        other = ipu.compile_model(lambda x: nx.where(x > 0, 3 - x, x - 3), X, execution="single")
        with pytest.raises(ExecutionError, match="another function"):
            ipu.execute_model(other, X)
        assert other.label == "emitted"
    script(tmp_path / "popc", "exit 1\n")
    assert not is_ipu_available()
