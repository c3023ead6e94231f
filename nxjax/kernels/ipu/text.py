"""What codelets that are written out have in common: a class without template arguments, its types in its name.

Knows no computation.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from nxjax.kernels.ipu.spec import CTYPES, Attribute, Codelet, Field

# Dtypes of codelets' operands that are compared, added, ... as they are.
NUMBERS: Final = tuple(CTYPES)

_SHARE: Final = """struct Range {
  unsigned first, last;
};

// What one worker does of `count` elements: whole runs of `grain`.
inline Range share(unsigned count, unsigned grain, unsigned wid, unsigned workers) {
  const unsigned runs = (count + grain - 1) / grain;
  const unsigned first = runs * wid / workers * grain, last = runs * (wid + 1) / workers * grain;
  return {first < count ? first : count, last < count ? last : count};
}

// Elements of a row that is `width` long, in runs of whole 64-bit words: workers must not write one word together.
inline unsigned grainOf(unsigned width, unsigned itemsize) { return width * itemsize % 8 == 0 ? 1 : 8 / itemsize; }
"""


class TextCodelet(Codelet):
    """A codelet whose class is written out by `body`: types come from ``using``, members from the fields."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The class's own name."""

    @property
    @abstractmethod
    def types(self) -> dict[str, str]:
        """Names that the body uses -> dtypes."""

    @property
    @abstractmethod
    def body(self) -> str:
        """The members after fields and attributes: ``compute`` and what it calls."""

    @property
    def helpers(self) -> str:
        """Functions before the class."""
        return ""

    @property
    def spans(self) -> Sequence[str]:
        """Fields whose size the body asks for."""
        return ()

    @property
    def name(self) -> str:
        return f"nx::{self.label}"

    @property
    def source(self) -> str:
        base = {"multi": "MultiVertex", "worker": "Vertex", "supervisor": "SupervisorVertex"}[self.kind]
        using = "".join(f"  using {name} = {CTYPES[dtype]};\n" for name, dtype in self.types.items())
        fields = "".join(f"  {_member(f, f.name in self.spans)}\n" for f in self.fields)
        attributes = "".join(f"  const {a.ctype} {a.name};\n" for a in self.attributes)
        share = _SHARE if self.kind == "multi" else ""
        return f"""#include <cmath>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

namespace nx {{

namespace {{

{share}
{self.helpers}
}}  // namespace

class {self.label} : public poplar::{base} {{
 public:
{using}{fields}{attributes}
{self.body}
}};

}}  // namespace nx
"""


def _member(field: Field, span: bool) -> str:
    io = {"in": "Input", "out": "Output", "inout": "InOut"}[field.io]
    layout = f"poplar::VectorLayout::{'SPAN' if span else 'ONE_PTR'}"
    more = f"{field.align}, true" if field.interleaved else str(field.align)
    return f"poplar::{io}<poplar::Vector<{CTYPES[field.dtype]}, {layout}, {more}>> {field.name};"


def unsigned(*names: str) -> tuple[Attribute, ...]:
    return tuple(Attribute(n, "unsigned") for n in names)


def digest(*parts: object) -> str:
    """A few letters that tell codelets apart whose parameters are too long for a name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:10]


def lowest(dtype: str) -> str:
    """C++ text of the value below all others."""
    return _LIMITS[dtype][0]


def highest(dtype: str) -> str:
    return _LIMITS[dtype][1]


_INFINITE: Final = ("-__builtin_inff()", "__builtin_inff()")
_LIMITS: Final = {
    "float32": _INFINITE,
    "float16": _INFINITE,
    "int32": ("(-2147483647 - 1)", "2147483647"),
    "uint32": ("0u", "4294967295u"),
    "int16": ("-32768", "32767"),
    "uint16": ("0", "65535"),
    "int8": ("-128", "127"),
    "uint8": ("0", "255"),
    "bool": ("false", "true"),
}
