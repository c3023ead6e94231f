"""The layers of a function as weight methods see them: which leaf is which layer's weight or bias, what enters it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.quant.matrices import from_matrices, matrices, rows
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Dot, QuantConv, Weighted
from nxjax.quant.qarray import QArray, leaves_of
from nxjax.quant.results import operand_error
from nxjax.quant.scheme import as_policy
from nxjax.trace import tree
from nxjax.trace.array import wrap
from nxjax.trace.program import Atom, Equation, Var
from nxjax.transforms.jit import jit

NDArray = np.ndarray[Any, Any]


@final
@dataclass(eq=False)
class WeightLayer:
    """A product whose weights are a leaf of the arguments.

    Attributes:
        name: as in policies.
        group: in the plan.
        leaf: number of the weight's leaf.
        order: the permutation from the leaf's dimensions to those of the product's weights.
        bias: number of the bias' leaf, if one is added as it is.
    """

    name: str
    group: Weighted
    leaf: int
    order: tuple[int, ...]
    bias: int | None

    @property
    def grouped(self) -> bool:
        return isinstance(self.group, QuantConv) and self.group.product.params["feature_group_count"] > 1

    def matrix(self, w: NDArray) -> NDArray:
        """Weights in the product's layout as [outputs, summed]; see `restored`."""
        m = matrices(self.group, w)
        return m.reshape(-1, m.shape[2])

    def restored(self, m: NDArray, shape: Sequence[int]) -> NDArray:
        """The inverse of `matrix`."""
        return from_matrices(self.group, m, shape)

    def summed(self) -> tuple[int, ...]:
        """Dimensions of the product's weights that are summed over; of a convolution features, then the window."""
        if isinstance(self.group, QuantConv):
            return tuple(self.group.product.params["dimension_numbers"].rhs_spec[1:])
        assert isinstance(self.group, Dot)
        return self.group.summed_in_order()

    def inputs(self, x: NDArray) -> NDArray:
        """What the product sums, as rows [samples, summed]: for a convolution the patches under its window."""
        r = rows(self.group, wrap(np.asarray(x, np.float32))).numpy()
        return r.transpose(1, 0, 2).reshape(r.shape[1], -1)


@final
class Layers:
    """The layers of a function, for one set of arguments."""

    def __init__(self, fun: Callable[..., Any], policy: Any, params: Sequence[int] | int | None, args: Any) -> None:
        self.fun = fun
        self.policy = as_policy(policy)
        self.params = params
        self.leaves, self.treedef = leaves_of(args, {})
        call = PlannedCall(fun, args, {}, params)
        self.plan: QuantPlan = call.plan(self.policy, "weights")
        self.places = {v: i for i, v in enumerate(self.plan.program.inputs)}
        self.producer: dict[Var, Equation] = {v: e for e in self.plan.program.equations for v in e.outputs}
        self.layers = [layer for g in self.plan.groups() if isinstance(g, Weighted) and (layer := self._layer(g))]
        if not self.layers:
            raise ParameterError(
                "weights: no product takes its weights from the arguments",
                expected="weights in a parameter tree among the arguments",
                fix="pass the parameters as an argument instead of closing over them",
            )

    def _layer(self, group: Weighted) -> WeightLayer | None:
        found = self._leaf(group.weight)
        if found is None:
            return None
        leaf, order = found
        biases = [self._leaf(s.operand) for s in group.steps if s.op == "add"]
        bias = biases[0][0] if len(group.steps) == 1 and len(biases) == 1 and biases[0] is not None else None
        return WeightLayer(self.plan.layer(group), group, leaf, order, bias)

    def _leaf(self, a: Atom) -> tuple[int, tuple[int, ...]] | None:
        """The leaf that ``a`` is, and the permutation on the way."""
        if not isinstance(a, Var):
            return None
        if a in self.places:
            return self.places[a], tuple(range(a.type.ndim))
        e = self.producer.get(a)
        if e is not None and e.op.name == "transpose":
            inner = self._leaf(e.inputs[0])
            if inner is not None:
                return inner[0], tuple(inner[1][i] for i in e.params["permutation"])
        return None

    def weight(self, layer: WeightLayer) -> NDArray:
        """The layer's weights in its product's layout."""
        x = self.leaves[layer.leaf]
        return np.asarray(np.asarray(x), np.float32).transpose(layer.order)

    def set_weight(self, layer: WeightLayer, w: NDArray) -> None:
        back = w.transpose(np.argsort(layer.order))
        self.leaves[layer.leaf] = wrap(np.ascontiguousarray(back, np.float32))

    def set_stored(self, layer: WeightLayer, values: NDArray, scale: NDArray) -> None:
        """Quantized weights, in the product's layout."""
        back = np.argsort(layer.order)
        self.leaves[layer.leaf] = QArray(
            wrap(np.ascontiguousarray(values.transpose(back))),
            wrap(np.ascontiguousarray(scale.transpose(back), np.float32)),
        )

    def result(self) -> Any:
        """The argument that is the parameter tree; all of them as a tuple if weights lie in several."""
        args, _ = tree.unflatten(self.treedef, self.leaves)
        holding: list[int] = []
        start = 0
        for i, a in enumerate(args):
            n = len(leaves_of((a,), {})[0])
            if any(start <= layer.leaf < start + n for layer in self.layers):
                holding.append(i)
            start += n
        return args[holding[0]] if len(holding) == 1 else tuple(args[i] for i in holding)

    def observe(
        self, data: Iterable[tuple[Any, ...]], take: Callable[[WeightLayer, NDArray], None], name: str = "weights"
    ) -> None:
        """Call ``take`` with every layer's float input, batch by batch; numbers that are not finite are an error.

        Args:
            name: of the function that was called.
        """
        wanted = self.layers

        def inputs(*args: Any) -> list[Any]:
            call = PlannedCall(self.fun, args, {}, self.params)
            plan = call.plan(self.policy, "weights")
            walk = StatisticsTrace(plan, Ranges())
            walk.run(call.values)
            groups = {plan.layer(g): g for g in plan.groups()}
            return [walk.value(groups[layer.name].activations[0]) for layer in wanted]

        run = jit(inputs)
        for n, args in enumerate(data, 1):
            for layer, v in zip(wanted, run(*args), strict=True):
                x = np.asarray(v)
                if not (np.isfinite(x).all() and np.isfinite(self.weight(layer)).all()):
                    raise operand_error(name, layer.name, n, args, layer.group.product.source)
                take(layer, x)
