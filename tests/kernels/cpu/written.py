"""A kernel that a test writes in place: its body, and what it means."""

import inspect

from nxjax.kernels.cpu.base import Kernel, KernelCost


class Written(Kernel):
    """``body(f, isa, words, scratch, index)`` for each item; its text, and ``about``, are its key."""

    def __init__(self, body, meaning, items=1, scratch=0, about="", integers=()):
        self.body, self._meaning = body, meaning
        self.items, self.grain, self.scratch = items, 1, scratch
        self._about, self._integers = about, integers

    @property
    def key(self):
        return f"written({self._about} {inspect.getsource(self.body)})"

    @property
    def integers(self):
        return self._integers

    def meaning(self, *xs):
        return self._meaning(*xs)

    def emit(self, module, isa):
        f, words, lo, hi, scratch = self.function(module)
        with f.loop(lo, hi) as item:
            self.body(f, isa, words, scratch, item.index)
        f.ret()

    def touches(self):
        return None  # whatever its body does

    def cost(self):
        return KernelCost(0, 0, 0)
