"""A vendor's plug-in that runs whole programs, by nxjax itself in the child; told to die at calls, or to be wrong."""

import os
import signal
from pathlib import Path

import numpy as np

import nxjax.core
from nxjax.backends.hybrid.plugin import read_program


class Chip:
    def __init__(self, options):
        self.options = options
        self.calls = 0

    def describe(self):
        return {
            "device": "program chip",
            "label": "vendor-simulator",
            "exact": True,
            "form": self.options.get("form", "nxjax"),
            "ops": ["mul", "add", "dot_general", "broadcast_in_dim", "convert_element_type"],
        }

    def prepare(self, form, payload, options, arrays):
        if form == "stablehlo":
            assert b"stablehlo.multiply" in payload or b"stablehlo.add" in payload
            raise ValueError("this chip has no compiler")
        program = read_program(payload)
        return lambda xs: nxjax.core.eval_jaxpr(program, [], *arrays, *xs)

    def run(self, handle, arrays):
        self.calls += 1
        flag = Path(self.options["flag"])
        if self.calls == self.options.get("dies") and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        results = [np.asarray(y) for y in handle([np.array(a) for a in arrays])]
        return [y + 1 for y in results] if self.calls > self.options.get("lies", 1000) else results


def connect(options):
    return Chip(options)
