"""Names of what lies in memory: those of one value do not depend on what lies between its parts."""

from nxjax.lower.cpu.contents import UNKNOWN, ByteRun, MemoryContents, cells, old, read, write
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


def test_patterns_that_later_writes_cut_stay_small():
    """Each strided write takes what is left of the patterns before it, and their values once."""
    mine, space = Buffer(4096, "temp", 0), MemoryContents()
    for k in range(24):
        write(space, mine, 100 + k, 0, 4 * k, 4 * k + 4, ((100, 40),))
        write(space, mine, 500 + k, 0, 40 * k, 40 * k + 8)
    found = cells(space, 0, 4096, [4])
    assert found is not None and len(found.table) < 200
    held = [r and (r.name, r.base) for r in found.table]
    assert {held[found.ids[10 * i + 3]] for i in range(80, 100)} == {(123, 0)}
    assert held[found.ids[0]] == (500, 0)
