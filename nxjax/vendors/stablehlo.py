"""StableHLO artifacts, for compilers that read the exchange format of XLA: Intel Gaudi's, Groq's, IREE and others.

A file is written from the program itself, so that all of the language has a place in it, loops and sorting too; the
exact integer arithmetic of a quantized program is spelled out in its operations, with weights as int8 constants.
Claimed are the file, that StableHLO's own verifier takes it, and what XLA's CPU compiler computes from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from nxjax.backends.evidence import Label, digests
from nxjax.backends.extras import need
from nxjax.backends.target import Build, ProgramTarget, Run, Runner, Target, file_name, only, variant
from nxjax.backends.xla import client, portable
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.errors import ParameterError
from nxjax.lower.passes.narrow import narrow
from nxjax.lower.placement import Verdict
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.support import check_portable, verdict
from nxjax.ops.base import NDArray
from nxjax.trace.array import wrap
from nxjax.trace.program import Equation, Program
from nxjax.transforms.inline import inlined
from nxjax.vendors.onnx.target import NO_COMPILER

FORMS: Final = ("text", "portable")


class StablehloTarget(ProgramTarget):
    """A compiler that reads StableHLO.

    Options of `build`: ``form``: "text" (MLIR, which needs no package) or "portable" (a versioned portable artifact,
    which needs jaxlib), ``version`` of the latter (the newest that tools 12 weeks old can read).
    """

    format: ClassVar[str] = "stablehlo"
    extra: ClassVar[str] = "xla"
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float32", "float16", "bfloat16", "float64")
    # A file for any reader: what a chip takes of it is for its compiler to say.
    rules: ClassVar[str] = ""

    def available(self) -> tuple[Label, str]:
        found, reason = client.available()
        if not found:
            return "emitted", f"{reason}; it would check the file and run it on the host"
        return "emitted", NO_COMPILER

    def supports(self, equation: Equation) -> Verdict:
        return verdict(equation)

    def build(self, subject: Program, options: dict[str, object]) -> Build:
        only(self.name, options, ("form", "version"))
        form, version = options.get("form", "text"), options.get("version")
        if form not in FORMS or not (version is None or isinstance(version, str)) or (version and form == "text"):
            raise ParameterError(
                f"{self.name}: options", got=options, expected=f"form {' or '.join(FORMS)}; version, of portable files"
            )
        rows = self.placed(subject)
        check_portable(self.name, rows)
        text, _ = lower(narrow(inlined(subject)))
        name = file_name(subject.name, "mlir")
        build = Build({name: text.encode()}, rows, notes=[self.available()[1]])
        if form == "portable" or client.available()[0]:
            need("jaxlib", self.extra, "checking StableHLO and writing portable artifacts")
            self._checked(build, text, subject, str(form), version)
        build.cost.add("file", max(map(len, build.files.values())), "bytes", "measured")
        return build

    def _checked(self, build: Build, text: str, program: Program, form: str, version: str | None) -> None:
        """Put the verified module in the build, and what runs it."""
        module = portable.legalized(text)
        text = str(module)
        if form == "portable":
            data, version = portable.serialized(module, version)
            # What runs here is what the file says.
            text = portable.deserialized(data)
            build.files = {file_name(program.name, "mlirbc"): data}
            build.notes.append(f"portable artifact of StableHLO {version}")
        else:
            build.files = {name: text.encode() for name in build.files}
        title = f"XLA on the host, jaxlib {client.jaxlib_version()}"
        build.runner = Runner(host(text, program), title, "host", digests(build.files))


def host(text: str, program: Program) -> Run:
    """XLA's CPU compiler for a module with the types of ``program``."""
    executable = XlaExecutable(compile_text(text), text, program.out_types)

    def run(args: Sequence[NDArray]) -> list[NDArray]:
        values: Any = [wrap(np.ascontiguousarray(x)) for x in args]
        return [y.numpy() for y in executable(values)]

    return run


# The plain file, for any tool that reads StableHLO, and chips whose compilers do.
_CHIPS: Final = (("habana-gaudi", "Intel Habana Gaudi"), ("groq", "Groq LPU"))
TARGETS: Final[tuple[type[Target[Any]], ...]] = (
    variant(StablehloTarget, "stablehlo", "StableHLO file"),
    *(variant(StablehloTarget, f"{c}-stablehlo", f"{title} (StableHLO)", site="data center") for c, title in _CHIPS),
)
