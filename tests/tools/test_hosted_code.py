import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tools.emulate import Emulator, llvm_of_host, main
from tools.hosted_code import ask

TEXT = "define float @f(float %x, float %y) {\n %z = fadd float %x, %y\n ret float %z\n}"


@pytest.fixture
def module(monkeypatch):
    """What is asked for elsewhere is made here again afterwards."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for owner, name in ((llvm.Target, "create_target_machine"), (llvm.TargetMachine, "emit_object")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    return llvm.parse_assembly(TEXT)


def test_the_host_makes_the_same_code(module):
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    own = target.create_target_machine(cpu="cortex-a57", features="+crc", opt=2, jit=True).emit_object(module)
    with llvm_of_host(True) as place:
        ask(place)
        machine = target.create_target_machine(cpu="cortex-a57", features="+crc", opt=2, jit=True)
        assert machine.emit_object(module) == own
        version, triple, options = machine.wanted
        for wanted, said in ((("0.1", triple, options), "has llvmlite 0.1"), ((version, "none", options), "target")):
            machine.wanted = wanted
            with pytest.raises(RuntimeError, match=said):
                machine.emit_object(module)
        machine.wanted = version, triple, options
        assert machine.emit_object(module) == own
    with pytest.raises(OSError):
        machine.emit_object(module)


def test_tests_are_told_where(monkeypatch, tmp_path):
    places = []
    monkeypatch.setattr(
        Emulator, "run", lambda self, arguments: places.append(arguments[4]) or Path(places[-1]).exists()
    )
    assert main(["--folder", str(tmp_path), "--host-llvm", "test", "tests/tools"]) and places[0]
    main(["--folder", str(tmp_path), "test", "tests/tools"])
    assert not places[1]


def test_a_script_is_told_where(monkeypatch, tmp_path):
    script, given = tmp_path / "it.py", []
    script.write_text(
        "import sys\nfrom llvmlite import binding as llvm\nprint(sys.argv[1:], llvm.Target.create_target_machine)\n"
    )
    monkeypatch.setattr(Emulator, "run", lambda self, arguments: given.append(arguments) or 0)
    assert main(["--folder", str(tmp_path), "--host-llvm", "run", str(script), "--more"]) == 0
    ran = subprocess.run([sys.executable, *given[0]], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("['--more'] <function ask.")
    with pytest.raises(SystemExit, match="needs a script"):
        main(["--folder", str(tmp_path), "--host-llvm", "run", "-c", "1"])


def test_a_host_without_llvm_says_so(monkeypatch, tmp_path):
    nothing = tmp_path / "python"
    nothing.write_text("#!/bin/sh\n")
    nothing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(nothing))
    with pytest.raises(SystemExit, match="llvmlite for this Python"), llvm_of_host(True):
        pass
