"""Runs of a program on an NPU of AMD: arguments checked, buffers moved, ends waited for, failures said in words.

What the package does shapes this file (pyxrt.cpp of github.com/Xilinx/XRT). A kernel that is called takes whatever is
neither a buffer nor an int for nothing, so arguments are checked here. Its ``wait`` keeps Python's lock, so that other
threads stand still: runs are polled. Lists of runs are used where the build can wait for them with a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, final

from nxjax.backends.evidence import Label, Record, earned
from nxjax.errors import ExecutionError, ParameterError
from nxjax.ops.base import NDArray
from nxjax.vendors.amd.xrt import first_line
from nxjax.vendors.amd.xrt_artifact import XrtArtifact, filled
from nxjax.vendors.amd.xrt_runtime import Buffers, Loaded, XrtContext, XrtRuntime

# Seconds; longer than the driver's own watch over a command (tdr_timeout_ms, 2 s), whose word is better than ours.
DEADLINE: Final = 10.0
# Runs of one call of `many` that are with the chip at once.
IN_FLIGHT: Final = 8
# States of a command that has not completed and never will, by pyxrt's names.
_FAILED: Final = ("ERROR", "ABORT", "TIMEOUT", "NORESPONSE", "SKERROR", "SKCRASHED")
_PAUSE: Final = (2e-5, 1e-3)
_Error = TypeVar("_Error", bound=BaseException)
_RESET: Final = "its hardware context has been given up: the next call makes a new one"


@final
class XrtProgram:
    """A program on an NPU: called with its inputs in order, it gives its outputs. Safe to call from several threads.

    Attributes:
        artifact: the program.
        evidence: what took it. Its runs are compared with nothing, so that none counts.
    """

    def __init__(self, runtime: XrtRuntime, artifact: XrtArtifact) -> None:
        self.runtime = runtime
        self.artifact = artifact
        self.evidence: list[Record] = []
        states = runtime.pyxrt.ert_cmd_state
        self._done = states.ERT_CMD_STATE_COMPLETED
        self._failed = {getattr(states, f"ERT_CMD_STATE_{name}"): name for name in _FAILED}

    @property
    def label(self) -> Label:
        """How far towards silicon it went, by the records."""
        return earned(self.evidence, {*self.artifact.digests}, True)

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"kernel {self.artifact.kernel or 'MLIR_AIE'} on {self.runtime.npu.name}"

    def __call__(self, *args: object, deadline: float = DEADLINE) -> list[NDArray]:
        """Run once.

        Args:
            args: one array for each buffer that is read, of its shape and dtype.
            deadline: seconds until the run is given up.

        Raises:
            ParameterError: other arguments than the program has.
            ExecutionError: the run failed or hangs; the message names it and its state.
        """
        return self.many([args], deadline=deadline)[0]

    def many(self, batch: Sequence[Sequence[object]], *, deadline: float = DEADLINE) -> list[list[NDArray]]:
        """Run once for each of ``batch``, several of them with the chip at once; the outputs in the same order.

        ``deadline`` is the time of all together. The first run that fails ends it.
        """
        if not deadline > 0:
            raise ParameterError("xrt: deadline", got=deadline, expected="seconds, more than 0")
        for args in batch:
            if len(args) != len(self.artifact.inputs):
                names = ", ".join(b.name for b in self.artifact.inputs)
                raise ParameterError(f"xrt: inputs of {self.name}", got=len(args), expected=names)
            for b, x in zip(self.artifact.inputs, args, strict=True):
                filled(b, x)
        results: list[list[NDArray]] = []
        problem = self._ran(batch, time.monotonic() + deadline, deadline, results)
        if problem is not None:
            # Raised here, where no frame holds the chip's objects: who keeps the error does not keep them.
            raise problem
        if batch and not self.evidence:
            said = f"{len(batch)} runs, compared with nothing"
            self.evidence = [Record("loaded", "chip", self.name, took=self.artifact.digests, answer=said)]
        return results

    def _ran(
        self, batch: Sequence[Sequence[object]], until: float, seconds: float, results: list[list[NDArray]]
    ) -> ExecutionError | None:
        runtime = self.runtime
        context, loaded = runtime.enter(self.artifact, until)
        try:
            listed = len(batch) > 1 and self._lists(context)
            width = len(batch) if listed else IN_FLIGHT
            for first in range(0, len(batch), width):
                part = batch[first : first + width]
                flight = _Flight(self, context, loaded, part, seconds, first)
                problem = flight.listed(until) if listed else flight.alone(until)
                if problem is not None:
                    return problem
                results += flight.results()
            return None
        except ExecutionError as error:
            return _bare(error)
        except Exception as error:
            # Whatever XRT throws while a run is made or its memory moved; that context is not to be trusted.
            runtime.retire(context)
            made = ExecutionError(f"xrt: {self.name} failed", got=first_line(error), fix=_RESET)
            made.__cause__ = _bare(error)
            return made
        finally:
            runtime.leave(context)

    def _lists(self, context: XrtContext) -> bool:
        """Whether lists of runs can be waited for with a deadline.

        The package has the method, but not in every build what turns Python's durations into C++'s; a wait without a
        deadline keeps Python's lock for as long as the chip hangs. An empty list tells at once.
        """
        pyxrt = self.runtime.pyxrt
        if not hasattr(pyxrt, "runlist"):
            return False
        try:
            pyxrt.runlist(context.hardware).wait(timedelta(milliseconds=1))
        except TypeError:
            return False
        return True

    def failed(self, run: Any) -> str:
        """The name of the state in which a run ended without completing; empty where it did not."""
        return self._failed.get(run.state(), "")

    def ended(self, run: Any) -> bool:
        """Whether the chip is done with a run, one way or the other."""
        state = run.state()
        return state == self._done or state in self._failed

    def said(self, run: Any) -> str:
        """A run's state for people."""
        state = run.state()
        return str(getattr(state, "name", state)).removeprefix("ERT_CMD_STATE_")


