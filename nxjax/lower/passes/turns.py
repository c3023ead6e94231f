"""Products of a scan's turns as one product of all turns, before or after the loop.

A product of few rows is bound by reading its matrix, a product of all turns' rows by arithmetic. Three kinds do not
wait for a carry, or no carry waits for them::

    before   x @ w where x is this turn's slice, w the same in every turn: slices of xs @ w
    after    ys row = v @ w where nobody else reads it: (stacked v) @ w
    sums     carry + v' @ u, handed on and read by nothing else: first carry + (stacked v)' @ (stacked u)

So gradients of weights, which sum over turns, become one product. Sums of products have another order then: this is for
lowerings that choose the order of such sums, not for `simplify`. Knows no device.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, final

from nxjax.lower.passes.loops import trimmed
from nxjax.ops.arithmetic import add
from nxjax.ops.dot import free
from nxjax.trace import dtypes
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams

# Rows of a turn's product with a matrix of at least `LARGE` bytes, rows with any matrix, and depth of a product that is
# summed, above which it is no slower than a large one.
ROWS: Final = 256
LARGE: Final = 128 << 10
FEW: Final = 4
DEPTH: Final = 128
# With fewer turns there is nothing to gain.
TURNS: Final = 4
# Bytes that may be stacked for it: what the loop reads and writes anyway, so many times, or this much.
TIMES: Final = 2
SMALL: Final = 16 << 20


def staged(e: Equation) -> Program | None:
    """The results of the scan ``e``, whose body has no consts, for its operands; None: nothing leaves the loop."""
    loop: LoopParams = e.params["loop"]
    if len(loop.step_indices()) < TURNS or not any(inner.op.name == "dot_general" for inner in loop.body.equations):
        return None
    return _Stages(e).result()


def _bytes(t: ArrayType) -> int:
    return t.size * t.dtype.itemsize


@final
class _Stages:
    def __init__(self, e: Equation) -> None:
        loop: LoopParams = e.params["loop"]
        inner = loop.inside(loop.body.inputs)
        self.e = e
        self.loop, self.body = loop, loop.body
        self.length = len(loop.step_indices())
        # The operands, as variables of the new program, by what they are inside.
        self.operands = [Var(a.type) for a in e.inputs]
        self.outside: dict[Atom, Var] = dict(zip(self.body.inputs, self.operands, strict=True))
        self.consts: set[Atom] = set(inner.consts)
        self.carries = inner.carry
        self.xs: list[Var] = list(inner.xs)
        self.ys: list[Atom] = list(loop.results(self.body.outputs)[1])
        self.stacks: list[Var] = list(loop.results(e.outputs)[1])
        self.reads = Counter(a for inner in self.body.equations for a in inner.inputs)
        self.reads.update(self.body.outputs)
        self.readers = {a: inner for inner in self.body.equations for a in inner.inputs}
        self.room = max(SMALL, TIMES * sum(_bytes(v.type) for v in (*self.operands, *e.outputs)))
        self.before: list[Equation] = []
        self.after: list[Equation] = []
        self.gone: set[Equation] = set()
        self.settled: set[int] = set()  # carries that became sums after the loop

    def result(self) -> Program | None:
        for inner in self.body.equations:
            if inner.op.name == "dot_general" and inner.params["dimension_numbers"][1] == ((), ()):
                _ = self._early(inner) or self._late(inner) or self._sum(inner)
        if not self.gone:
            return None
        e, body, kept = self.e, self.body, [i for i in range(len(self.carries)) if i not in self.settled]
        inside = [*self.loop.inside(body.inputs).consts, *(self.carries[i] for i in kept), *self.xs]
        outputs = [*(body.outputs[i] for i in kept), *self.ys]
        smaller = Program(inside, [inner for inner in body.equations if inner not in self.gone], outputs)
        operands = tuple([self.outside[v] for v in inside])
        results = (*(e.outputs[i] for i in kept), *self.stacks)
        new = {"loop": self.loop._replace(body=smaller, num_carry=len(kept))}
        asked = {a for inner in self.after for a in inner.inputs}
        loop = trimmed(e.replaced(operands, results, new), [v for v in results if v in asked or v in e.outputs])
        left = [loop] if loop.outputs or loop.effect else []
        return Program(self.operands, [*self.before, *left, *self.after], e.outputs)

    # --- what leaves ---

    def _early(self, e: Equation) -> bool:
        x, w = e.inputs
        if x not in self.xs or w not in self.consts or not self._pays(e) or not self._takes(e.outputs[0].type):
            return False
        product = self._of_all(e.outputs[0])
        self.before.append(self._product(e, self.outside[x], self.outside[w], product))
        self.xs.append(e.outputs[0])
        self.outside[e.outputs[0]] = product
        self.gone.add(e)
        return True

    def _late(self, e: Equation) -> bool:
        x, w = e.inputs
        y = e.outputs[0]
        if x in self.consts or w not in self.consts or not self._pays(e):
            return False
        if self.reads[y] != 1 or y not in self.ys or not self._stackable(x):
            return False
        i = self.ys.index(y)
        product = self.stacks.pop(i)
        del self.ys[i]
        self.after.append(self._product(e, self._stacked(x), self.outside[w], product))
        self.gone.add(e)
        return True

    def _sum(self, e: Equation) -> bool:
        y = e.outputs[0]
        total = self.readers.get(y)
        if total is None or self.reads[y] != 1 or total.op is not add or y.type.dtype not in dtypes.FLOAT:
            return False
        carry = total.inputs[1 if total.inputs[0] is y else 0]
        after = total.outputs[0]
        i = self.carries.index(carry) if carry in self.carries else -1  # pyright: ignore[reportArgumentType]
        if i < 0 or self.body.outputs[i] is not after or self.reads[carry] != 1 or self.reads[after] != 1:
            return False
        x, w = e.inputs
        (xc, wc), none = e.params["dimension_numbers"]
        depth = math.prod(x.type.shape[d] for d in xc)
        if depth > DEPTH or not all(v not in self.consts and self._stackable(v) for v in (x, w)):
            return False
        product = Var(y.type)
        numbers = (((0, *(d + 1 for d in xc)), (0, *(d + 1 for d in wc))), none)
        operands = (self._stacked(x), self._stacked(w))
        self.after.append(e.replaced(operands, (product,), {**e.params, "dimension_numbers": numbers}))
        self.after.append(total.replaced((self.outside[carry], product), (self.e.outputs[i],)))
        self.gone.update((e, total))
        self.settled.add(i)
        return True

    # --- parts ---

    def _pays(self, e: Equation) -> bool:
        """Whether a turn's product is bound by reading its right operand."""
        x, w = (a.type for a in e.inputs)
        rows = math.prod(x.shape[d] for d in free(len(x.shape), e.params["dimension_numbers"][0][0]))
        return rows <= (ROWS if _bytes(w) >= LARGE else FEW)

    def _of_all(self, v: Atom) -> Var:
        return Var(ArrayType((self.length, *v.type.shape), v.type.dtype))

    def _takes(self, t: ArrayType) -> bool:
        """Whether there is room for a stack of ``t``, which is taken."""
        need = self.length * _bytes(t)
        if need > self.room:
            return False
        self.room -= need
        return True

    def _stackable(self, v: Atom) -> bool:
        return isinstance(v, Var) and (v in self.xs or v in self.ys or self._takes(v.type))

    def _stacked(self, v: Atom) -> Var:
        """All turns' ``v``, outside."""
        if v in self.xs:
            return self.outside[v]
        if v not in self.ys:
            self.ys.append(v)
            self.stacks.append(self._of_all(v))
        return self.stacks[self.ys.index(v)]

    def _product(self, e: Equation, x: Var, w: Var, out: Var) -> Equation:
        """``e`` with a further dimension of its left operand and of its result."""
        (xc, wc), none = e.params["dimension_numbers"]
        numbers = ((tuple([d + 1 for d in xc]), wc), none)
        return e.replaced((x, w), (out,), {**e.params, "dimension_numbers": numbers})
