"""What the tests here share: processes of one program, what they said, and patience for a loaded machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nxjax.distributed.launch import free_port

PATIENCE = 240.0  # seconds; no test is about time

# Processes compile for a few steps each: their code need not be fast.
QUICKLY = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}


# Those that a test began: what a test that fails leaves behind would work for ever.
MADE: list[Job] = []


class Job:
    """``count`` processes of one program, the output of each in a file of its own."""

    def __init__(self, folder: Path, count: int, command: Sequence[str], devices: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.paths = [folder / f"process{i}.txt" for i in range(count)]
        env = {
            **os.environ,
            **QUICKLY,
            "NXJAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
            "NXJAX_NUM_PROCESSES": str(count),
            "NXJAX_NUM_CPU_DEVICES": str(devices),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        MADE.append(self)
        for i, path in enumerate(self.paths):
            with path.open("wb") as file:
                own = {**env, "NXJAX_PROCESS_ID": str(i)}
                self.processes.append(
                    subprocess.Popen([sys.executable, *command], env=own, stdout=file, stderr=subprocess.STDOUT)
                )

    def said(self, i: int) -> str:
        return self.paths[i].read_text()

    def codes(self) -> list[int]:
        """Of all, once they have ended by themselves."""
        try:
            return [p.wait(PATIENCE) for p in self.processes]
        finally:
            self.end()

    def end(self) -> None:
        """Those that still run."""
        for p in self.processes:
            p.kill()
            p.wait()


def losses(text: str) -> dict[int, float]:
    """What `nxjax.demo.parallel` says, by step."""
    rows = [line.split() for line in text.splitlines() if line.startswith("step ")]
    return {int(row[1]): float(row[3]) for row in rows}
