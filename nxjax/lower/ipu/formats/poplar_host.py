"""The Poplar project built for this machine: the registration of its codelets, and the command, against our shim.

With it an emitted project runs without the SDK, so that what is emitted is code that works. Knows text, runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.kernels.ipu.spec import CTYPES, Codelet


def registration(found: Sequence[Codelet]) -> str:
    """C++ text that includes ``codelets.cpp`` and makes every codelet known to the shim's graph by name."""
    parts = ["#include <nxhost.hpp>", '#include "codelets.cpp"', "#include <poplar/Registry.hpp>", "", "namespace {"]
    for i, c in enumerate(found):
        fields = ",\n    ".join(
            f'{{"{f.name}", sizeof({CTYPES[f.dtype]}), {_bool(f.io != "out")}, {_bool(f.io != "in")}, '
            f"[](void *v, char *first, unsigned n) {{ nxhost::connect(static_cast<V{i} *>(v)->{f.name}, "
            f"reinterpret_cast<{CTYPES[f.dtype]} *>(first), n); }}}}"
            for f in c.fields
        )
        attributes = ",\n    ".join(
            f'{{"{a.name}", [](void *v, const void *word) {{ '
            f"const nxhost::Number n{{static_cast<const unsigned *>(word), 0}}; "
            f"nxhost::set(static_cast<V{i} *>(v)->{a.name}, n, 0); }}}}"
            for a in c.attributes
        )
        run = "for (unsigned w = 0; w < poplar::workersPerTile; ++w) vertex.compute(w);"
        parts += [
            f"using V{i} = {c.name};",
            f"const poplar::host::FieldEntry fields{i}[] = {{\n    {fields}}};",
            f"const poplar::host::AttributeEntry attributes{i}[] = {{\n    {attributes}}};"
            if attributes
            else f"const poplar::host::AttributeEntry *const attributes{i} = nullptr;",
            f"void run{i}(void *v) {{",
            f"  V{i} &vertex = *static_cast<V{i} *>(v);",
            f"  {run if c.kind == 'multi' else 'vertex.compute();'}",
            "}",
            f'poplar::host::CodeletEntry entry{i}{{"{c.name}", sizeof(V{i}), fields{i}, {len(c.fields)},',
            f"  attributes{i}, {len(c.attributes)}, run{i}, nullptr}};",
            f"const poplar::host::Registration registration{i}(&entry{i});",
        ]
    return "\n".join([*parts, "}  // namespace", ""])


def commands(compiler: str, shim: str) -> list[list[str]]:
    """What builds ``main.cpp`` and ``register.cpp`` into ``program``, in the folder of the project."""
    common = [compiler, "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]
    return [
        [*common, "-O1", f"-I{shim}/host", f"-I{shim}", "-I.", "-c", "register.cpp", "-o", "register.o"],
        [*common, "-O1", f"-I{shim}", "-I.", "-c", "main.cpp", "-o", "main.o"],
        [compiler, "main.o", "register.o", "-o", "program"],
    ]


def _bool(flag: bool) -> str:
    return "true" if flag else "false"
