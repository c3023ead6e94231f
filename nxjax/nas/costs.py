"""Costs of an architecture on a target, asked of the target's own compiler: cycles, time, memory, weights.

Nothing is trained for it: the function is quantized on random numbers, since a chip takes nearly as long for any
weights (Ethos-U reads compressed ones, of which random ones are the longest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.backends import target_registry
from nxjax.deploy.compile import compile
from nxjax.errors import ParameterError, Shown
from nxjax.lower.placement import Basis
from nxjax.quant.function import quantize
from nxjax.runtime import disable_jit
from nxjax.trace import tree

# ``(function, params, example)``: ``function(params, *example)`` is what is deployed.
Deployed = tuple[Callable[..., Any], Any, tuple[Any, ...]]


@final
class Costs(Shown):
    """``costs(model)`` returns a target's figures for a model, by name, with ``_`` for blanks.

    Args:
        target: a name from `nx.targets`.
        deployed: ``deployed(model)`` returns the function to deploy, its parameters, and example inputs.
        policy: for quantization; "int8" unless the target computes in floats. None does not quantize.
        figures: which figures to return; by default all of the target's.
        **options: of the target.

    Attributes:
        basis: after the first call, the source of each figure: measured, vendor-estimate or model.

    Raises:
        ParameterError: on a call, if a part of the model would run on the host, because its time is not in the figures
            (``partial=True`` allows it), or if the target has no such figure.

    >>> from nxjax.example_libraries import stax
    >>> def deployed(width):
    ...     init, apply = stax.serial(stax.Dense(width), stax.Relu, stax.Dense(4))
    ...     return apply, init(nx.random.key(0), (1, 8))[1], (nx.numpy.ones((1, 8)),)
    >>> costs = Costs("tflite", deployed)
    >>> costs(8)["macs"] < costs(16)["macs"]
    True
    """

    def __init__(
        self,
        target: str,
        deployed: Callable[[Any], Deployed],
        *,
        policy: Any = "",
        figures: Sequence[str] = (),
        partial: bool = False,
        **options: Any,
    ) -> None:
        self.target = target_registry.get(target)
        self.deployed = deployed
        self.policy = ("int8" if "int8" in self.target.precision else None) if policy == "" else policy
        self.figures = tuple(figures)
        self.partial = partial
        self.options = options
        self.basis: dict[str, Basis] = {}

    def __call__(self, model: Any) -> dict[str, float]:
        function, params, example = self.deployed(model)
        if self.policy is not None:
            rng = np.random.default_rng(0)
            drawn = lambda x: rng.standard_normal(np.shape(x)).astype(np.asarray(x).dtype)
            batch = (params, *tree.map(drawn, tuple(example)))
            # One batch of one architecture: compiling for it would take longer than it does.
            with disable_jit():
                function = quantize(function, self.policy, calibrate=[batch])
        made = compile(function, target=self.target.name, constants=0, verify=False, progress=False, **self.options)
        artifact = made(params, *example)
        left = [p for p in artifact.report.rows if p.device == "host"]
        if left and not (self.partial or self.target.host):
            raise ParameterError(
                f"nas: {self.target.name} leaves a part of this architecture to the host, whose time it does not count",
                got=f"{left[0].op} {left[0].name}: {left[0].reason}",
                fix="leave such ops out of the space, or pass partial=True",
            )
        found = {name.replace(" ", "_"): f for name, f in artifact.cost.figures.items()}
        y = {name: f.value for name, f in found.items()}
        self.basis = {name: f.basis for name, f in found.items()}
        if "macs" not in y:
            y["macs"] = float(sum(p.macs for p in artifact.report.rows))
            self.basis["macs"] = "model"
        missing = [name for name in self.figures if name not in y]
        if missing:
            raise ParameterError(
                f"nas: {self.target.name} has no such figure",
                got=", ".join(missing),
                expected=", ".join(y),
                fix=artifact.cost.why if "latency" in missing else None,
            )
        return {name: y[name] for name in self.figures} if self.figures else y
