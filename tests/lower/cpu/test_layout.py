import numpy as np

from nxjax.lower.cpu.builder import Builder
from nxjax.lower.cpu.layout import channels_last, fill, ordered, shifted, transposed

F32 = np.dtype("float32")


def test_channels_last():
    v = channels_last((2, 3, 4, 5), F32, 1)
    assert v.strides == (240, 4, 60, 12)
    assert v.ref.buffer.nbytes == 480


def test_room_for_whole_blocks():
    v = ordered((3, 5), F32, (0, 1), slack=64, pad=8)
    assert v.strides == (32, 4)
    assert v.ref.buffer.nbytes == 3 * 32 + 64
    assert ordered((0, 5), F32, (0, 1)).ref.buffer.nbytes == 0


def test_views_of_the_same_memory():
    v = channels_last((2, 3, 4), F32, 1)
    assert transposed(v, (0, 2, 1)).strides == (48, 12, 4)
    part = shifted(v, 12, (2, 3), (48, 4))
    assert part.ref.offset == 12
    assert part.ref.buffer is v.ref.buffer


def test_one_number_everywhere():
    b = Builder()
    fill(b, channels_last((2, 0, 4), F32, 1), 3)
    assert not b.steps and not b.consts
    fill(b, channels_last((2, 3, 4), F32, 1), 3)
    assert b.steps[0].kernel.shape and b.consts[0] == np.float32(3)
