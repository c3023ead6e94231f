"""Tests of this folder compile with Google's compiler where it is installed."""

import pytest

from nxjax.backends.tpu import compiler

FOUND, REASON = compiler.available()


@pytest.fixture(scope="session")
def libtpu():
    if not FOUND:
        pytest.skip(REASON)
