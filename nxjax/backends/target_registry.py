"""Which targets there are: built-in ones by module, others by the entry point group ``nxjax.targets``.

Each module lists its classes in ``TARGETS``; vendors' packages are imported only when a target is built.
"""

from __future__ import annotations

import difflib
import importlib
import warnings
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final

from nxjax.backends.target import Kind, NpuTarget, ProgramTarget, Target
from nxjax.errors import ParameterError

MODULES: Final = (
    "vendors.litert.target",
    "vendors.arm.ethosu",
    "vendors.google.edgetpu",
    "vendors.qualcomm.target",
    "vendors.litert.aot",
    "vendors.intel.target",
    "vendors.apple.target",
    "vendors.amd.vitisai",
    "vendors.rockchip.target",
    "vendors.onnx.target",
    "vendors.graphcore.popart",
    "vendors.stablehlo",
    "backends.tpu.target",
    "vendors.amd.aie.target",
    "backends.ipu.target",
    "backends.ipu.poplar_target",
)
GROUP: Final = "nxjax.targets"


AnyTarget = Target[Any]


def register(cls: type[AnyTarget]) -> type[AnyTarget]:
    """Class decorator: make a target known in this process. Packages use the entry point instead."""
    _classes()[_checked(cls, cls).name] = cls
    return cls


def _checked(cls: object, where: object) -> type[AnyTarget]:
    if not (isinstance(cls, type) and issubclass(cls, (NpuTarget, ProgramTarget))):
        raise ParameterError(
            "targets: no target", got=where, expected="a class derived from NpuTarget or ProgramTarget"
        )
    # What is read of every target at once: one that has it wrong would take all others with it.
    words = {name: getattr(cls, name, None) for name in ("name", "title", "format")}
    if missing := [name for name, given in words.items() if not (isinstance(given, str) and given)]:
        raise ParameterError(f"targets: {where} has no {' and no '.join(missing)}", expected="words")
    if wrong := [kind for kind in cls.chips if not isinstance(kind, Kind)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError(
            f"targets: chips of {words['name']}", got=wrong[0], expected="families of chips: Kind(...)"
        )
    return cls


@lru_cache(1)
def _classes() -> dict[str, type[AnyTarget]]:
    found: dict[str, type[AnyTarget]] = {}
    for name in MODULES:
        module = importlib.import_module(f"nxjax.{name}")
        targets: tuple[type[AnyTarget], ...] = module.TARGETS
        found.update((cls.name, cls) for cls in targets)
    for entry in entry_points(group=GROUP):
        where = f"entry point {entry.name!r}: {entry.value}"
        try:
            loaded = _checked(entry.load(), where)
            if found.get(loaded.name, loaded) is not loaded:
                raise ParameterError(f"{found[loaded.name].__module__} has a target {loaded.name!r} already")
        except (Exception, SystemExit) as error:
            # Whatever a package raises: the other targets do not depend on it.
            why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            warnings.warn(f"{where} is left out of the targets: {why}", RuntimeWarning, stacklevel=2)
            continue
        found[loaded.name] = loaded
    return found


def classes() -> tuple[type[AnyTarget], ...]:
    """Every known target's class, in the order of the vendors."""
    return tuple(_classes().values())


def names() -> list[str]:
    """Every known target, in the order of the vendors."""
    return list(_classes())


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _spelled(name: str) -> type[AnyTarget] | None:
    """The target of that name, or of that alias, but for case, hyphens and underscores: ``edge-tpu``, ``EthosU55``."""
    return next((cls for cls in _classes().values() if _plain(name) in map(_plain, (cls.name, *cls.aliases))), None)


# What users call the chips of a family that no target's name has as a part -> the targets to choose from.
_FAMILIES: Final = {
    "npu": ("ethos-u55", "edgetpu", "qualcomm-htp", "intel-npu", "apple-ane", "amd-xdna", "rockchip"),
    "coral": ("edgetpu",),
    "tpu": ("tpu-v5e", "tpu-v6e", "edgetpu"),
    "google": ("edgetpu", "google-tensor", "tpu-v5e"),
    "arm": ("ethos-u55", "ethos-u65", "ethos-u85"),
    "vela": ("ethos-u55", "ethos-u65", "ethos-u85"),
    "snapdragon": ("qualcomm-htp", "qualcomm-litert"),
    "hexagon": ("qualcomm-htp", "qualcomm-litert"),
    "qnn": ("qualcomm-htp",),
    "coreml": ("apple-ane",),
    "m1": ("apple-ane",),
    "ryzen": ("amd-xdna",),
    "vitis": ("amd-xdna",),
    "graphcore": ("ipu-bow", "ipu-gc200", "graphcore-popart"),
    "rknn": ("rockchip-rk3588", "rockchip"),
    "openvino": ("intel-npu", "openvino-gpu", "openvino-cpu"),
    "xla": ("stablehlo",),
    "hlo": ("stablehlo",),
    "litert": ("tflite",),
    "pixel": ("google-tensor",),
    "android": ("tflite", "qualcomm-htp", "google-tensor", "samsung-exynos", "mediatek-apu"),
    "ios": ("apple-ane",),
}
# What `compile` has no files for, since functions run there directly.
_DEVICES: Final = {
    **dict.fromkeys(("gpu", "cuda", "nvidia", "jetson", "tensorrt", "rocm", "metal", "mps", "vulkan"), "gpu"),
    **dict.fromkeys(("cpu", "x86", "host"), "cpu"),
}


def _instead(name: str) -> str:
    """What to write for the name of no target."""
    word = _plain(name)
    device = _DEVICES.get(word)
    if device is not None:
        return f'compile writes files for other chips; to run on this machine, write nx.jit(f, device="{device}")'
    # `rk3588`, `intel` and `apple` are parts of names; a chip is often written with another separator.
    having = [n for n in _classes() if word and word in map(_plain, n.split("-"))]
    near = list(_FAMILIES.get(word) or having[:4])
    # `coral-tpu`, `ryzen-ai`: a family with more after it.
    near = near or [n for family in _FAMILIES if len(family) > 3 and word.startswith(family) for n in _FAMILIES[family]]
    near = near or difflib.get_close_matches(name.lower(), _classes(), 3, 0.5)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "nx.targets() lists them"


def get(name: str) -> AnyTarget:
    """The target called ``name``; `ParameterError` names the nearest ones where there is none.

    A target that comes in several forms is asked for by name and form, as in ``tpu-v4:2x2x1``.
    """
    name, colon, form = str(name).partition(":")
    found = _classes().get(name) or _spelled(name)
    if found is None:
        raise ParameterError(
            "compile: no such target",
            got=repr(name),
            expected=", ".join(names()),
            fix=_instead(name),
        )
    return _formed(found, form) if colon else _made(found)


@lru_cache(None)
def _made(cls: type[AnyTarget]) -> AnyTarget:
    return cls()


@lru_cache(256)
def _formed(cls: type[AnyTarget], form: str) -> AnyTarget:
    return cls.of(form)


def npu(name: str, where: str) -> NpuTarget:
    """The target called ``name``, which has to be one that is written from a graph."""
    found = get(name)
    if not isinstance(found, NpuTarget):
        known = ", ".join(n for n, cls in _classes().items() if issubclass(cls, NpuTarget))
        raise ParameterError(f"{where}: {found.name} is a file format, not an NPU", got=repr(name), expected=known)
    return found
