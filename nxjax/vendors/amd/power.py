"""The power mode of an NPU of AMD: asked of the driver and told to it, or to ``xrt-smi`` where no way leads there.

A mode holds for the whole machine until it is changed; setting it needs privilege, and turbo comes before the NPU is
opened. It sets the range of the clocks (aie2_pm.c of github.com/amd/xdna-driver): powersaver the lowest level, balanced
a middle one, performance the highest, turbo the highest with clocks that are never gated, default what the open
contexts ask for. There are no other settings: clocks and memory bandwidth follow the mode. An Intel NPU takes its mode
with each model: ``nx.compile(..., power="turbo")``.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from nxjax.backends.sensors import amdxdna, ivpu, read, xrt_smi
from nxjax.backends.sensors.reading import Roots
from nxjax.backends.sensors.thermal import DEFAULT
from nxjax.errors import ExecutionError, InvalidFileError, NxError, ParameterError, Shown
from nxjax.vendors.amd.xrt_runtime import open_contexts

MODES: Final = amdxdna.MODES
TURBO: Final = "turbo"
# A kind of work -> the mode that suits it: turbo where tokens are waited for, a middle clock for what runs all day.
WORKLOADS: Final[Mapping[str, str]] = {
    "llm_inference": "turbo",
    "batch_inference": "performance",
    "interactive": "default",
    "continuous_audio": "balanced",
    "continuous_video": "balanced",
    "background": "powersaver",
}
# What programs call a profile -> the mode that it is.
PROFILES: Final[Mapping[str, str]] = {"power-save": "powersaver", **{mode: mode for mode in MODES}}
# What "default" does is the driver's choice: a step down from it is a mode that is surely lower.
_DOWN: Final = {"turbo": "performance", "performance": "balanced", "balanced": "powersaver", "default": "powersaver"}
_HERE: Final = Roots()
_INTEL: Final = "an Intel NPU has no mode of its own: it is an option of what is compiled, nx.compile(..., power=...)"


def checked(mode: str) -> str:
    """A mode's name, or `ParameterError`."""
    if mode not in MODES:
        raise ParameterError("power: no such mode", got=repr(mode), expected=", ".join(MODES))
    return mode


def _npu(roots: Roots, bdf: str = "") -> amdxdna.AmdxdnaDevice | None:
    """The NPU at a PCI address, or the first one; None where Linux shows none.

    Raises:
        ParameterError: there are NPUs, and none at that address.
    """
    found = amdxdna.devices(roots)
    if not bdf or not found:
        return found[0] if found else None
    for one in found:
        if one.bdf == bdf.lower():
            return one
    raise ParameterError("power: no NPU at this address", got=bdf, expected=", ".join(d.bdf for d in found))


def _nowhere(roots: Roots) -> ExecutionError:
    got = "no NPU with AMD's amdxdna driver, and " + xrt_smi.missing()
    return ExecutionError("power: unavailable", got=got, fix=_INTEL if ivpu.devices(roots) else None)


def get(device: str = "", *, roots: Roots = _HERE) -> str:
    """The mode that holds: one of `MODES`.

    Args:
        device: the PCI address of the NPU, such as "0000:c5:00.1"; the first one without it.

    Raises:
        ExecutionError: this machine has no NPU of AMD, or nobody answers; the message says why.

    >>> MODES
    ('default', 'powersaver', 'balanced', 'performance', 'turbo')
    """
    one = _npu(roots, device)
    if one is not None:
        try:
            return amdxdna.power_mode(roots, one.node)
        except OSError as error:
            refused = amdxdna.refusal(error, one.node)
    elif xrt_smi.program(roots) is None:
        raise _nowhere(roots)
    else:
        refused = ""
    try:
        mode = xrt_smi.power_mode(xrt_smi.examine(roots, device))
    except (OSError, InvalidFileError) as error:
        got = "; ".join(filter(None, (refused, str(error).split("\n")[0])))
        raise ExecutionError("power: the mode cannot be read", got=got) from error
    if mode is None:
        raise ExecutionError("power: the mode cannot be read", got="xrt-smi reports none")
    return mode


def set(mode: str, device: str = "", *, roots: Roots = _HERE) -> None:
    """Set the mode, and see that it holds; it does for the whole machine until it is changed.

    Raises:
        ParameterError: no such mode, or no NPU at that address.
        ExecutionError: no NPU of AMD; no privilege (the message has the command for it); turbo while hardware contexts
            are open, of this process or of another.
    """
    checked(mode)
    held = open_contexts()
    if mode == TURBO and held:
        raise ExecutionError(
            "power: turbo is set before the NPU is opened",
            got=f"{held} hardware contexts of this process are open",
            fix="close the Runtime (amd.close_shared() for what nx.compile made), set the mode, open it again",
        )
    one = _npu(roots, device)
    if one is None and xrt_smi.program(roots) is None:
        raise _nowhere(roots)
    command = f"sudo xrt-smi configure{f' -d {one.bdf}' if one is not None else ''} --pmode {mode}"
    try:
        if one is not None:
            _to_driver(mode, roots, one)
        else:
            xrt_smi.configure(roots, mode, device)
    except OSError as error:
        raise _refused(mode, roots, one, error, command) from error
    said = get(device, roots=roots)
    if said != mode:
        raise ExecutionError(f"power: {mode} was taken, and does not hold", got=said, expected=mode)


