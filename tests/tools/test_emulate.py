"""The set-up of emulated machines, with programs that play apt-get, dpkg, pip and QEMU; no network, no emulation."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import emulate
from tools.emulate import MACHINES, Emulator, main

APT = """#!/bin/sh
case "$*" in *update*) exit 0;; esac
echo "$*" >> {log}
archives=$(sed -n 's/^Dir::Cache::archives "\\(.*\\)";/\\1/p' "$2")
touch "$archives/python3.11-minimal_3.11.2_arm64.deb" "$archives/qemu-user-static_7.2_amd64.deb"
"""
DPKG = """#!/bin/sh
if [ "$1" = --print-architecture ]; then echo amd64; exit; fi
mkdir -p "$3/usr/bin"
case "$2" in
  *qemu*) cp {qemu} "$3/usr/bin/qemu-aarch64-static"; touch "$3/usr/bin/qemu-riscv64-static";;
  *) ln -s {python} "$3/usr/bin/python3.11";;
esac
"""
# Its options, then a program and what that is given.
QEMU = """#!/bin/sh
echo "$*" >> {log}
shift 6
exec "$@"
"""
PIP = """#!/bin/sh
echo "$*" >> {log}
for word; do [ "$before" = -d ] && cp {wheel} "$word"; before=$word; done
"""


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A folder of programs that stand for the system's; gives where they say how they were called."""
    wheel, log, programs = tmp_path / "one-1-py3-none-any.whl", tmp_path / "log", tmp_path / "bin"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("one.py", "")
    programs.mkdir()
    names = {"apt-get": APT, "dpkg": DPKG, "qemu": QEMU, "pip": PIP}
    for name, text in names.items():
        found = {"log": log, "wheel": wheel, "qemu": programs / "qemu", "python": os.path.realpath(sys.executable)}
        (programs / name).write_text(text.format(**found))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(programs / "pip"))
    monkeypatch.setattr(sys, "platform", "linux")
    return log


def test_a_machine_is_set_up_once_and_runs(system, tmp_path, capfd, monkeypatch):
    emulator = Emulator("arm64", tmp_path / "cache")
    assert not emulator.ready
    emulator.setup()
    said = system.read_text()
    assert "qemu-user-static:amd64" in said and "--python-version=3.11" in said and "manylinux_2_28_aarch64" in said
    site = emulator.root / "usr/lib/python3/dist-packages"
    assert emulator.ready and (site / "one.py").exists()
    assert "asimd" in (emulator.root / "proc/cpuinfo").read_text()
    assert not list(emulator.folder.rglob("*riscv*")) and not list((tmp_path / "cache").glob(".making*"))

    capfd.readouterr()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    says = "import os, sys; print(sys.argv[1], os.environ['NXJAX_CACHE_DIR'], sys.dont_write_bytecode); sys.exit(3)"
    assert emulator.run(["-c", says, "x"]) == 3
    assert capfd.readouterr().out == f"x {emulator.folder / 'code'} False\n"
    called = system.read_text().splitlines()[-1]
    assert called.startswith(
        f"-cpu cortex-a57 -L {emulator.root} -0 {emulator.python} {emulator.root}/usr/bin/python3.11"
    )
    # Once more: nothing is downloaded again.
    system.unlink()
    Emulator("arm64", tmp_path / "cache").setup()
    Emulator("arm64-new", tmp_path / "cache").setup()
    assert not system.exists()


def test_another_description_makes_the_folder_anew(system, tmp_path, monkeypatch):
    Emulator("arm64", tmp_path).setup()
    monkeypatch.setitem(MACHINES, "arm64", MACHINES["arm64-new"])
    emulator = Emulator("arm64", tmp_path)
    assert not emulator.ready
    emulator.setup()
    assert emulator.ready and "i8mm" in (emulator.root / "proc/cpuinfo").read_text()


def test_more_packages_lie_beside(system, tmp_path):
    (tmp_path / "more-1-py3-none-any.whl").write_bytes((tmp_path / "one-1-py3-none-any.whl").read_bytes())
    emulator = Emulator("arm64", tmp_path / "cache")
    emulator.setup()
    fake = Path(sys.executable)
    fake.write_text(fake.read_text().replace("one-1", "more-1"))
    emulator.add("more")
    assert (emulator.folder / "more/more/one.py").exists()
    assert str(emulator.folder / "more/more") in emulator.command([])[1]["PYTHONPATH"]


def test_what_fails_is_said_and_leaves_nothing(system, tmp_path, monkeypatch):
    apt = system.parent / "bin/apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package'\nexit 100\n")
    with pytest.raises(SystemExit, match=r"(?s)apt-get of python3.*failed.*Unable to locate.*fix: look at the network"):
        Emulator("arm64", tmp_path / "cache").setup()
    assert not list((tmp_path / "cache").rglob("*"))[2:]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get is not installed"):
        Emulator("arm64", tmp_path / "cache").setup()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match="needs Linux"):
        Emulator("arm64", tmp_path / "cache").setup()


def test_a_machine_that_is_not_set_up_says_so(tmp_path):
    with pytest.raises(SystemExit, match=r"zen is not set up\n  fix: .*--machine zen setup"):
        main(["--machine", "zen", "--folder", str(tmp_path), "run", "x.py"])


def test_tests_are_a_sample(monkeypatch, tmp_path):
    """What `test` runs, here by this Python: every third test, and those that are asked for."""
    asked = []
    monkeypatch.setattr(Emulator, "run", lambda self, arguments: asked.append(arguments) or 0)
    assert (
        main(["--folder", str(tmp_path), "--every", "3", "test", "tests/tools/test_emulate.py", "--collect-only"]) == 0
    )
    assert main(["--folder", str(tmp_path), "test"]) == 0
    assert asked[1][-3:] == list(emulate.DEFAULT_TESTS)
    done = subprocess.run([sys.executable, *asked[0]], capture_output=True, text=True, cwd=emulate.PROJECT, timeout=120)
    assert done.stdout.count("::") == 3, done.stdout + done.stderr


@pytest.mark.parametrize("wrong", [["--every", "0"], ["--every", "-1"], ["--examples", "0"]], ids=" ".join)
def test_samples_of_nothing_are_refused(wrong, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*wrong, "test"])
    assert "numbers from 1" in capsys.readouterr().err
