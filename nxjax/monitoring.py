"""`jax.monitoring`: events and numbers that a program reports to listeners. nxjax itself reports none."""

from collections.abc import Callable
from typing import Any

_events: list[Callable[..., None]] = []
_durations: list[Callable[..., None]] = []
_spans: list[Callable[..., None]] = []
_scalars: list[Callable[..., None]] = []


def record_event(event: str, **kwargs: Any) -> None:
    """Report that ``event`` happened.

    >>> seen = []
    >>> register_event_listener(lambda event, **kwargs: seen.append(event))
    >>> record_event("/mine/started")
    >>> clear_event_listeners()
    >>> seen
    ['/mine/started']
    """
    for listener in tuple(_events):
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Report how many seconds ``event`` took.

    >>> register_event_duration_secs_listener(lambda event, duration, **kwargs: print(event, duration))
    >>> record_event_duration_secs("/mine/step", 0.5)
    /mine/step 0.5
    >>> clear_event_listeners()
    """
    for listener in tuple(_durations):
        listener(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Report when ``event`` began and ended, in seconds.

    >>> register_event_time_span_listener(lambda event, start, end, **kwargs: print(event, end - start))
    >>> record_event_time_span("/mine/step", 1.0, 1.5)
    /mine/step 0.5
    >>> clear_event_listeners()
    """
    for listener in tuple(_spans):
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: Any) -> None:
    """Report the ``value`` of something.

    >>> register_scalar_listener(lambda event, value, **kwargs: print(event, value))
    >>> record_scalar("/mine/loss", 0.25)
    /mine/loss 0.25
    >>> clear_event_listeners()
    """
    for listener in tuple(_scalars):
        listener(event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, **kwargs)`` for each event that is reported.

    >>> register_event_listener(lambda event, **kwargs: print(event, kwargs))
    >>> record_event("/mine/started", run=3)
    /mine/started {'run': 3}
    >>> clear_event_listeners()
    """
    _events.append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, duration, **kwargs)`` for each duration that is reported.

    >>> register_event_duration_secs_listener(lambda event, duration, **kwargs: print(event, duration))
    >>> record_event_duration_secs("/mine/step", 0.5)
    /mine/step 0.5
    >>> clear_event_listeners()
    """
    _durations.append(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, start_time, end_time, **kwargs)`` for each span that is reported.

    >>> register_event_time_span_listener(lambda event, start, end, **kwargs: print(event, end - start))
    >>> record_event_time_span("/mine/step", 1.0, 1.5)
    /mine/step 0.5
    >>> clear_event_listeners()
    """
    _spans.append(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, value, **kwargs)`` for each number that is reported.

    >>> register_scalar_listener(lambda event, value, **kwargs: print(event, value))
    >>> record_scalar("/mine/loss", 0.25)
    /mine/loss 0.25
    >>> clear_event_listeners()
    """
    _scalars.append(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Stop calling ``callback`` for events. Raises ValueError if it is not registered.

    >>> register_event_listener(print)
    >>> unregister_event_listener(print)
    >>> record_event("/mine/started")
    """
    _events.remove(callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Stop calling ``callback`` for durations. Raises ValueError if it is not registered.

    >>> register_event_duration_secs_listener(print)
    >>> unregister_event_duration_listener(print)
    >>> record_event_duration_secs("/mine/step", 0.5)
    """
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Stop calling ``callback`` for spans. Raises ValueError if it is not registered.

    >>> register_event_time_span_listener(print)
    >>> unregister_event_time_span_listener(print)
    >>> record_event_time_span("/mine/step", 1.0, 1.5)
    """
    _spans.remove(callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Stop calling ``callback`` for numbers. Raises ValueError if it is not registered.

    >>> register_scalar_listener(print)
    >>> unregister_scalar_listener(print)
    >>> record_scalar("/mine/loss", 0.25)
    """
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Remove all listeners.

    >>> register_event_listener(print)
    >>> clear_event_listeners()
    >>> record_event("/mine/started")
    """
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()
