import numpy as np
import pytest

from nxjax.kernels.cpu.base import Box, Touches, dense
from nxjax.kernels.cpu.base import OutputEffect as Stored
from tests.kernels.cpu.running import bytes_of, run
from tests.kernels.cpu.written import Written


@pytest.mark.parametrize("seed", range(40))
def test_runs_are_the_bytes_of_a_box(seed):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(0, 5))
    box = Box(
        int(rng.integers(1, 5)),
        tuple(int(n) for n in rng.integers(0 if seed % 4 == 0 else 1, 5, ndim)),
        tuple(int(s) for s in rng.integers(-9, 30, ndim)),
        400,
    )
    wanted = np.zeros(800, np.bool_)
    for index in np.ndindex(*box.shape):
        at = box.offset + sum(i * s for i, s in zip(index, box.strides, strict=True))
        wanted[at : at + box.size] = True
    np.testing.assert_array_equal(bytes_of([box], 0, 800), wanted)


def test_contiguous_elements_are_one_run():
    assert Box(4, (3, 5), (4, 12)).runs == (0, 60, ())
    assert Box(4, (3, 5), (-20, 4), 40).runs == (0, 60, ())


class Stating(Written):
    """Copies three bytes of the first operand, of four; says what the test makes it say."""

    def __init__(self, read, written, how="all"):
        super().__init__(self.copied, lambda x: [np.r_[x[:3], np.uint8(0xFF)]])
        self.stated = Touches(((Box(read),),), (Stored(dense(written), how),))

    @staticmethod
    def copied(f, isa, words, scratch, index):
        x, y = (f.load("ptr", f.at(words, i, 8), 8) for i in range(2))
        with f.loop(0, 3) as loop:
            f.store(f.load("i8", f.at(x, loop.index)), f.at(y, loop.index))

    def touches(self):
        return self.stated


@pytest.mark.parametrize(
    ("read", "written", "how", "why"),
    [
        (3, 3, "all", None),
        (4, 3, "all", None),  # more than it reads is no lie
        (3, 4, "own", None),
        (3, 4, "some", None),
        (2, 3, "all", "depends on what it does not read"),
        (3, 2, "all", "wrote what it does not say"),
        (3, 4, "all", "is missing"),
        (5, 3, "all", "is not within"),
    ],
)
def test_a_kernel_is_held_to_what_it_says(read, written, how, why):
    x = np.arange(1, 5, dtype=np.uint8)
    if why is None:
        np.testing.assert_array_equal(run(Stating(read, written, how), x)[0][:3], x[:3])
    else:
        with pytest.raises(AssertionError, match=why):
            run(Stating(read, written, how), x)
