from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.lower.cpu.rules.conv_shape import SpatialDim, phases

SMALL = st.integers(1, 5)


@settings(max_examples=200, deadline=None)
@given(size=st.integers(1, 9), outputs=st.integers(1, 9), taps=SMALL, step=SMALL, dilation=SMALL, holes=SMALL,
       low=st.integers(-6, 6))  # fmt: skip
def test_phases_meet_every_element_once(size, outputs, taps, step, dilation, holes, low):
    """All (output, tap, element) triples of a dilated input, and no other."""
    wanted = set()
    for o in range(outputs):
        for k in range(taps):
            place = o * step + k * dilation - low
            if place % holes == 0 and 0 <= place // holes < size:
                wanted.add((o, k, place // holes))
    found = set()
    written = []
    for d, w_at, y_at, (more_at,) in phases(
        SpatialDim(size, outputs, taps, step, dilation, low, 1, 1, 1, (10,)), holes
    ):
        assert (d.y, more_at) == (d.more[0] // 10, 10 * y_at)
        for t in range(d.outputs):
            written.append(y_at + t * d.y)
            for j in range(d.taps):
                element = t * d.step + j * d.dilation - d.low
                if 0 <= element < size:
                    triple = (y_at + t * d.y, w_at + j * d.w, element)
                    assert triple not in found
                    found.add(triple)
    assert found == wanted
    assert sorted(written) == list(range(outputs))
