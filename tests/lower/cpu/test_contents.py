"""Names of what lies in memory: those of one value do not depend on what lies between its parts."""

from nxjax.lower.cpu.contents import UNKNOWN, ByteRun, MemoryContents, cells, old, read, varied, write
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


def test_what_turns_change_has_their_name_whether_it_lies_in_runs_or_in_a_pattern():
    """Columns of 100 rows are a pattern, columns of 3 are runs: the third of them is not changed."""
    for rows in (3, 100):
        mine = Buffer(40 * rows, "temp", 0)
        was, space = MemoryContents(), MemoryContents()
        for k, era in ((0, 2), (1, 2), (2, 1)):
            write(was, mine, 10 + k, 0, 8 * k, 8 * k + 8, ((rows, 40),), era)
        space = was.copied()
        for k in (0, 1):
            write(space, mine, 20 + k, 0, 8 * k, 8 * k + 8, ((rows, 40),), 3)
        ten, eleven = varied(space, was, 2, 3, 10), varied(space, was, 2, 3, 11)
        columns = [[read(x, mine, 0, 8 * k, 8 * k + 8, ((rows, 40),)) for k in range(3)] for x in (space, ten, eleven)]
        assert columns[0] == [20, 21, 12]
        assert len({row[0] for row in columns}) == len({row[1] for row in columns}) == 3
        assert {row[2] for row in columns} == {12}


def test_the_name_of_what_turns_change_is_the_same_over_runs_and_over_a_pattern():
    mine = Buffer(4000, "temp", 0)
    found = set[int]()
    for rows in (1, 100):
        was, space = MemoryContents(), MemoryContents()
        write(was, mine, 1, 0, 0, 4000, (), 2)
        write(was, mine, 2, 0, 4, 8, ((rows, 40),), 2)
        write(space, mine, 3, 0, 0, 4000, (), 3)
        found.add(read(varied(space, was, 2, 3, 10), mine, 0, 0, 4000))
    assert len(found) == 1
