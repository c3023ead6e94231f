"""Works for tests: random ones, and the best there is of small ones by a search that shares nothing with nxjax's."""

from __future__ import annotations

import itertools
import random
from math import inf

from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task, Work

UNITS = ("npu", "gpu", "cpu", "dla")


def random_work(seed: int, count: int, units: int = 3, *, chain: bool = False) -> Work:
    """Tasks that some units cannot run, shared values and arguments, two lanes or a shared link now and then."""
    rng = random.Random(seed)
    names = UNITS[:units]
    weight = rng.choice([0.0, 0.1, 0.5, 1.0, 3.0]) / 50  # of transfers against tasks
    speed = {u: rng.uniform(0.5, 2) for u in names}
    sizes: dict[tuple[int, int], int] = {}

    def edge(source: int, value: int) -> Edge:
        return Edge(source, sizes.setdefault((source, value), rng.randint(1, 100)), value)

    tasks: list[Task] = []
    for i in range(count):
        able = [u for u in names if rng.random() < 0.85] or [rng.choice(names)]
        seconds = {u: rng.uniform(0.2, 2) * rng.uniform(0.3, 3) for u in able}
        joules = {u: s * rng.uniform(0.5, 20) for u, s in seconds.items()}
        if chain:
            after = [edge(i - 1, k) for k in range(rng.choice([1, 1, 2, 3]))]
        else:
            after = [edge(CALLER, rng.randrange(3))] if rng.random() < 0.4 else []
            after += [edge(j, rng.choice([0, 0, 1])) for j in range(i) if rng.random() < 1.2 / max(3, i)]
        tasks.append(Task(f"t{i}", seconds, joules, tuple(after)))
    used = {e.source for t in tasks for e in t.after}
    ends = [count - 1] if chain else [i for i in range(count) if i not in used or rng.random() < 0.15]

    def transfer(a: str, b: str, nbytes: int) -> float:
        return weight * (5 + nbytes) * speed[a if b == HOST else b]

    return Work(
        tuple(tasks),
        names,
        transfer,
        tuple(edge(i, 0) for i in ends),
        lanes={"npu": rng.choice([1, 2])},
        memory={"cpu": HOST},
        links={"npu": "bus", "gpu": "bus"} if rng.random() < 0.2 else {},
        processors={"npu": "cores", "cpu": "cores"} if seed % 5 == 4 else {},
        transfer_joules=lambda a, b, nbytes: 2 * transfer(a, b, nbytes),
    )


# What is done: seconds, the resource, how many of it there are, and what must be done before; joules.
Activities = dict[object, tuple[float, object, int, list[object], float]]


def activities(work: Work, units: tuple[str, ...]) -> Activities:
    """All tasks and moves, if tasks are on these units."""
    memory = lambda u: work.memory.get(u, u)
    every = [(i, e) for i, t in enumerate(work.tasks) for e in t.after] + [(None, e) for e in work.results]
    acts: Activities = {}
    for e in {(e.source, e.value): e for _, e in every}.values():
        home = HOST if e.source == CALLER else memory(units[e.source])
        goals = {
            HOST if i is None else memory(units[i]) for i, x in every if (x.source, x.value) == (e.source, e.value)
        } - {home}
        first: list[object] = [] if e.source == CALLER else [e.source]
        for a, b in [(home, HOST)] * (home != HOST and bool(goals)) + [(HOST, m) for m in goals - {HOST}]:
            device = a if b == HOST else b
            energy = work.transfer_joules(a, b, e.nbytes) if work.transfer_joules else 0.0
            link = ("link", work.links.get(device, device))
            acts[e.source, e.value, b] = (work.transfer(a, b, e.nbytes), link, 1, first, energy)
            if b == HOST:
                first = [(e.source, e.value, HOST)]
    for i, t in enumerate(work.tasks):
        moved = [(e.source, e.value, memory(units[i])) for e in t.after]
        before = [m if m in acts else e.source for m, e in zip(moved, t.after) if m in acts or e.source != CALLER]
        own = work.processors.get(units[i], units[i])
        lanes = min(work.lanes.get(u, 1) for u in work.units if work.processors.get(u, u) == own)
        acts[i] = (t.seconds[units[i]], own, lanes, before, t.joules.get(units[i], inf))
    return acts


def assignments(work: Work) -> list[tuple[str, ...]]:
    return list(itertools.product(*([u for u in work.units if u in t.seconds] for t in work.tasks)))


def least_makespan(acts: Activities, below: float = inf) -> float:
    """By serial generation from every order of tasks and moves: one of them gives a best schedule (Kolisch 1996)."""
    best = below
    ends: dict[object, float] = {}
    busy: dict[object, list[tuple[float, float]]] = {}

    def free(row: list[tuple[float, float]], many: int, start: float, seconds: float) -> bool:
        points = [start, *(a for a, _ in row if start < a < start + seconds - 1e-12)]
        return all(sum(a <= x + 1e-12 < b for a, b in row) < many for x in points)

    def go(makespan: float) -> None:
        nonlocal best
        if makespan >= best - 1e-12:
            return
        if len(ends) == len(acts):
            best = makespan
            return
        for name, (seconds, resource, many, before, _) in acts.items():
            if name in ends or any(b not in ends for b in before):
                continue
            ready, row = max((ends[b] for b in before), default=0.0), busy.setdefault(resource, [])
            starts = sorted({ready, *(b for _, b in row if b > ready)})
            start = next(s for s in starts if not seconds or free(row, many, s, seconds))
            ends[name] = start + seconds
            row.append((start, start + seconds))
            go(max(makespan, start + seconds))
            row.pop()
            del ends[name]

    go(0.0)
    return best


def least_interval(work: Work) -> float:
    def interval(units: tuple[str, ...]) -> float:
        loads: dict[object, float] = {}
        for seconds, resource, many, _, _ in activities(work, units).values():
            loads[resource] = loads.get(resource, 0.0) + seconds / many
        return max(loads.values(), default=0.0)

    return min(map(interval, assignments(work)))


def least_joules(work: Work, deadline: float = inf) -> float:
    """Infinite where no schedule meets the deadline."""
    best = inf
    for units in assignments(work):
        acts = activities(work, units)
        joules = sum(a[4] for a in acts.values())
        if joules < best and (deadline == inf or least_makespan(acts, deadline) < deadline):
            best = joules
    return best
