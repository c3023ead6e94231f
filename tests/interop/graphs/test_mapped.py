"""Files in memory: what the system took back is read again, and other arrays are left alone."""

from pathlib import Path

import numpy as np

from nxjax.interop.graphs.mapped import let_go, mapped


def test_memory_that_was_let_go_is_read_again(tmp_path: Path):
    file, want = tmp_path / "numbers", np.random.default_rng(0).integers(0, 256, 99999).astype(np.uint8)
    file.write_bytes(want.tobytes())
    whole = mapped(file)
    part = whole[777:8192].reshape(-1, 5)
    for x in (whole, part, want):
        let_go(x)
        np.testing.assert_array_equal(whole, want)
        np.testing.assert_array_equal(part, want[777:8192].reshape(-1, 5))
