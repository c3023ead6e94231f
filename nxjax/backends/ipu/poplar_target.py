"""The target ``poplar``: a program as a Poplar C++ project, taken as far as the SDK on this machine goes.

The label is what has happened: ``vendor-compiled`` once popc has compiled the codelets, ``hardware`` once IPUs have run
the program, else ``emitted``. Without the SDK what runs is the project itself, built against our shim of Poplar's
interfaces: it shows that the project computes the right values, and says nothing about a chip.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, final

from nxjax.backends import target_registry
from nxjax.backends.evidence import Label, digests
from nxjax.backends.ipu.detect import compiler as popc_here
from nxjax.backends.ipu.detect import hardware
from nxjax.backends.ipu.executable import from_tiles, to_tiles
from nxjax.backends.ipu.model import CycleModel
from nxjax.backends.ipu.poplar import RUNS, On, PoplarProject, sdk
from nxjax.backends.ipu.target import OPTIONS, BuildOptions, rows
from nxjax.backends.target import Build, OnChip, ProgramTarget, Runner, Site, Target, file_name, only
from nxjax.errors import NxError, ParameterError
from nxjax.kernels.ipu.chip import system
from nxjax.kernels.ipu.host_compiler import compiler
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.precision import in_half
from nxjax.lower.ipu.program import NDArray
from nxjax.lower.placement import Placement, Verdict
from nxjax.trace.program import Equation, Program


@final
class Poplar(ProgramTarget):
    """A Poplar C++ project.

    Options of `build`: those of the IPU targets, and ``system``: which IPUs it is planned for ("bow" by default).
    """

    name: ClassVar[str] = "poplar"
    title: ClassVar[str] = "Graphcore Poplar C++ project"
    format: ClassVar[str] = "poplar"
    site: ClassVar[Site] = "data center"
    precision: ClassVar[tuple[str, ...]] = ("float32", "float16", "int8")
    device: ClassVar[OnChip] = "ipu"
    binds: ClassVar[bool] = False

    def available(self) -> tuple[Label, str]:
        found, reason = sdk()
        return ("vendor-compiled", f"{reason}; {hardware().reason}") if found else ("emitted", reason)

    def supports(self, equation: Equation) -> Verdict:
        return target_registry.get("ipu-bow").supports(equation)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]

    def placed(self, subject: Program) -> list[Placement]:
        return target_registry.get("ipu-bow").placed(subject)

    def build(self, subject: Program, options: dict[str, object]) -> Build:
        only(self.name, options, (*OPTIONS, "system"))
        chosen = options.get("system", "bow")
        if not isinstance(chosen, str):
            raise ParameterError("poplar: system", got=repr(chosen), expected="a name such as 'bow' or 'pod16'")
        given = {k: v for k, v in options.items() if k != "system"}
        how = BuildOptions(self.name, replace(system(chosen), ipus=1), subject, given)
        program = in_half(subject) if how.options.precision == "float16" else subject
        made = lower(program, how.system, how.options, how.donate, subject.name)
        model = CycleModel(made)
        model.memory.check()
        project = PoplarProject(made)
        made_by_popc, said = project.compiled_by_sdk()
        folder = file_name(subject.name, "poplar")
        files = {f"{folder}/{name}": data for name, data in project.files.items()}
        build = Build(files, rows(subject), notes=[said], analysis=model)
        codelets = [name for name in files if name.startswith(f"{folder}/codelet_") and name.endswith(".cpp")]
        if made_by_popc:
            build.record("compiled", "vendor-compiler", "popc", status=0, took=digests(files, codelets), answer=said)
        elif popc_here()[0]:
            build.record("failed", "vendor-compiler", "popc", took=digests(files, codelets), answer=said)
        build.cost.add("chip time", model.cycles.seconds, "s", "model")
        build.cost.add("cycles", model.cycles.total, "cycles", "model")
        if not how.compile_only:
            self._run(build, project, made_by_popc, subject)
        return build

    def _run(self, build: Build, project: PoplarProject, made_by_popc: bool, subject: Program) -> None:
        """What runs it here."""
        on: On = "host"
        if made_by_popc and sdk()[0]:
            try:
                with tempfile.TemporaryDirectory(prefix="nxjax-poplar-") as name:
                    project.build(project.save(name))
                on = "ipu" if hardware().usable else "cpu"
            except NxError as error:
                build.notes.append(f"the SDK runs nothing of it here: {error.what}: {error.got or ''}"[:600])
        if on == "host" and not compiler()[0]:
            return
        inputs, types = project.program.inputs, subject.out_types

        def run(args: Sequence[NDArray]) -> list[NDArray]:
            fed = [to_tiles(x, v.dtype) for x, v in zip(args, inputs, strict=True)]
            return [from_tiles(y, t) for y, t in zip(project.run(fed, on), types, strict=True)]

        build.runner = Runner(run, _ON[on], RUNS[on], digests(build.files))
        build.notes.append(f"run: {build.runs_on}")


_ON: Final[dict[On, str]] = {
    "ipu": "IPUs, through the Poplar SDK",
    "cpu": "the Poplar SDK's CPU device",
    "host": "the project built against nxjax's shim of Poplar, on the host",
}
TARGETS: Final[tuple[type[Target[Any]], ...]] = (Poplar,)
