"""`targets`: all targets, and how far this machine can verify each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Label
from nxjax.display import page
from nxjax.trace.boundary import entry


@final
@dataclass(frozen=True)
class TargetInfo:
    """One target: its name, chip, file format, precision, and the best label that this machine can give.

    ``forms`` are the usual variants of a target, which ``name:form`` selects.

    >>> target = next(t for t in nx.targets() if t.name == "tflite")
    >>> target.name, isinstance(target, Target)
    ('tflite', True)
    """

    name: str
    title: str
    format: str
    precision: tuple[str, ...]
    label: Label
    reason: str
    extra: str
    forms: tuple[str, ...] = ()

    @property
    def chip(self) -> str:
        """The chip with its forms, for people."""
        return f"{self.title} ({self.forms[0]} to {self.forms[-1]})" if self.forms else self.title


# Its public name; `nx.compile` takes names of the class `Target` of the backends.
Target = TargetInfo


@final
class Targets(tuple[TargetInfo, ...]):
    """The targets, printed as a table.

    >>> isinstance(nx.targets(), Targets), "tflite" in repr(nx.targets())
    (True, True)
    >>> nx.targets()["edge-tpu"].chip == nx.targets()["edgetpu"].chip
    True
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        """The target of a name, however it is spelled, or what a tuple has there."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        name = registry.get(key).name
        return next(t for t in self if t.name == name)

    def __repr__(self) -> str:
        rows = [("target", "chip", "format", "here", "because")]
        rows += [(t.name, t.chip, t.format, t.label, t.reason) for t in self]
        widths = [max(len(r[i]) for r in rows) for i in range(4)]
        return "\n".join(
            "  ".join([*(c.ljust(w) for c, w in zip(r[:4], widths, strict=True)), r[4]]).rstrip() for r in rows
        )

    def _repr_html_(self) -> str:
        rows = [(t.name, t.chip, t.format, t.label, t.reason) for t in self]
        return page.page(page.table(("target", "chip", "format", "here", "because"), rows))


@entry
def targets() -> Targets:
    """All targets of `compile`, and how far this machine can verify each.

    >>> [t.format for t in targets() if t.name == "tflite"]
    ['tflite']
    """
    found = []
    for name in registry.names():
        target = registry.get(name)
        label, reason = target.here()
        found.append(
            TargetInfo(name, target.title, target.format, target.precision, label, reason, target.extra, target.forms)
        )
    return Targets(found)
