"""C++ text that runs codelets on the host: their own source, unchanged, and around each the loop over its vertices.

The sources of several codelets share one translation unit: each is put in a namespace of its own, since two instances
of one template both define it. Knows no compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from nxjax.kernels.ipu.spec import CTYPES, Codelet

_INCLUDE: Final = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n?", re.MULTILINE)
# Explicit instantiations are for Poplar's compiler; here the loop below instantiates.
_INSTANTIATION: Final = re.compile(r"^[ \t]*template[ \t]+class[^;{]*;[^\n]*\n?", re.MULTILINE)


def entry(number: int) -> str:
    """The symbol of the loop over the vertices of codelet ``number``."""
    return f"nx_run_{number}"


def translation_unit(codelets: Sequence[Codelet]) -> str:
    """C++ text that exports `entry(i)` for every codelet."""
    includes = dict.fromkeys(line.strip() for c in codelets for line in _INCLUDE.findall(c.source))
    parts = ["#include <nxhost.hpp>", *includes]
    for number, codelet in enumerate(codelets):
        body = _INSTANTIATION.sub("", _INCLUDE.sub("", codelet.source))
        parts.append(f"namespace nxc{number} {{ namespace {{\n{body}\n}}\n{_loop(number, codelet)}}}")
    return "\n".join(parts) + "\n"


def _loop(number: int, codelet: Codelet) -> str:
    begin: list[str] = []
    end: list[str] = []
    for i, field in enumerate(codelet.fields):
        ctype, column = CTYPES[field.dtype], f"l->columns[{i}]"
        begin.append(f"nxhost::connect(v.{field.name}, nxhost::begin<{ctype}>({column}, i, scratch), {column}.count);")
        if field.io != "in":
            end.append(f"nxhost::end<{ctype}>({column}, i, scratch);")
    for i, attribute in enumerate(codelet.attributes):
        begin.append(f"nxhost::set(v.{attribute.name}, l->numbers[{i}], i);")
    run = "for (unsigned w = 0; w < poplar::workersPerTile; ++w) v.compute(w);"
    body = "\n    ".join([*begin, run if codelet.kind == "multi" else "v.compute();", *end])
    return f"""extern "C" void {entry(number)}(const nxhost::Launch *l, long long first, long long last,
    char *scratch) {{
  using V = {codelet.name};
  alignas(V) unsigned char memory[sizeof(V)];
  V &v = *reinterpret_cast<V *>(memory);
  (void)scratch;
  for (long long i = first; i < last; ++i) {{
#ifdef NX_STOCHASTIC
    nxhost::randomState = nxhost::seedOf(l->seed, i);
#endif
    {body}
  }}
}}
"""