@contextmanager
def using(mode: str, device: str = "", *, roots: Roots = _HERE) -> Generator[str]:
    """The mode within a ``with`` statement, and the former one behind it; gives the former one.

    Open the NPU inside, so that turbo is set before its contexts are. Errors are those of `get` and `set`.
    """
    former = get(device, roots=roots)
    if former != checked(mode):
        set(mode, device, roots=roots)
    try:
        yield former
    finally:
        if get(device, roots=roots) != former:
            set(former, device, roots=roots)


def lower(device: str = "", *, roots: Roots = _HERE) -> str:
    """One step down, from turbo to performance, to balanced, to powersaver; gives the mode that holds then."""
    mode = get(device, roots=roots)
    if mode in _DOWN:
        set(_DOWN[mode], device, roots=roots)
    return _DOWN.get(mode, mode)


def for_workload(workload: str) -> str:
    """The mode that suits a kind of work.

    >>> for_workload("llm_inference"), for_workload("continuous_audio")
    ('turbo', 'balanced')
    """
    if workload not in WORKLOADS:
        raise ParameterError("power: no such workload", got=repr(workload), expected=", ".join(WORKLOADS))
    return WORKLOADS[workload]


def _to_driver(mode: str, roots: Roots, one: amdxdna.AmdxdnaDevice) -> None:
    try:
        amdxdna.set_power_mode(roots, one.node, mode)
    except OSError as error:
        # A driver that does not know the question may know the tool's.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY) or xrt_smi.program(roots) is None:
            raise
        xrt_smi.configure(roots, mode, one.bdf)


def _refused(
    mode: str, roots: Roots, one: amdxdna.AmdxdnaDevice | None, error: OSError, command: str
) -> ExecutionError:
    if error.errno in (errno.EACCES, errno.EPERM) or isinstance(error, PermissionError):
        return ExecutionError(
            f"power: {mode} needs privilege",
            got=str(error.strerror or error),
            expected="CAP_SYS_ADMIN, which the driver asks for since the mode is the whole machine's",
            fix=f"{command}; it holds until it is changed or the machine starts anew",
        )
    if error.errno == errno.EINVAL and mode == TURBO:
        return ExecutionError(
            "power: turbo is set before the NPU is opened",
            got=f"the driver refuses it while hardware contexts are open{_whose(roots, one)}",
            fix="end what runs on the NPU, set the mode, and start it again",
        )
    got = amdxdna.refusal(error, one.node) if one is not None and error.errno else str(error)
    return ExecutionError(f"power: {mode} cannot be set", got=got)


def _whose(roots: Roots, one: amdxdna.AmdxdnaDevice | None) -> str:
    if one is None:
        return ""
    try:
        pids = sorted({int(c.pid) for c in amdxdna.contexts(roots, one.node)})
    except OSError:
        return ""
    return f" (processes {', '.join(map(str, pids))})" if pids else ""


class AdvancedNPUOptimizer(Shown):
    """The power settings of an NPU as an object.

    Attributes:
        turbo_enabled: whether turbo was set through this object and nothing else since.
        performance_profile: the profile that was set last, "balanced" at first, which sets nothing.
        thermal_monitoring: whether a step up is refused while the NPU is above its warning temperature.
    """

    def __init__(self, device: str = "", *, roots: Roots = _HERE) -> None:
        self.device = device
        self.turbo_enabled = False
        self.performance_profile = "balanced"
        self.thermal_monitoring = True
        self._roots = roots

    def enable_turbo_mode(self) -> None:
        """Turbo: the highest clocks, never gated. Errors are those of `set`; too hot is an `ExecutionError` too."""
        self._set("turbo")

    def set_performance_profile(self, profile: str = "performance") -> None:
        """One of `PROFILES`: "performance", "balanced", "power-save", or a mode's own name."""
        if profile not in PROFILES:
            raise ParameterError("power: no such profile", got=repr(profile), expected=", ".join(PROFILES))
        self._set(PROFILES[profile])
        self.performance_profile = profile

    def optimize_for_workload(self, workload_type: str) -> str:
        """The mode that suits a kind of work, one of `WORKLOADS`; gives its name. There is one mode at a time."""
        mode = for_workload(workload_type)
        self.set_performance_profile(mode)
        return mode

    def _set(self, mode: str) -> None:
        if self.thermal_monitoring and mode in ("performance", "turbo"):
            reading = read("npu", "amd", self._roots)
            if reading.celsius is not None and reading.celsius > DEFAULT.warning:
                raise ExecutionError(
                    f"power: too hot for {mode}",
                    got=str(reading),
                    expected=f"at most {DEFAULT.warning:g} °C",
                    fix="wait, or set thermal_monitoring = False",
                )
        set(mode, self.device, roots=self._roots)
        self.turbo_enabled = mode == "turbo"

    def status(self) -> dict[str, str]:
        """The mode that holds and the NPU's sensors, as text; "unavailable" and why where nobody says."""
        try:
            mode = get(self.device, roots=self._roots)
        except NxError as error:
            mode = f"unavailable: {error.got or error.what}"
        return {"power mode": mode, "sensors": str(read("npu", roots=self._roots))}
