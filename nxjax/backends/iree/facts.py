"""What a Vulkan device says of itself, read from the words of IREE's driver. Knows no compiler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from nxjax.backends.evidence import Label

# PCI's numbers, and Khronos' for those without one.
VENDORS: Final = {
    0x1002: "AMD", 0x10DE: "NVIDIA", 0x8086: "Intel", 0x13B5: "Arm", 0x5143: "Qualcomm", 0x106B: "Apple",
    0x1010: "Imagination", 0x10005: "Mesa", 0x1AE0: "Google",
}  # fmt: skip
# Rasterisers that compute on the host's CPU, whatever kind they say they are.
_SOFTWARE: Final = ("llvmpipe", "lavapipe", "swiftshader")
# Bits of VkSubgroupFeatureFlagBits.
_ARITHMETIC, _SHUFFLE = 0x4, 0x10


@final
@dataclass(frozen=True)
class DeviceProperties:
    """A device in its driver's words.

    Attributes:
        name, path: as the driver lists it; the path names it in every process.
        kind: ``cpu``, ``integrated``, ``discrete``, ``virtual`` or ``other``.
        api: the version of Vulkan.
        driver: its name and release.
        subgroup: least, usual and largest number of invocations that run as one.
        operations: bits of what a subgroup can do.
        features: what a shader may use, by Vulkan's names.
        heaps: bytes of the memory heaps.
        text: all of it, as it was said.
    """

    name: str
    path: str
    kind: str = "other"
    vendor: int = 0
    api: str = ""
    driver: str = ""
    subgroup: tuple[int, int, int] = (0, 0, 0)
    operations: int = 0
    features: frozenset[str] = frozenset()
    heaps: tuple[int, ...] = ()
    text: str = ""

    @property
    def vendor_name(self) -> str:
        return VENDORS.get(self.vendor, f"vendor {self.vendor:#06x}")

    @property
    def is_software(self) -> bool:
        """Whether the host's CPU does the work."""
        return self.kind == "cpu" or any(s in f"{self.name} {self.driver}".lower() for s in _SOFTWARE)

    @property
    def label(self) -> Label:
        """``hardware`` for what says that it is a GPU; what does not say its kind is not taken for one."""
        return "host" if self.is_software or self.kind == "other" else "hardware"

    @property
    def shuffles(self) -> bool:
        """Whether the invocations of a subgroup can add up and pass on values among themselves."""
        return self.operations & (_ARITHMETIC | _SHUFFLE) == _ARITHMETIC | _SHUFFLE

    def has(self, feature: str) -> bool:
        return feature in self.features


def parse(name: str, path: str, text: str) -> DeviceProperties:
    """The facts in a driver's words; what is missing in them stays unknown.

    >>> parse("g", "p", "type: cpu\\nvendor_id: 0x8086\\nsubgroup: size=8 operations=0x14").subgroup
    (8, 8, 8)
    """
    one = lambda key: m[1].strip() if (m := re.search(rf"^{key}: (.*)$", text, re.MULTILINE)) else ""
    number = lambda key, line: int(m[1], 0) if (m := re.search(rf"\b{key}=(0x[0-9a-fA-F]+|\d+)", line)) else 0
    kind = next((k for k in ("cpu", "integrated", "discrete", "virtual") if k in one("type").lower()), "other")
    group = one("subgroup")
    size = number("size", group)
    try:
        vendor = int(one("vendor_id") or "0", 0)
    except ValueError:
        vendor = 0
    return DeviceProperties(
        one("name") or name,
        path,
        kind,
        vendor,
        one("api"),
        " ".join(filter(None, (one("driver"), one("driver_info")))),
        (number("minSubgroupSize", group) or size, size, number("maxSubgroupSize", group) or size),
        number("operations", group),
        frozenset(re.findall(r"(\w+)=yes\b", one("features"))),
        tuple(int(n) for n in re.findall(r"^ {2}\[\d+\] size=(\d+)", text, re.MULTILINE)),
        text,
    )
