"""Names of what lies in memory: those of one value do not depend on what lies between its parts."""

from nxjax.lower.cpu.contents import UNKNOWN, ByteRun, MemoryContents, old, read
from nxjax.lower.cpu.tape import Buffer


def test_parts_of_one_value_have_its_name_whatever_lies_between():
    mine, other = Buffer(32, "temp", 0), Buffer(8, "temp", 1)
    whole = MemoryContents([ByteRun(0, 32, 7, 0, mine)])
    parts = MemoryContents([ByteRun(0, 8, 7, 0, mine), ByteRun(8, 16, 9, 8, other), ByteRun(16, 24, 7, 0, mine)])
    box = (mine, 0, 0, 8, ((2, 16),))
    assert read(whole, *box) == read(parts, *box) == 7
    assert read(MemoryContents([ByteRun(0, 8, 7, 0, mine), ByteRun(16, 24, 8, 16, mine)]), *box) != 7


def test_parts_of_what_is_not_followed_have_no_name():
    """A name would be compared with another tape's, where the same bytes may be followed."""
    buffer = Buffer(128, "temp", 0)
    space = MemoryContents([ByteRun(0, 64, UNKNOWN, 0, buffer), ByteRun(64, 128, 5, 64, buffer)])
    assert read(space, buffer, 16, 16, 32) == read(space, buffer, 0, 0, 32) == UNKNOWN
    assert read(space, buffer, 0, 32, 96) == UNKNOWN
    assert old(space, 0, [(32, 96, ())]) == UNKNOWN != old(space, 64, [(64, 96, ())])
