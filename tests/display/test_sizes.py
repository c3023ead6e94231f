"""Sizes as people write them."""

import pytest

from nxjax.display.sizes import parse_size, shown
from nxjax.errors import ParameterError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1GB", 2**30), ("2gb", 2**31), ("512 MiB", 2**29), ("1.5K", 1536), ("7", 7), ("3B", 3), (12, 12), ("1T", 2**40)],
)
def test_sizes_are_read(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("bad", ["", "GB", "1XB", "-1GB", -1, 1.5, None, True])
def test_what_is_no_size_is_refused(bad):
    with pytest.raises(ParameterError, match="512MB"):
        parse_size(bad)


def test_sizes_are_shown():
    assert [shown(n) for n in (0, 1023, 1024, 3 * 2**29)] == ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]
