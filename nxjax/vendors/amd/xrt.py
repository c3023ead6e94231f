"""AMD XDNA through XRT's Python package ``pyxrt``: whether it is here, which NPUs there are, what they are called.

``pyxrt`` comes with AMD's XRT and its NPU plug-in, not from a package index. Names of chips are those of the driver
(``vbnv``) and of AMD's compiler (mlir-aie); how a kernel is run is `xrt_runtime`'s business.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.backends.extras import installed
from nxjax.backends.sensors import amdxdna
from nxjax.backends.sensors.reading import Roots
from nxjax.errors import ExecutionError, MissingExtraError

PACKAGE: Final = "pyxrt"
# What the driver calls a chip -> its generation, by what the name contains; the first match counts.
_NAMES: Final = (
    (("npu1", "phoenix", "hawk"), "npu1"),
    (("npu4", "npu5", "npu6", "strix", "krackan", "gorgon"), "npu4"),
    (("npu3", "npu9", "npu10", "npu11"), "npu3"),
)
# Hardware contexts of the whole machine by generation (hwctx_limit of the driver's npu1_regs.c and npu4_regs.c).
CONTEXTS: Final = {"npu1": 6, "npu4": 16}
# What AMD's tools call the generation.
_COMPILER: Final = {"npu1": "npu1", "npu4": "npu2"}
_HERE: Final = Roots()


@final
@dataclass(frozen=True)
class Npu:
    """One NPU: its number for XRT, its PCI address, the driver's name for it, and its generation.

    Attributes:
        chip: "npu1" (Phoenix, Hawk Point), "npu4" (Strix, Strix Halo, Krackan, Gorgon Point), or "" where the name is
            none that is known.
        contexts: how many hardware contexts it has, all processes together.
    """

    index: int
    bdf: str
    name: str
    chip: str
    contexts: int

    @property
    def device(self) -> str:
        """What ``aie.device`` of AMD's compiler calls it: "npu1" or "npu2"."""
        return compiler_name(self.chip)


def compiler_name(chip: str) -> str:
    """What AMD's compiler calls a generation.

    >>> compiler_name("npu1"), compiler_name("npu4")
    ('npu1', 'npu2')
    """
    return _COMPILER.get(chip, chip)


def chip_of(name: str) -> str:
    """The generation of a chip by the driver's name for it; "" for a name that is not known.

    >>> [chip_of(n) for n in ("NPU Phoenix", "RyzenAI-npu1", "NPU Strix Halo", "NPU Krackan 1", "RyzenAI-npu6", "U250")]
    ['npu1', 'npu1', 'npu4', 'npu4', 'npu4', '']
    """
    plain = name.lower()
    # "npu10" contains "npu1": a number ends where no digit follows.
    words = set(plain.replace("-", " ").split())
    for parts, chip in _NAMES:
        if any(p in words if p.startswith("npu") else p in plain for p in parts):
            return chip
    return ""


def package() -> Any:
    """The module ``pyxrt``, or `MissingExtraError` that says where it comes from."""
    if not installed(PACKAGE):
        raise MissingExtraError(
            "xrt: AMD's runtime for the NPU needs a package that is not installed",
            got=f"no module {PACKAGE!r}",
            expected="XRT with its NPU plug-in, built for this version of Python",
            fix="install XRT and xrt_plugin-amdxdna (github.com/amd/xdna-driver), then source XRT's setup.sh",
        )
    import importlib

    return importlib.import_module(PACKAGE)


def unavailable(roots: Roots = _HERE) -> str:
    """Why no program can be run on an NPU of AMD here, in one sentence; empty where one can."""
    found = amdxdna.devices(roots)
    if platform.system() == "Linux" and not found:
        return "no NPU with AMD's amdxdna driver (Linux 6.14, or github.com/amd/xdna-driver)"
    for device in found:
        if not os.access(device.node, os.R_OK | os.W_OK):
            return f"{device.node}: permission denied; the user has to be in the group that owns it (mostly render)"
    if not installed(PACKAGE):
        return f"the Python package {PACKAGE} is not installed; it comes with AMD's XRT"
    return ""


def devices(roots: Roots = _HERE, module: Any = None) -> list[Npu]:
    """The NPUs that XRT opens, in its order; its other cards are left out.

    Raises:
        MissingExtraError: ``pyxrt`` is not installed.
    """
    pyxrt = module if module is not None else package()
    known = {d.bdf: d for d in amdxdna.devices(roots)}
    found: list[Npu] = []
    for index in range(int(pyxrt.enumerate_devices())):
        try:
            opened = pyxrt.device(index)
            name = str(opened.get_info(pyxrt.xrt_info_device.name))
            bdf = str(opened.get_info(pyxrt.xrt_info_device.bdf))
        except Exception as error:
            # XRT's errors have no class of their own in Python.
            raise ExecutionError("xrt: a device cannot be opened", got=first_line(error), fix=memlock()) from error
        chip = chip_of(name)
        if not chip:
            continue
        told = amdxdna.context_limit(roots, known[bdf].node) if bdf in known else None
        found.append(Npu(index, bdf, name, chip, told or CONTEXTS.get(chip, min(CONTEXTS.values()))))
    return found


def first_line(error: BaseException) -> str:
    """An error's text, as far as it belongs in a message."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]


def memlock() -> str:
    """What to do about memory that cannot be locked, with the limit as it is; empty where there is no limit."""
    try:
        import resource
    except ImportError:
        return ""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if soft == resource.RLIM_INFINITY:
        return ""
    return f"buffers are locked memory, of which this user may have {soft // 1024} KiB: raise it (ulimit -l unlimited)"
