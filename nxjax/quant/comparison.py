"""`compare`: a quantized function against its float original, layer by layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.display import page
from nxjax.display.columns import columns
from nxjax.errors import MissingExtraError, ParameterError, Source
from nxjax.quant.calibration import given
from nxjax.quant.function import Quantized
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import macs
from nxjax.quant.walk import Quantizer
from nxjax.trace import dtypes
from nxjax.trace.boundary import entry
from nxjax.trace.program import Var
from nxjax.transforms.jit import jit

NDArray = np.ndarray[Any, Any]


@final
@dataclass
class LayerDifference:
    """One layer's result in float and quantized, over all data.

    Attributes:
        name: as in policies.
        op: its first op.
        source: the user's line.
        scale: the step of its grid; None if the result is float.
        sqnr: signal to quantization noise in dB: ten times the decimal logarithm of mean x^2 over mean error^2.
        max_error: the largest absolute difference.
        lsb: difference in steps of the grid -> number of elements; steps beyond 8 count as 8.
        macs: multiply-accumulates of one run.
    """

    name: str
    op: str
    source: Source | None
    scale: float | None
    signal: float = 0.0
    noise: float = 0.0
    max_error: float = 0.0
    lsb: dict[int, int] = field(default_factory=dict[int, int])
    macs: int = 0

    @property
    def sqnr(self) -> float:
        if self.noise == 0:
            return float("inf")
        return 10 * float(np.log10(max(self.signal, 1e-300) / self.noise))

    def add(self, x: NDArray, q: NDArray) -> None:
        """One batch."""
        with np.errstate(invalid="ignore"):
            # The difference of two infinities is none, and lies as far off as can be.
            error = q.astype(np.float64) - x.astype(np.float64)
        self.signal += float(np.sum(x.astype(np.float64) ** 2))
        self.noise += float(np.sum(error**2))
        self.max_error = max(self.max_error, float(np.abs(error).max(initial=0.0)))
        if self.scale is not None:
            steps = np.clip(np.rint(np.nan_to_num(error / self.scale, nan=8)), -8, 8).astype(int)
            for k, n in zip(*np.unique(steps, return_counts=True), strict=True):
                self.lsb[int(k)] = self.lsb.get(int(k), 0) + int(n)


@final
class Comparison:
    """Layers in program order; ``[name]`` returns one. Prints as a table.

    >>> f = lambda p, x: jnp.tanh(x @ p["w"])
    >>> batch = ({"w": jnp.ones((2, 2))}, jnp.array([[0.5, -0.25]]))
    >>> c = compare(f, nx.quantize(f, calibrate=[batch]), [batch])
    >>> len(c), c["tanh_0"].op, c.worst.sqnr > 20
    (2, 'tanh', True)
    """

    @entry
    def __init__(self, layers: Sequence[LayerDifference], batches: int) -> None:
        self.layers = list(layers)
        self.batches = batches

    def __getitem__(self, name: str) -> LayerDifference:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"no layer {name!r}; there are {', '.join(layer.name for layer in self.layers)}")

    def __iter__(self) -> Any:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def worst(self) -> LayerDifference:
        """The layer with the lowest SQNR, or without one, for its values are not finite."""
        return min(self.layers, key=lambda layer: layer.sqnr if layer.sqnr == layer.sqnr else -np.inf)

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                r.name,
                f"{r.sqnr:.1f}",
                f"{r.max_error:.3g}",
                _spread(r.lsb),
                str(r.source) if r.source else "",
            )
            for r in self.layers
        ]

    def __repr__(self) -> str:
        return "\n".join(columns([_HEAD, *self._rows()]))

    def _repr_html_(self) -> str:
        return page.page(page.table(_HEAD, self._rows()))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """SQNR per layer above, the histogram of steps below; a Matplotlib figure, written to ``path`` if given."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingExtraError(
                "Comparison.plot needs Matplotlib", got="no module 'matplotlib'", fix="pip install 'nxjax[demo]'"
            ) from None
        names = [r.name for r in self.layers]
        figure = Figure(figsize=(max(6.0, 0.35 * len(names)), 6.0), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        finite = [r.sqnr if np.isfinite(r.sqnr) else np.nan for r in self.layers]
        top.bar(range(len(names)), finite, color="#4c72b0")
        top.set_ylabel("SQNR (dB)")
        top.set_title(f"{len(names)} layers, {self.batches} batches")
        steps = np.arange(-8, 9)
        grid = np.array([[r.lsb.get(int(k), 0) for r in self.layers] for k in steps], float)
        grid /= np.maximum(grid.sum(0, keepdims=True), 1)
        image = bottom.imshow(grid, aspect="auto", origin="lower", extent=(-0.5, len(names) - 0.5, -8.5, 8.5))
        figure.colorbar(image, ax=bottom, label="share of elements")
        bottom.set_ylabel("difference (LSB)")
        bottom.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


_HEAD = ("layer", "SQNR dB", "max error", "steps off (0, 1, more)", "your line")


def _spread(lsb: dict[int, int]) -> str:
    total = sum(lsb.values())
    if not total:
        return ""
    zero, one = lsb.get(0, 0), lsb.get(1, 0) + lsb.get(-1, 0)
    return f"{zero / total:.1%} {one / total:.1%} {(total - zero - one) / total:.1%}"


@entry
def compare(fun: Callable[..., Any], quantized: Quantized, data: Iterable[Any]) -> Comparison:
    """Compare every layer's quantized result with its float result.

    Args:
        fun: the float function; its program must be that of ``quantized``.
        quantized: from `quantize`.
        data: an iterable of argument tuples, as for calibration.

    Returns:
        One row per layer: SQNR, largest error, histogram of differences in steps of the layer's grid. What lies where
        all readers make the same of it, as a tanh does far out, differs only up to there; what a mask takes out of a
        softmax does not differ. Layers inside scans, loops and conditions are not listed, only the results of these.

    Raises:
        ParameterError: not a quantized function, or no data.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> f = lambda p, x: np.tanh(x @ p["w"])
    >>> batch = ({"w": np.ones((2, 2))}, np.array([[0.5, -0.25]]))
    >>> c = compare(f, nx.quantize(f, calibrate=[batch]), [batch])
    >>> [layer.name for layer in c]
    ['dot_general_0', 'tanh_0']
    """
    if not isinstance(quantized, Quantized):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError(
            "compare: needs a quantized function", got=type(quantized).__name__, expected="nx.quantize(...)"
        )
    rows: list[_Row] = []
    grids: list[float | None] = []

    def both(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, quantized.params)
        plan = quantized.plan(call)
        rows[:] = _rows_of(plan)
        walk = Quantizer(plan, quantized.ranges, call.stored(plan), corrections=quantized.corrections)
        walk.run(call.values)
        plain = StatisticsTrace(plan, Ranges())
        plain.run(call.values)
        found = [walk.grid_of(row.value) for row in rows]
        grids[:] = [None if grid is None else float(np.asarray(grid.scale)) for grid in found]
        # What a mask makes very low lies below the grid, and its readers make 0 of it.
        for i, (row, grid) in enumerate(zip(rows, found, strict=True)):
            if grid is not None and row.value in plan.masked:
                rows[i] = row._replace(bounds=(max(row.bounds[0], grid.bounds[0]), row.bounds[1]))
        return [(plain.env[row.value], walk.env[row.value]) for row in rows]

    run = jit(both)
    layers: list[LayerDifference] = []
    n = 0
    for args in given(fun, data, "compare"):
        pairs = run(*args)
        n += 1
        if not layers:
            layers = [
                LayerDifference(row.name, row.op, row.source, scale, macs=row.macs)
                for row, scale in zip(rows, grids, strict=True)
            ]
        for layer, row, (x, q) in zip(layers, rows, pairs, strict=True):
            layer.add(np.clip(np.asarray(x), *row.bounds), np.clip(np.asarray(q), *row.bounds))
    return Comparison(layers, n)


class _Row(NamedTuple):
    """What a row of the table is of."""

    name: str
    op: str
    source: Source | None
    value: Var
    macs: int
    bounds: tuple[float, float] = (-np.inf, np.inf)


def _rows_of(plan: QuantPlan) -> list[_Row]:
    """A row per group, and per float result of an equation that holds programs."""
    rows: list[_Row] = []
    for step in plan.steps:
        if isinstance(step, FusedGroup):
            e = step.equations[0]
            bounds = plan.bounds.get(step.output, (-np.inf, np.inf))
            rows.append(_Row(plan.layer(step), e.op.name, e.source, step.output, macs(step), bounds))
        elif isinstance(step, Inner):
            e = step.equation
            floats = [v for v in e.outputs if v.type.dtype == dtypes.float32]
            rows += [_Row(plan.names[v], e.op.name, e.source, v, 0) for v in floats]
    return rows
