#!/usr/bin/env python3
"""Run nxjax on processors that are not here: ARM's, and older ones of x86-64, emulated by QEMU.

    python tools/emulate.py setup                       # once: downloads what it needs into a cache folder
    python tools/emulate.py setup jax mpmath            # and other packages: many tests compare with these
    python tools/emulate.py run script.py arguments     # a script (or -c, -m) on the emulated machine
    python tools/emulate.py test                        # the tests of the CPU compiler
    python tools/emulate.py test tests/ops -x           # or any other arguments of pytest
    python tools/emulate.py --every 20 test             # a sample: one test of twenty, from all files
    python tools/emulate.py --host-llvm test            # faster: by the LLVM of the project's own Python
    python tools/emulate.py fuzz --seconds 600          # random programs: the arguments of `nxjax fuzz`
    python tools/emulate.py --machine arm64-new test    # another machine: `--help` lists them

`setup` needs Linux with apt-get, dpkg and pip, and their servers. It needs no root and changes nothing in the system:
apt-get gets a configuration of its own, whose folders lie in the cache folder. An emulated program is ten to fifty
times slower than here. QEMU follows the processors' manuals instruction by instruction, so results are those of a
chip; times are not, and neither is the order in which threads see one another's writes: this is the host's.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NoReturn

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Machine:
    """A machine that QEMU plays.

    Attributes:
        about: what it stands for.
        processor: the family, as Linux says it (`uname -m`), which is also in the names of wheels and of QEMU.
        debian: Debian's name of it.
        cpu: QEMU's name of the processor.
        part: the number of ARM's design, and
        features: its abilities, as `/proc/cpuinfo` says them, where they are read; empty: the processor says them.
    """

    about: str
    processor: str
    debian: str
    cpu: str
    part: str = ""
    features: str = ""


# ARM's features are read from /proc/cpuinfo, so the emulated file says what the emulated processor has.
_CPUINFO = """processor\t: 0
BogoMIPS\t: 100.00
Features\t: {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: {part}
CPU revision\t: 0
"""
MACHINES = {
    "arm64": Machine(
        "ARM of 2012 (Cortex-A57): NEON alone",
        "aarch64",
        "arm64",
        "cortex-a57",
        "0xd07",
        "fp asimd evtstrm crc32 cpuid",
    ),
    "arm64-new": Machine(
        "ARM of 2020 (Neoverse V1): SVE, float16, bfloat16, products of bytes, atomics of one instruction",
        "aarch64",
        "arm64",
        "max,sve-default-vector-length=32",
        "0xd40",
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 "
        "sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs dcpodp i8mm bf16 dgh rng",
    ),
    # Without what QEMU warns that it has not.
    "sandybridge": Machine("Intel of 2011: AVX, but no AVX2", "x86_64", "amd64", "SandyBridge,-tsc-deadline,-x2apic"),
    "haswell": Machine("Intel of 2013: AVX2", "x86_64", "amd64", "Haswell-noTSX,-tsc-deadline,-pcid,-x2apic,-invpcid"),
    "zen": Machine(
        "AMD of 2017: AVX2",
        "x86_64",
        "amd64",
        "EPYC,-rdseed,-sha-ni,-fxsr-opt,-misalignsse,-3dnowprefetch,-osvw,-topoext,-nrip-save,-xsavec",
    ),
}
# What the tests need beyond the core's dependencies; SciPy is a second opinion of theirs.
CORE = ("numpy", "ml_dtypes", "optree", "opt_einsum", "llvmlite")
TESTS = ("pytest", "pytest-xdist", "hypothesis", "scipy")
_PYTHON = re.compile(r"python3\.\d+")
PACKAGES = ("python3", "libstdc++6", "zlib1g")
# What `test` runs if nothing is given: the compiler from its kernels to its calls.
DEFAULT_TESTS = ("tests/kernels/cpu", "tests/lower/cpu", "tests/backends/cpu")

# Pytest with every n-th test of those that were asked for, fewer examples of each property, and, where a socket is
# given, machine code made by the host.
_PYTEST = """
import sys, pytest
class Sample:
    def pytest_configure(self, config):
        if sys.argv[3]:
            from tools.hosted_code import ask
            ask(sys.argv[3])
        from hypothesis import settings
        settings.register_profile("emulated", settings.get_profile("suite"), max_examples=int(sys.argv[2]))
        settings.load_profile("emulated")
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = items[:: int(sys.argv[1])]
sys.exit(pytest.main(sys.argv[4:], plugins=[Sample()]))
"""

# A script, whose machine code is made by the host at a socket.
_SCRIPT = """
import sys, runpy
from tools.hosted_code import ask
ask(sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stop(what: str, fix: str = "") -> NoReturn:
    """End with a message."""
    sys.exit(f"emulate: {what}" + (f"\n  fix: {fix}" if fix else ""))


def tool(name: str, package: str) -> str:
    """Where a program of the system is."""
    found = shutil.which(name)
    if found is None:
        stop(f"{name} is not installed", f"install {package}; the set-up is made for Debian and Ubuntu")
    return found


def call(command: Sequence[str | Path], what: str, fix: str, cwd: Path | None = None) -> None:
    """Run a program of the system to its end; the last lines of what it says are the error."""
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        said = "\n".join("  | " + line for line in done.stdout.strip().splitlines()[-6:])
        stop(f"{what} failed:\n{said}", fix)


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "nxjax-emulate"


@contextmanager
def made_whole(place: Path) -> Generator[Path]:
    """A fresh folder that becomes ``place`` if nothing fails: it is there whole, or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=place.parent) as made:
        folder = Path(made, "it")
        folder.mkdir()
        yield folder
        try:
            folder.rename(place)
        except OSError:
            if not place.is_dir():
                raise  # otherwise another process was faster


def unpack(wheels: Sequence[Path], into: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)


class Emulator:
    """One machine in its folder: ``root`` (the system's files, seen first), ``python`` (starts its Python)."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.machine = MACHINES[name]
        self.folder = folder / name
        self.root = self.folder / "root"
        self.python = self.root / "usr/bin/emulated-python"
        # What the folder was made for; of a description that has changed since, it is made again.
        self._made, self._says = self.folder / "machine", f"{self.machine!r}\n"
        self.downloads = folder / "downloads" / self.machine.debian

    @property
    def _qemu(self) -> str:
        return f"qemu-{self.machine.processor}-static"

    @property
    def ready(self) -> bool:
        return self._made.exists() and self._made.read_text() == self._says

    # --- setting up ---

    def setup(self) -> None:
        if sys.platform != "linux":
            stop(f"QEMU's emulation of programs needs Linux, and this is {sys.platform}")
        if self.ready:
            return
        apt, dpkg = tool("apt-get", "apt"), tool("dpkg", "dpkg")
        here = subprocess.run([dpkg, "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
        if not self.downloads.exists():
            with made_whole(self.downloads) as made:
                self._packages(made / "packages", apt, here)
                self._wheels(made / "wheels", made / "packages")
        if self.folder.exists():
            shutil.rmtree(self.folder)
        with made_whole(self.folder) as made:
            print(f"emulate: unpacking into {self.folder}", file=sys.stderr)
            for package in sorted((self.downloads / "packages").glob("*.deb")):
                into = made / ("all" if package.name.startswith("qemu-") else "root")
                call([dpkg, "-x", package, into], f"unpacking {package.name}", "remove the folder and set up again")
            # One program of the many: the rest are other processors.
            (made / "all/usr/bin" / self._qemu).rename(made / self._qemu)
            shutil.rmtree(made / "all")
            site = made / "root/usr/lib/python3/dist-packages"
            site.mkdir(parents=True, exist_ok=True)
            unpack(sorted((self.downloads / "wheels").glob("*.whl")), site)
            if self.machine.features:
                (made / "root/proc").mkdir(exist_ok=True)
                (made / "root/proc/cpuinfo").write_text(
                    _CPUINFO.format(part=self.machine.part, features=self.machine.features)
                )
            start = made / "root/usr/bin" / self.python.name
            start.write_text(self._start(made / "root"))
            start.chmod(0o755)
            (made / self._made.name).write_text(self._says)

    def _packages(self, into: Path, apt: str, here: str) -> None:
        """The system's Python with all that it needs, and QEMU itself, by apt-get in folders of its own."""
        print("emulate: downloading Debian's packages", file=sys.stderr)
        state = into.parent / "apt"
        for folder in (into, into / "partial", state / "lists/partial"):
            folder.mkdir(parents=True)
        (state / "status").touch()  # as if nothing was installed: all that Python needs is fetched
        architectures = "".join(f'APT::Architectures:: "{a}";\n' for a in dict.fromkeys((self.machine.debian, here)))
        settings = state / "apt.conf"
        settings.write_text(
            "#clear APT::Architectures;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
            f'{architectures}APT::Architecture "{self.machine.debian}";\nAPT::Sandbox::User "";\n'
            f'Dir::State "{state}";\nDir::State::lists "{state}/lists";\nDir::State::status "{state}/status";\n'
            f'Dir::Cache "{state}";\nDir::Cache::archives "{into}";\n'
        )
        network = (
            "look at the network and at apt's sources in /etc/apt: they must have packages of other processors, too"
        )
        subprocess.run([apt, "-c", settings, "-qq", "update"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        names = [*PACKAGES, f"qemu-user-static:{here}"]
        wanted = [apt, "-c", settings, "-y", "--no-install-recommends", "--download-only", "install", *names]
        call(wanted, f"apt-get of {', '.join(names)} for {self.machine.debian}", network)
        shutil.rmtree(state)

    def add(self, package: str) -> None:
        """One more package, with what it needs, in a folder of its own."""
        place = self.folder / "more" / package
        if place.exists():
            return
        version = next(p.name for p in self.root.glob("usr/bin/python3.*") if _PYTHON.fullmatch(p.name))[6:]
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self.folder) as wheels, made_whole(place) as made:
            # What is there already stays: a package of two versions is none.
            held = [f"{name}=={v}" for name in (*CORE, *TESTS) if (v := _version(name)) is not None]
            Path(wheels, "held").write_text("\n".join(held))
            self._download(Path(wheels), version, [package], "-c", "held")
            unpack([w for w in Path(wheels).glob("*.whl") if not (self.downloads / "wheels" / w.name).exists()], made)

    def _wheels(self, into: Path, packages: Path) -> None:
        """The packages that nxjax and its tests need."""
        found = re.search(r"\bpython(3\.\d+)-minimal_", " ".join(p.name for p in packages.glob("*.deb")))
        if found is None:
            stop("Debian's packages hold no Python", "remove the folder and set up again")
        into.mkdir()
        self._download(into, found[1], [*CORE, *TESTS])

    def _download(self, into: Path, version: str, names: Sequence[str], *options: str) -> None:
        """Wheels for a version of Python, of the versions that this Python has, if it has them."""
        print(f"emulate: downloading wheels for Python {version}", file=sys.stderr)
        wanted = [name if (v := _version(name)) is None else f"{name}=={v}" for name in names]
        glibc = [f"manylinux_2_{n}_{self.machine.processor}" for n in (28, 27, 26, 17)]
        platforms = [f"--platform={p}" for p in (*glibc, f"manylinux2014_{self.machine.processor}")]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--no-cache-dir"]
        fix = "look at the network and at pip's index; pip must be installed for this Python"
        call(
            [*pip, f"--python-version={version}", *platforms, "-d", into, *options, *wanted], "pip download", fix, into
        )

    def _start(self, root: Path) -> str:
        """A script of the host that starts the emulated Python: children of its processes start by it, too."""
        real = next(p.name for p in root.glob("usr/bin/python3.*") if _PYTHON.fullmatch(p.name))
        words = [self.folder / self._qemu, "-cpu", self.machine.cpu, "-L", self.root, "-0", self.python]
        words.append(self.root / "usr/bin" / real)
        return f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n'

    # --- running ---

    def command(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """What starts the emulated Python with these arguments, and its environment."""
        environment = dict(os.environ)
        # Bytecode is written even if the host's Python writes none: to compile all sources takes an emulated process
        # a minute, and what it writes lies with the machine.
        for name in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"):
            environment.pop(name, None)
        more = map(str, sorted((self.folder / "more").glob("*")))
        paths = [str(PROJECT), *more, *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "NXJAX_CACHE_DIR": str(self.folder / "code")}
        # Bytecode of another Python lies elsewhere than that of this one.
        environment |= {"PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}
        return [str(self.python), *arguments], environment

    def run(self, arguments: Sequence[str]) -> int:
        """The emulated Python to its end; Ctrl-C goes to it."""
        if not self.ready:
            stop(f"{self.name} is not set up", f"python tools/emulate.py --machine {self.name} setup")
        command, environment = self.command(arguments)
        process = subprocess.Popen(command, env=environment)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


@contextmanager
def llvm_of_host(wanted: bool) -> Generator[str]:
    """The socket of a process that makes machine code (`tools/hosted_code.py`); empty if it is not wanted."""
    if not wanted:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tools.hosted_code", place := f"{folder}/llvm"]
        with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            if not server.stdout.readline():
                stop("no machine code can be made here", "install llvmlite for this Python, or leave out --host-llvm")
            yield place


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    about = "\n".join(f"  {name:10} {m.about} ({m.cpu})" for name, m in MACHINES.items())
    parser = argparse.ArgumentParser(
        description="Run nxjax on a processor that is not here, emulated by QEMU.",
        epilog=f"machines:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machine", choices=MACHINES, default="arm64", help="which (arm64)")
    parser.add_argument("--folder", type=Path, default=default_folder(), help=f"where all is kept ({default_folder()})")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of tests: run one of N, from all files (1)")
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="of tests: examples of a property (5)")
    parser.add_argument("--host-llvm", action="store_true", help="of tests and of a script: machine code is made here")
    parser.add_argument("what", choices=("setup", "run", "test", "fuzz"), help="what to do")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, help="arguments of Python, pytest or `nxjax fuzz`; of `setup`: more packages"
    )
    options = parser.parse_args(arguments)
    if min(options.every, options.examples) < 1:
        parser.error("--every and --examples are numbers from 1")
    emulator = Emulator(options.machine, options.folder.expanduser().absolute())
    rest: list[str] = options.rest
    if options.what == "setup":
        emulator.setup()
        for package in rest:
            emulator.add(package)
        print(f"{options.machine} is in {emulator.folder}; its Python is {emulator.python}")
        return 0
    if options.what == "run":
        script = options.host_llvm and bool(rest) and rest[0].endswith(".py")
        if options.host_llvm and not script:
            stop("--host-llvm needs a script", "python tools/emulate.py --host-llvm run script.py")
        with llvm_of_host(script) as place:
            return emulator.run(["-c", _SCRIPT, place, *rest] if script else rest)
    if options.what == "fuzz":
        return emulator.run(["-m", "nxjax", "fuzz", *rest])
    os.chdir(PROJECT)
    named = any(Path(word.split("::")[0]).exists() for word in rest)
    tests = [*rest, *(() if named else DEFAULT_TESTS)]
    with llvm_of_host(options.host_llvm) as place:
        settings = [str(options.every), str(options.examples), place]
        return emulator.run(["-c", _PYTEST, *settings, "-p", "no:cacheprovider", *tests])


if __name__ == "__main__":
    sys.exit(main())
