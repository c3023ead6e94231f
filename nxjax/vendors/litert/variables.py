"""LiteRT on files that keep a state in variables: a call sets them, runs a signature, and reads them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

from nxjax.backends.extras import need
from nxjax.errors import ExecutionError
from nxjax.lower.npu.formats.tflite_file import tables
from nxjax.lower.npu.formats.tflite_variables import RESTORE, SAVE, StatefulGraph, StateVariable
from nxjax.ops.base import NDArray


@final
class StatefulSession:
    """The main signature of such a file as a function of the state: as `LiteRTSession` runs a file without one.

    Args:
        data: the bytes of the file.
        given: the graph that the signature was written from.
        variables: in the order of their numbers.
        resolver: LiteRT's name of the kernels.
    """

    def __init__(self, data: bytes, given: StatefulGraph, variables: Sequence[StateVariable], resolver: Any) -> None:
        runtime = need("ai_edge_litert.interpreter", "litert", "the TFLite runtime")
        self.given, self.variables, self.lock = given, variables, threading.Lock()
        self._interpreter = runtime.Interpreter(model_content=data, experimental_op_resolver_type=resolver)
        rows = {row["signature_key"]: row for row in tables(data)["signature_defs"]}
        named = lambda row, kind: [str(entry["name"]) for entry in row[kind] or ()]
        self._names = {key: (named(row, "inputs"), named(row, "outputs")) for key, row in rows.items()}

    def call(self, signature: str, args: Sequence[NDArray]) -> list[NDArray]:
        """The results of a signature, in order; the variables are what the last call left."""
        inputs, outputs = self._names[signature]
        try:
            made: dict[str, Any] = self._interpreter.get_signature_runner(signature)(
                **dict(zip(inputs, args, strict=True))
            )
        except (RuntimeError, ValueError) as error:
            said = str(error).replace("\n", " ")
            raise ExecutionError(f"tflite: LiteRT failed in the signature {signature!r}", got=said) from error
        return [made[name] for name in outputs]

    def __call__(self, args: Sequence[NDArray]) -> list[NDArray]:
        """Graph inputs to graph outputs, the state among both, in storage dtypes."""
        given = self.given
        with self.lock:
            held = {number: args[place] for place, number in given.reads.items()}
            self.call(RESTORE, [held.get(i, v.first) for i, v in enumerate(self.variables)])
            results = iter(self.call(given.name, [x for place, x in enumerate(args) if place not in given.reads]))
            state = self.call(SAVE, [])
            ends = range(len(given.graph.outputs))
            return [state[given.writes[i]] if i in given.writes else next(results) for i in ends]
