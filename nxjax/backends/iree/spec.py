"""For which GPU the compiler is told to make code: candidates for a device, best first. Decides by facts alone.

IREE knows some GPUs by name. For all others a description is written from what the device says of itself: above all its
subgroup size, since code for another size computes wrong sums. A candidate is only believed after it has passed the
self-test (`nxjax.backends.iree.selftest`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final, final

from nxjax.backends.iree.facts import DeviceProperties
from nxjax.errors import ParameterError

# What IREE's compiler knows by name; it ends its process on others.
NAMES: Final = (
    "adreno", "ada", "ampere", "turing", "rdna1", "rdna2", "rdna3", "rdna4", "valhall1", "valhall4",
)  # fmt: skip
VARIABLE: Final = "NXJAX_VULKAN_TARGET"
# Architectures by the names that devices carry (Mesa's and the vendors' own).
_BY_NAME: Final = (
    (r"navi ?4|gfx12|RX 90\d\d|R9700", "rdna4"),
    (r"navi ?3|gfx11|phoenix|hawk|strix|RX 7\d\d\d|7[468]0M|8[4-9]0M|8060S|W7\d00", "rdna3"),
    (r"navi ?2|gfx103|rembrandt|raphael|mendocino|van ?gogh|RX 6\d\d\d|6[68]0M|610M", "rdna2"),
    (r"navi ?1|gfx101|RX 5[3-7]\d\d", "rdna1"),
    (r"RTX (?:\w+ )?40\d\d|RTX (?:\w+ )?\d000 (?:\w+ )?Ada|\bL4\b|\bL40", "ada"),
    (r"RTX (?:\w+ )?30\d\d|RTX A\d|\bA100|\bA10\b|\bA30\b|\bA40\b|H100|H200|RTX (?:\w+ )?50\d\d", "ampere"),
    (r"RTX (?:\w+ )?20\d\d|GTX 16\d\d|\bT4\b|Quadro RTX|TITAN RTX", "turing"),
    (r"adreno", "adreno"),
    (r"Mali-G(?:57|68|77|78|310|510|610|710)", "valhall1"),
    (r"Mali-G(?:615|620|715|720)|Immortalis", "valhall4"),
)
# What every Vulkan device grants (Vulkan 1.3, required limits).
_INVOCATIONS, _SHARED = 128, 16384


@final
@dataclass(frozen=True)
class Spec:
    """A GPU as the compiler is told of it.

    Attributes:
        name: for reports.
        flags: for the compiler's command line.
        attribute: of the module, where the target is a description.
    """

    name: str
    flags: tuple[str, ...]
    attribute: str = ""

    def applied(self, text: str) -> str:
        """The text of a module with the target in it."""
        if not self.attribute:
            return text
        head, brace, rest = text.partition("{")
        return f"{head}attributes {{hal.device.targets = [{self.attribute}]}} {brace}{rest}"


def named(name: str) -> Spec:
    """A target that the compiler knows by name.

    Raises:
        ParameterError: it does not: it would end on it.
    """
    if name not in NAMES:
        raise ParameterError("vulkan: no such target", got=name, expected=", ".join(NAMES), fix=f"correct {VARIABLE}")
    return Spec(name, ("--iree-hal-target-device=vulkan", f"--iree-vulkan-target={name}"))


def described(f: DeviceProperties, subgroups: bool = True, dot: bool = True) -> Spec:
    """A target from what the device says.

    Arithmetic of 8 and 16 bits is told of where shaders have it, 64-bit integers never (they are written in 32 bits,
    which all devices have), float64 always: whether it works is tested.

    Args:
        subgroups: use what the invocations of a subgroup can do together.
        dot: use the instruction for products of four bytes.
    """
    compute, storage = ["fp64", "fp32", "int32"], ["b64", "b32"]
    if f.has("shaderFloat16"):
        compute.append("fp16")
    if f.has("shaderInt8"):
        compute += ["int16", "int8"]
    if f.has("storageBuffer16BitAccess"):
        storage.append("b16")
    if f.has("storageBuffer8BitAccess"):
        storage.append("b8")
    together = subgroups and f.shuffles
    dots = dot and f.has("shaderIntegerDotProduct") and f.has("shaderInt8")
    # One size, the usual one: a driver may choose another of several, and sums across a subgroup would be wrong.
    low, size, high = f.subgroup[0], f.subgroup[1] or 32, f.subgroup[2]
    version = "v1.6" if re.match(r"1\.[3-9]", f.api) else "v1.3"
    text = (
        '#hal.device.target<"vulkan", [#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", '
        "{iree_codegen.target_info = #iree_gpu.target<"
        f'arch = "", features = "spirv:{version},cap:Shader", wgp = <compute = {"|".join(compute)}, '
        f"storage = {'|'.join(storage)}, subgroup = {'shuffle|arithmetic' if together else 'none'}, "
        f"{'dot = dp4xi8toi32, ' if dots else ''}subgroup_size_choices = [{size}], "
        f"max_workgroup_sizes = [{_INVOCATIONS}, {_INVOCATIONS}, 64], "
        f"max_thread_count_per_workgroup = {_INVOCATIONS}, max_workgroup_memory_bytes = {_SHARED}, "
        "max_workgroup_counts = [65535, 65535, 65535]>>}>]> : !hal.device"
    )
    title = f"described: subgroups of {size}" + (f" ({low} to {high})" if low != high else "")
    return Spec(title + ("" if together else ", each alone") + ("" if dots else ", no dot product"), (), text)


def architecture(f: DeviceProperties) -> str:
    """The name that IREE has for a device; empty where it has none.

    >>> architecture(DeviceProperties("AMD Radeon 780M (RADV PHOENIX)", ""))
    'rdna3'
    >>> architecture(DeviceProperties("Intel(R) Graphics (MTL)", ""))
    ''
    """
    return next((n for pattern, n in _BY_NAME if re.search(pattern, f.name, re.IGNORECASE)), "")


def candidates(f: DeviceProperties) -> list[Spec]:
    """Targets to try, best first.

    The one that the user names; the one that IREE has for the device, which may use its matrix units; the description,
    then with ever less in it. A software rasteriser gets no GPU's name.

    Raises:
        ParameterError: ``NXJAX_VULKAN_TARGET`` names none.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted:
        return [named(wanted)]
    known = "" if f.is_software else architecture(f)
    found = [described(f), described(f, subgroups=False), described(f, subgroups=False, dot=False)]
    return [*([named(known)] if known else []), *dict.fromkeys(found)]
