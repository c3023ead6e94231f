"""Weak sets that may be walked while other threads drop what is in them."""

import sys
import threading

from nxjax.config.weak_registry import WeakRegistry


class Thing:
    pass


def test_it_holds_what_is_alive():
    things: WeakRegistry[Thing] = WeakRegistry()
    one, two = Thing(), Thing()
    things.add(one)
    things.add(two)
    things.add(two)
    assert set(things) == {one, two} and len(things) == 2
    things.discard(two)
    del one
    assert not things and list(things) == []


def test_a_walk_does_not_see_what_happens_behind_it():
    things: WeakRegistry[Thing] = WeakRegistry()
    kept = [Thing() for _ in range(8)]
    for thing in kept:
        things.add(thing)
    seen = 0
    for _ in things:
        kept.clear()
        things.add(Thing())
        seen += 1
    assert seen == 8 and len(things) <= 8


def test_walks_beside_threads_that_make_and_drop():
    things: WeakRegistry[Thing] = WeakRegistry()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            things.add(Thing())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for t in threads:
            t.start()
        for _ in range(2000):
            assert all(isinstance(x, Thing) for x in things)
    finally:
        stop.set()
        for t in threads:
            t.join()
        sys.setswitchinterval(interval)
