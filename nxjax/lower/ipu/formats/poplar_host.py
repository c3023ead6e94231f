"""The Poplar project built for this machine: registrations of its codelets, and the commands, against our shim.

With it an emitted project runs without the SDK, so that what is emitted is code that works. Knows text, runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.kernels.ipu.spec import CTYPES, Codelet


def registrations(found: Sequence[Codelet]) -> dict[str, str]:
    """File name -> C++ text that includes a codelet's file and makes it known to the shim's graph by its name."""
    return {f"register_{i}.cpp": _registration(c, f"codelet_{i}.cpp") for i, c in enumerate(found)}


def _registration(c: Codelet, file: str) -> str:
    fields = ",\n    ".join(
        f'{{"{f.name}", sizeof({CTYPES[f.dtype]}), {_bool(f.io != "out")}, {_bool(f.io != "in")}, '
        f"[](void *v, char *first, unsigned n) {{ nxhost::connect(static_cast<V *>(v)->{f.name}, "
        f"reinterpret_cast<{CTYPES[f.dtype]} *>(first), n); }}}}"
        for f in c.fields
    )
    attributes = ",\n    ".join(
        f'{{"{a.name}", [](void *v, const void *word) {{ '
        f"const nxhost::Number n{{static_cast<const unsigned *>(word), 0}}; "
        f"nxhost::set(static_cast<V *>(v)->{a.name}, n, 0); }}}}"
        for a in c.attributes
    )
    run = "for (unsigned w = 0; w < poplar::workersPerTile; ++w) vertex.compute(w);"
    lines = [
        "#include <nxhost.hpp>",
        f'#include "{file}"',
        "#include <poplar/Registry.hpp>",
        "",
        "namespace {",
        f"using V = {c.name};",
        f"const poplar::host::FieldEntry fields[] = {{\n    {fields}}};",
        f"const poplar::host::AttributeEntry attributes[] = {{\n    {attributes}}};"
        if attributes
        else "const poplar::host::AttributeEntry *const attributes = nullptr;",
        "void run(void *v) {",
        "  V &vertex = *static_cast<V *>(v);",
        f"  {run if c.kind == 'multi' else 'vertex.compute();'}",
        "}",
        f'poplar::host::CodeletEntry entry{{"{c.name}", sizeof(V), fields, {len(c.fields)}, attributes,',
        f"  {len(c.attributes)}, run, nullptr}};",
        "const poplar::host::Registration registration(&entry);",
        "}  // namespace",
        "",
    ]
    return "\n".join(lines)


def compilations(compiler: str, shim: str, codelets: int) -> list[list[str]]:
    """Commands that may run side by side: they compile ``main.cpp`` and each codelet, in the folder of the project."""
    common = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]
    main = [*common, f"-I{shim}", "-I.", "-c", "main.cpp", "-o", "main.o"]
    each = [
        [*common, f"-I{shim}/host", f"-I{shim}", "-I.", "-c", f"register_{i}.cpp", "-o", f"register_{i}.o"]
        for i in range(codelets)
    ]
    return [main, *each]


def link(compiler: str, codelets: int) -> list[str]:
    """The command that makes ``program`` of them."""
    return [compiler, "main.o", *(f"register_{i}.o" for i in range(codelets)), "-o", "program"]


def _bool(flag: bool) -> str:
    return "true" if flag else "false"