@final
class _Flight:
    """Runs of one program that are with the chip together."""

    def __init__(
        self,
        program: XrtProgram,
        context: XrtContext,
        loaded: Loaded,
        batch: Sequence[Sequence[object]],
        seconds: float,
        first: int,
    ) -> None:
        self.program = program
        self.runtime = program.runtime
        self.artifact: XrtArtifact = program.artifact
        self.context = context
        self.loaded = loaded
        self.seconds = seconds
        self.first = first
        self.buffers: list[Buffers] = []
        for args in batch:
            self.buffers.append(self.runtime.take(loaded))
            self._write(self.buffers[-1], args)

    def _write(self, buffers: Buffers, args: Sequence[object]) -> None:
        to_device = self.runtime.pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
        given = iter(args)
        for b, o, memory in zip(self.artifact.buffers, buffers.objects, buffers.memory, strict=True):
            if b.role != "out":
                memory[:] = filled(b, next(given))
                o.sync(to_device)

    def results(self) -> list[list[NDArray]]:
        """The outputs of every run; the buffers are given back."""
        from_device = self.runtime.pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
        found: list[list[NDArray]] = []
        for buffers in self.buffers:
            row: list[NDArray] = []
            for b, o, memory in zip(self.artifact.buffers, buffers.objects, buffers.memory, strict=True):
                if b.role != "in":
                    o.sync(from_device)
                    # The buffer is used again: what is handed out is the caller's own.
                    row.append(memory.copy().view(b.numpy).reshape(b.shape))
            found.append(row)
            self.runtime.give(self.loaded, buffers)
        return found

    def alone(self, until: float) -> ExecutionError | None:
        """Start the runs one behind the other, and see each to its end."""
        runs: list[Any] = []
        try:
            for buffers in self.buffers:
                runs.append(self.loaded.kernel(*self._arguments(buffers)))
            problems = (self._finished(run, until, i) for i, run in enumerate(runs))
            problem = next(filter(None, problems), None)
        except BaseException:
            # Also where the user interrupts: what the chip works on must not be let go.
            self._bury(runs)
            self.runtime.retire(self.context)
            raise
        if problem is not None:
            self._bury(runs)
            self.runtime.retire(self.context)
        return problem

    def _arguments(self, buffers: Buffers) -> list[Any]:
        return [self.artifact.opcode, self.loaded.insts, self.artifact.counted, *buffers.objects]

    def _finished(self, run: Any, until: float, index: int) -> ExecutionError | None:
        pause = _PAUSE[0]
        while not self.program.ended(run):
            if time.monotonic() >= until:
                return self._hangs(self.program.said(run), index)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE[1])
        failed = self.program.failed(run)
        return self._failure(failed, index) if failed else None

    def _failure(self, state: str, index: int) -> ExecutionError:
        return ExecutionError(f"xrt: {self._one(index)} failed", got=f"state {state}", fix=_RESET)

    def _hangs(self, state: str, index: int) -> ExecutionError:
        got = f"no end after {self.seconds:g} s, state {state}"
        return ExecutionError(f"xrt: {self._one(index)} hangs", got=got, fix=_RESET)

    def _one(self, index: int) -> str:
        number = self.first + index
        return self.program.name if not number else f"{self.program.name}, run {number}"

    def _bury(self, runs: Sequence[Any]) -> None:
        """Keep every run that the chip still works on, with the memory that it writes."""
        for run, buffers in zip(runs, self.buffers, strict=False):
            if not self.program.ended(run):
                self.runtime.bury(_ending(self.program, run), run, buffers, self.loaded, self.context)

    def _failed(self, run: Any) -> str:
        try:
            return self.program.failed(run)
        except Exception:
            # One that the chip was never given has no state.
            return ""

    def listed(self, until: float) -> ExecutionError | None:
        """Give the chip all runs as one list."""
        pyxrt = self.runtime.pyxrt
        runs = [pyxrt.run(self.loaded.kernel) for _ in self.buffers]
        rows = pyxrt.runlist(self.context.hardware)
        for run, buffers in zip(runs, self.buffers, strict=True):
            for i, x in enumerate(self._arguments(buffers)):
                run.set_arg(i, x)
            rows.add(run)
        given_up = True
        try:
            # A list that could not be given to the chip whole counts as running too.
            rows.execute()
            while not _over(rows):
                if time.monotonic() >= until:
                    self.runtime.retire(self.context)
                    return self._hangs(self.program.said(runs[0]), 0)
            given_up = False
        except Exception as error:
            # The list ends with the first run that fails; the ones behind it are marked as aborted.
            self.runtime.retire(self.context)
            states = [(i, self._failed(run)) for i, run in enumerate(runs)]
            index, state = next(((i, s) for i, s in states if s), (0, first_line(error)))
            return self._failure(state, index)
        finally:
            if given_up:
                self.runtime.bury(_list_ending(rows), rows, runs, self.buffers, self.loaded, self.context)
        return None


def _bare(error: _Error) -> _Error:
    """An error without the frames it came through, which hold the chip's objects, and so those it came from."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


def _over(rows: Any) -> bool:
    """Whether a list has ended; waits for a millisecond at most, in which Python's lock is kept."""
    answer = rows.wait(timedelta(milliseconds=1))
    # C++'s cv_status: "no_timeout" or "timeout".
    return "no_timeout" in str(answer)


def _ending(program: XrtProgram, run: Any) -> Callable[[], bool]:
    return lambda: program.ended(run)


def _list_ending(rows: Any) -> Callable[[], bool]:
    def ended() -> bool:
        try:
            return _over(rows)
        except Exception:
            # It has ended, with an error that nobody waits for any more.
            return True

    return ended
