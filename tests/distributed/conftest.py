"""Processes that a test began and did not end are ended after it."""

from collections.abc import Generator

import pytest

from tests.distributed.jobs import MADE


@pytest.fixture(autouse=True)
def ended() -> Generator[None]:
    yield
    while MADE:
        MADE.pop().end()
