"""In guard mode, these tests have all kernels in one arena, and what is dead there is overwritten."""

import pytest

from nxjax.config import config


@pytest.fixture(autouse=True)
def _poisoned(_checked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if config.guard:
        config.update("guard", "poison")  # `_checked` puts back what was
        monkeypatch.setenv("NXJAX_GUARD", "poison")
