"""`CheckpointManager`: which steps are saved, which are kept, and saving in the background. Names as in Orbax."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from nxjax.checkpoints import processes, steps
from nxjax.checkpoints.restoring import metadata, restore
from nxjax.checkpoints.saving import checked, snapshot, write
from nxjax.config import with_current_settings
from nxjax.errors import ParameterError, Shown
from nxjax.trace.boundary import api_boundary, entry


@final
class CheckpointManager(Shown):
    """Saves steps of a training run and keeps the last ones.

    Args:
        directory: of the steps; created if missing. Leftovers of killed runs are removed.
        max_to_keep: how many steps to keep; by default all. Older ones are removed after a newer one is complete.
        save_interval_steps: `save` skips steps that are not a multiple of this.
        keep_period: steps that are a multiple of this are always kept.
        async_: write in the background. `save` then returns when the tree is copied. Later changes, donations and
            deletions do not affect the written step. At most one step is written at a time.
        progress: see `save`; in the background only on request.

    Raises:
        ParameterError: a number below 1.

    >>> import nxjax as nx, tempfile
    >>> with CheckpointManager(tempfile.mkdtemp(), max_to_keep=2) as manager:
    ...     saved = [manager.save(step, {"w": nx.ones(3) * step}) for step in range(4)]
    >>> manager.all_steps(), float(manager.restore()["w"][0])
    ([2, 3], 3.0)
    """

    @entry
    def __init__(
        self,
        directory: str | os.PathLike[str],
        max_to_keep: int | None = None,
        save_interval_steps: int = 1,
        keep_period: int | None = None,
        async_: bool = True,
        *,
        progress: bool | None = None,
    ) -> None:
        for name, value in (
            ("max_to_keep", max_to_keep), ("save_interval_steps", save_interval_steps), ("keep_period", keep_period)
        ):  # fmt: skip
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ParameterError(f"CheckpointManager: {name}", got=repr(value), expected="a whole number from 1")
        self.directory = Path(directory)
        self.max_to_keep = max_to_keep
        self.save_interval_steps = save_interval_steps
        self.keep_period = keep_period
        self.async_ = async_
        self._progress = progress
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        if processes.index() == 0:
            self.directory.mkdir(parents=True, exist_ok=True)
            steps.clean(self.directory)
        processes.barrier("opened", str(self.directory))

    def should_save(self, step: int) -> bool:
        """Whether `save` would write this step: a multiple of the interval, later than the last one."""
        number = steps.checked_step(step, "CheckpointManager.should_save")
        last = self.latest_step()
        return number % self.save_interval_steps == 0 and (last is None or number > last)

    @api_boundary
    def save(self, step: int, tree: Any, metadata: Any = None, *, force: bool = False) -> bool:
        """Write a step if it is due, after the previous one.

        Args:
            step, tree, metadata: see `nx.checkpoints.save`.
            force: write even if it is not due; replaces a step of this number.

        Returns:
            Whether the step is written.

        Raises:
            The error of the previous write in the background.
        """
        self.wait_until_finished()
        number = steps.checked_step(step, "CheckpointManager.save")
        if not (force or self.should_save(number)):
            return False
        told = checked(metadata)
        what = snapshot(tree, copy=self.async_)

        progress = bool(self._progress) if self.async_ else self._progress

        def work() -> None:
            write(self.directory, what, number, told, force, progress)
            self._prune(number)

        if not self.async_:
            work()
            return True

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._error = error

        # Not a daemon: a program that ends waits for its last step.
        self._thread = threading.Thread(target=with_current_settings(guarded), name=f"checkpoint {number}")
        self._thread.start()
        return True

    def _prune(self, newest: int) -> None:
        """Remove the oldest steps beyond `max_to_keep`."""
        if self.max_to_keep is not None and processes.index() == 0:
            kept = [s for s in steps.all_steps(self.directory) if not (self.keep_period and s % self.keep_period == 0)]
            for step in [s for s in kept if s != newest][: max(0, len(kept) - self.max_to_keep)]:
                with contextlib.suppress(FileNotFoundError):
                    steps.remove(self.directory, step)
        processes.barrier("pruned", str(self.directory))

    def wait_until_finished(self) -> None:
        """Wait until nothing is being written.

        Raises:
            The error of the write.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def restore(self, step: int | None = None, like: Any = None, shardings: Any = None, *, verify: bool = True) -> Any:
        """Read a step, the last one by default; see `nx.checkpoints.restore`."""
        self.wait_until_finished()
        return restore(self.directory, like, step, shardings, verify=verify, progress=self._progress)

    def metadata(self, step: int | None = None) -> Any:
        """The ``metadata`` of a step, the last one by default."""
        self.wait_until_finished()
        return metadata(self.directory, step)

    def all_steps(self) -> list[int]:
        """The steps that can be restored, in ascending order."""
        return steps.all_steps(self.directory)

    def latest_step(self) -> int | None:
        """The last of them, or None."""
        return steps.latest_step(self.directory)

    def delete(self, step: int) -> None:
        """Remove a step.

        Raises:
            ParameterError: there is none.
        """
        self.wait_until_finished()
        number, _ = steps.folder_of(self.directory, steps.checked_step(step, "CheckpointManager.delete"), "delete")
        if processes.index() == 0:
            steps.remove(self.directory, number)
        processes.barrier(f"step {number} deleted", str(self.directory))

    def close(self) -> None:
        """Wait until nothing is being written."""
        self.wait_until_finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            # The error on its way out says more than the one of a write.
            with contextlib.suppress(Exception):
                self.close()
