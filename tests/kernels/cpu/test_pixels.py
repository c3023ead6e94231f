"""Places of output pixels, and the inputs that taps see, against the same by indices."""

import itertools

import numpy as np
import pytest

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.pixels import Pixels, Words
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written

FIELDS = ("size", "outputs", "taps", "step", "dilation", "low", "x", "w", "y")
WIDE = 8


def rows(axes, batch):
    """Per pixel: where its output is, then per tap where its input is and whether that is inside."""
    found = []
    for n, *out in itertools.product(range(batch), *(range(a["outputs"]) for a in axes)):
        y = n * 10_000 + sum(i * a["y"] for i, a in zip(out, axes, strict=True))
        line = [y]
        for tap in itertools.product(*(range(a["taps"]) for a in axes)):
            at = [i * a["step"] - a["low"] + t * a["dilation"] for i, t, a in zip(out, tap, axes, strict=True)]
            x = n * 50_000 + sum(i * a["x"] for i, a in zip(at, axes, strict=True))
            line += [x, all(0 <= i < a["size"] for i, a in zip(at, axes, strict=True))]
        found.append(line)
    return np.array(found, np.int64)


def axis(size, outputs, taps, step, dilation, low, x, y):
    return dict(zip(FIELDS, (size, outputs, taps, step, dilation, low, x, 4, y), strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    "axes",
    [
        [axis(5, 5, 3, 1, 1, 1, 4, 4)],
        [axis(6, 3, 3, 2, 1, 0, 28, 60), axis(7, 4, 2, 2, 3, 2, 4, 12)],
        [axis(3, 3, 1, 1, 1, 0, 400, 300), axis(4, 2, 2, 2, 1, 0, 60, 40), axis(5, 3, 3, 2, 2, 2, 8, 4)],
    ],
    ids=["line", "strided and dilated", "volume"],
)
def test_places_and_taps(isa, batch, axes):
    wanted = rows(axes, batch)
    count, columns = wanted.shape
    blocks = -(-count // WIDE)

    def body(f, isa, words, scratch, index):
        number = lambda n: f.constant("i64", n)
        known = [Words(*(number(a[k]) for k in FIELDS)) for a in axes]
        used = range(3 - len(axes), 3)
        pixels = Pixels(f, known, used, number(count), WIDE, batch > 1)
        pixels.begin(index * WIDE)
        out = f.at(pointer(f, words, 0), index, 8 * WIDE * columns)
        nowhere = f.cast("inttoptr", number(0), "ptr")
        strides = [number(10_000), *([number(0)] * (3 - len(axes))), *(a.y for a in known)]
        kept = [pixels.places(nowhere, strides)]
        start, tap = pixels.windows(nowhere, number(50_000)), pixels.first_tap()
        for _ in range((columns - 1) // 2):
            place, inside = pixels.tap(start, tap)
            kept += [place, inside.convert(f"<{WIDE} x i64>", signed=False)]
            tap = pixels.next_tap(tap)
        for i, column in enumerate(kept):
            f.store(column, f.at(out, i * 8 * WIDE), 8)

    empty = np.empty((blocks, columns, WIDE), np.int64)
    kernel = Written(body, lambda: [empty], blocks, about=(axes, batch))
    got = run(kernel, name=isa)[0].swapaxes(1, 2).reshape(-1, columns)
    np.testing.assert_array_equal(got[:count], wanted)
    # Lanes beyond the last pixel repeat it.
    np.testing.assert_array_equal(got[count:], np.broadcast_to(wanted[-1], got[count:].shape))
