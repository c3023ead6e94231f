"""A fork waits for the lock of compilation, so that a child finds it free."""

import os
import threading

import pytest

from nxjax.backends.cpu.locks import COMPILING


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_finds_the_lock_free():
    inside, go_on = threading.Event(), threading.Event()

    def compile():
        with COMPILING:
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=compile)
    thread.start()
    inside.wait(10)
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    if not child:
        os._exit(0 if go_on.is_set() and COMPILING.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join(10)
    assert COMPILING.acquire(blocking=False)
    COMPILING.release()
