"""Ask both libraries every case of an area, in every mode, and say what came out."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.differential.answer import Nothing, Refused, answer, differs, nearer
from benchmarks.differential.case import Case
from benchmarks.differential.remembered import Remembered, asked
from benchmarks.differential.truth import NUMPY

SAME = ("same", "nearer", "both refuse")
# What `import jax` alone does not bring.
LATER = (
    *("scipy.optimize", "scipy.spatial.transform", "scipy.cluster.vq", "scipy.interpolate", "scipy.integrate"),
    *("flatten_util", "ad_checkpoint", "test_util", "experimental.ode"),
)
CLEAR_AFTER = 100  # cases: compiled programs hold 5 MB each case, and mappings, of which a process has 65,530


@dataclass(frozen=True)
class Verdict:
    """What came of one case in one mode.

    ``kind``: "same"; "nearer" (another value than JAX's, at least as near to JAX's own in twice the precision, or
    to the case's ``truth``);
    "both refuse"; "accepts" (JAX refuses); or a difference: "refuses", "structure", "shape", "dtype", "weak", "value".
    """

    case: Case
    mode: str
    kind: str
    detail: str = ""

    @property
    def different(self) -> bool:
        return self.kind not in SAME and self.kind != "accepts"

    def __str__(self) -> str:
        return f"{self.kind} [{self.mode}] {self.case}\n    {self.detail}"


def verdicts(cases: Iterable[Case], *, fresh: bool = False) -> Iterator[Verdict]:
    """What comes of each case in each of its modes; ``fresh``: JAX is asked even what it has answered before."""
    import jax

    import nxjax

    for module in LATER:
        importlib.import_module(f"jax.{module}")
    for i, case in enumerate(cases):
        if i % CLEAR_AFTER == CLEAR_AFTER - 1:
            jax.clear_caches()
            nxjax.clear_caches()
        for mode in case.modes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = _verdict(case, mode, nxjax, jax, fresh)
            if found is not None:
                yield found
                if mode == "call" and found.kind != "same":
                    break  # the other modes would say the same again


def _verdict(case: Case, mode: str, nxjax: object, jax: object, fresh: bool) -> Verdict | None:
    ours, our_error = _or_error(lambda: answer(case, mode, nxjax))
    if isinstance(our_error, Nothing):
        return None
    peers, peer_error = _or_error(lambda: asked(case, mode, jax, fresh=fresh))
    if our_error is not None and peer_error is not None:
        return Verdict(case, mode, "both refuse", f"ours: {_told(our_error)}\n    JAX:  {_told(peer_error)}")
    if our_error is not None:
        return Verdict(case, mode, "refuses", f"ours: {_told(our_error)}\n    JAX:  {peers}")
    if peer_error is not None:
        return Verdict(case, mode, "accepts", f"ours: {ours}\n    JAX:  {_told(peer_error)}")
    kind = differs(ours, peers, case.tolerance)
    if not kind:
        return Verdict(case, mode, "same")
    detail = f"ours: {ours}\n    JAX:  {peers}"
    if kind == "value":
        truth = _truth(case, mode, jax, fresh)
        detail += f"\n    in 64 bits: {truth}"
        if truth is not None and nearer(ours, peers, truth, case.tolerance):
            kind = "nearer"
        elif (named := _named(case, mode)) is not None:
            detail += f"\n    truth: {named}"
            if nearer(ours, peers, named, case.tolerance):
                kind = "nearer"
    return Verdict(case, mode, kind, detail)


def _or_error(ask: Callable[[], list]) -> tuple[list, BaseException | None]:
    try:
        return ask(), None
    except Refused as refused:
        return [], refused.__cause__


def _truth(case: Case, mode: str, jax: object, fresh: bool) -> list | None:
    with jax.enable_x64(True):
        try:
            return asked(case, mode, jax, wide=True, fresh=fresh)
        except Refused:
            return None


def _named(case: Case, mode: str) -> list | None:
    """What the case's own truth says."""
    if case.truth is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return answer(replace(case, make=lambda _: case.truth), mode, NUMPY, wide=True)
    except Refused:
        return None


def _told(error: BaseException | None) -> str:
    if isinstance(error, Remembered):
        return " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
