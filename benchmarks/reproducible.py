"""What the same bits everywhere cost: the works of other benchmarks under `nx.config.reproducible`, beside the default.

The ratio is the reproducible time to the default one: the least processor time of one thread, both measured in turn.
Peers take no part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from unittest.mock import patch

import nxjax as nx
from benchmarks import convolutions, cpu, movement, peers, products
from benchmarks.peers import Row, Work
from benchmarks.runner import Figure
from nxjax.errors import LoweringError

MODULES = (cpu, products, convolutions, movement)
ROUNDS = 5
CALLS = 2


def least(work: Work) -> tuple[float, float]:
    """The least processor time with the promise and without, measured in turn; one round is not counted."""
    found = {True: float("inf"), False: float("inf")}
    for turn in range(ROUNDS + 1):
        for promised in found:
            with nx.config.using(reproducible=promised):
                work()  # the setting has changed, which takes time
                start = time.process_time()
                for _ in range(CALLS):
                    work()
                if turn:
                    found[promised] = min(found[promised], (time.process_time() - start) / CALLS)
    return found[True], found[False]


def figure(row: Row) -> Figure:
    with nx.config.using(cpu_isa=row.isa or nx.config.cpu_isa, num_threads=1):
        work, _ = row.works()
        try:
            with nx.config.using(reproducible=True):
                work()
        except LoweringError as error:
            return Figure(row.name, 0.0, None, "", None, note=f"refused: {error.what}")
        mine, usual = least(work)
    return Figure(row.name, mine, usual, "default", None)


def rows() -> Iterator[Row]:
    for module in MODULES:
        yield from module.rows()


def figures() -> Iterator[Figure]:
    with ExitStack() as stack:
        for module in (peers, *MODULES):
            with suppress(AttributeError):
                stack.enter_context(patch.object(module, "package", lambda name: None))
        for row in rows():
            yield figure(row)
