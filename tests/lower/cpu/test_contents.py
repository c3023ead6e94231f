"""Names of what lies in memory: those of one value do not depend on what lies between its parts."""

from nxjax.lower.cpu.contents import Run, Space, read
from nxjax.lower.cpu.tape import Buffer


def test_parts_of_one_value_have_its_name_whatever_lies_between():
    mine, other = Buffer(32, "temp", 0), Buffer(8, "temp", 1)
    whole = Space([Run(0, 32, 7, 0, mine)])
    parts = Space([Run(0, 8, 7, 0, mine), Run(8, 16, 9, 8, other), Run(16, 24, 7, 0, mine)])
    box = (mine, 0, 0, 8, ((2, 16),))
    assert read(whole, *box) == read(parts, *box) == 7
    assert read(Space([Run(0, 8, 7, 0, mine), Run(16, 24, 8, 16, mine)]), *box) != 7
