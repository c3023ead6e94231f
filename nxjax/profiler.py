"""`jax.profiler`'s annotations and traces: spans of host time, in a file for Perfetto and chrome://tracing.

For the time of each kernel in compiled programs, use `nx.profile`.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from nxjax.config.forks import fork_lock
from nxjax.errors import ExecutionError, Shown
from nxjax.trace.boundary import entry
from nxjax.trace.lazy import getattr_with_hints as _refusing

F = TypeVar("F", bound=Callable[..., Any])

_lock: Final = fork_lock()
# The events of the trace that is going on, and its folder; None: there is none.
_events: list[dict[str, Any]] | None = None
_folder = ""


@entry
def start_trace(log_dir: str | os.PathLike[str], *_: Any, **__: Any) -> None:
    """Collect annotations from now on, in all threads; `stop_trace` writes them below ``log_dir``.

    Raises:
        ExecutionError: a trace is already running.

    >>> import tempfile
    >>> start_trace(tempfile.mkdtemp())
    >>> os.path.basename(stop_trace())
    'perfetto_trace.json.gz'
    """
    global _events, _folder
    with _lock:
        if _events is not None:
            raise ExecutionError("start_trace: a trace is already running", fix="jax.profiler.stop_trace()")
        _events, _folder = [], os.fspath(log_dir)


def stop_trace() -> str:
    """End the trace, write it, and return the path of its file.

    Raises:
        ExecutionError: no trace is running.

    >>> import tempfile
    >>> start_trace(tempfile.mkdtemp())
    >>> with TraceAnnotation("a step"):
    ...     pass
    >>> path = stop_trace()
    >>> with gzip.open(path) as file:
    ...     [event["name"] for event in json.load(file)["traceEvents"]]
    ['a step']
    """
    global _events
    with _lock:
        if _events is None:
            raise ExecutionError("stop_trace: no trace is running", fix="jax.profiler.start_trace(folder)")
        events, _events = _events, None
    folder = os.path.join(_folder, "plugins", "profile", time.strftime("%Y_%m_%d_%H_%M_%S"))
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "perfetto_trace.json.gz")
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
    return path


@contextmanager
def trace(log_dir: str | os.PathLike[str], *_: Any, **__: Any) -> Generator[None]:
    """`start_trace` and `stop_trace` around a block.

    >>> import tempfile, pathlib
    >>> folder = tempfile.mkdtemp()
    >>> with trace(folder):
    ...     with TraceAnnotation("a step"):
    ...         pass
    >>> len(list(pathlib.Path(folder).rglob("perfetto_trace.json.gz")))
    1
    """
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation(Shown):
    """``with TraceAnnotation(name, **about):`` a span of the running trace, if any.

    >>> with TraceAnnotation("load", file="a.csv") as span:
    ...     (span.name, span.about)
    ('load', {'file': 'a.csv'})
    """

    def __init__(self, name: str, **about: Any) -> None:
        self.name = name
        self.about = about

    def __enter__(self) -> TraceAnnotation:
        self.began = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        if _events is not None:
            event = {"name": self.name, "ph": "X", "pid": os.getpid(), "tid": threading.get_ident()}
            times = {"ts": self.began / 1e3, "dur": (time.perf_counter_ns() - self.began) / 1e3}
            _events.append({**event, **times, "args": {k: str(v) for k, v in self.about.items()}})


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` of one step of training: ``StepTraceAnnotation("train", step_num=i)``.

    >>> with StepTraceAnnotation("train", step_num=3) as span:
    ...     span.about
    {'step_num': 3}
    """


@entry
def annotate_function(func: F, name: str | None = None, **about: Any) -> F:
    """``func`` with a `TraceAnnotation` around each call.

    >>> annotate_function(abs)(-1)
    1
    """
    label = name or getattr(func, "__qualname__", type(func).__name__)

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(label, **about):
            return func(*args, **kwargs)

    return annotated  # type: ignore[return-value]


__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function", "start_trace", "stop_trace", "trace"]
__getattr__ = _refusing(__name__)
