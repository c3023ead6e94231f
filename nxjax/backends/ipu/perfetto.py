"""A run as Perfetto's JSON: compute, exchange and sync by the model's cycles. Opens in ui.perfetto.dev."""

from __future__ import annotations

import json
from typing import Any, Final

from nxjax.backends.ipu.cycles import CycleCount, StepCycles
from nxjax.lower.ipu.program import Call, IpuProgram, Repeat, Step, Switch, While

# A run of more steps is cut off: nobody reads further, and the file would be large.
MOST_EVENTS: Final = 100_000
PARTS: Final = ("copying", "sync", "exchange", "links", "compute", "control")


def phases(s: StepCycles) -> list[tuple[str, int]]:
    """The phases of one run of a step, in order, with their cycles; empty ones left out."""
    e = s.exchange
    found = zip(PARTS, (e.copying, e.sync, e.exchange, e.links, s.compute, s.control), strict=True)
    return [(name, cycles) for name, cycles in found if cycles]


def path(program: IpuProgram, cycles: CycleCount, most: int = MOST_EVENTS) -> list[StepCycles]:
    """Steps in the order of a run. A loop that a run left early, and branches, are drawn from their average rounds."""
    known = {id(s.step): (s, n) for s, n in cycles.steps}
    found: list[StepCycles] = []

    def times(steps: tuple[Step, ...]) -> int:
        """Rounds of a body, from its first step that says."""
        return next((known[id(s)][1] for s in steps if id(s) in known and not isinstance(s, Repeat)), 0)

    def run(steps: tuple[Step, ...], entered: int) -> None:
        for step in steps:
            if len(found) >= most:
                return
            if id(step) in known and not isinstance(step, (Repeat, While)):
                found.append(known[id(step)][0])
            match step:
                case Repeat(count=n, body=body):
                    for _ in range(n):
                        if len(found) >= most:
                            return
                        run(body, entered * n)
                        if id(step) in known:
                            found.append(known[id(step)][0])
                case While(condition=condition, body=body):
                    tests = known[id(step)][1] if id(step) in known else 0
                    rounds = max(round(tests / max(entered, 1)) - 1, 0)
                    for i in range(rounds + 1):
                        if len(found) >= most:
                            return
                        run(condition, tests)
                        if id(step) in known:
                            found.append(known[id(step)][0])
                        if i < rounds:
                            run(body, tests - entered)
                case Switch(branches=branches):
                    taken = max(branches, key=times)
                    run(taken, times(taken))
                case Call(function=name):
                    run(program.functions[name], max(times(program.functions[name]), 1))
                case _:
                    pass

    run(program.steps, 1)
    return found


def trace(cycles: CycleCount) -> str:
    """The run as a JSON text of Perfetto's (Chrome's) trace event format; times in microseconds of the model."""
    chip = cycles.system.chip
    scale = 1e6 / chip.clock
    rows = {name: i + 1 for i, name in enumerate(PARTS)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{cycles.system.title} (model)"}},
        *({"ph": "M", "pid": 1, "tid": i, "name": "thread_name", "args": {"name": n}} for n, i in rows.items()),
    ]
    now = 0
    for s in path(cycles.program, cycles):
        for name, length in phases(s):
            args: dict[str, Any] = {"cycles": length}
            if s.source is not None:
                args["at"] = str(s.source)
            if s.scope:
                args["scope"] = s.scope
            if name == "compute":
                args |= {"tiles": s.active, "fastest": s.least, "mean": round(s.mean, 1), "vertices": s.vertices}
            if name == "exchange":
                args["bytes"] = s.moved
            events.append(
                {"ph": "X", "pid": 1, "tid": rows[name], "name": s.name, "cat": name, "ts": now * scale,
                 "dur": length * scale, "args": args}
            )  # fmt: skip
            now += length
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"basis": "model, not measured"}})
