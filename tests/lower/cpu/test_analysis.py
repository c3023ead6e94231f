"""What a program takes, and the texts of its stages."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError

X = np.ones((16, 8), np.float32)


def compiled(function, *args, **options):
    with nx.config.using(executor="cpu"):
        return nx.jit(function, **options).lower(*args).compile()


def test_bytes_of_arguments_results_and_temporaries():
    found = compiled(lambda x: (nx.sort(nx.sort(x, 0), 1), x, x.sum()), X).memory_analysis()
    size = X.nbytes
    assert (found.argument_size_in_bytes, found.output_size_in_bytes) == (size, 2 * size + 4)
    assert found.alias_size_in_bytes == size
    assert size <= found.temp_size_in_bytes <= 4 * size
    assert found.peak_memory_in_bytes == 2 * size + 4 + found.temp_size_in_bytes + found.constant_size_in_bytes


def test_donated_memory_is_not_counted_twice():
    kept = compiled(nx.sort, X).memory_analysis()
    given = compiled(lambda x: nx.sort(x), X, donate_argnums=0).memory_analysis()
    assert given.peak_memory_in_bytes <= kept.peak_memory_in_bytes


def test_loops_count_their_turns():
    once = compiled(lambda x: nx.sort(x), X[0]).cost_analysis()
    many = compiled(lambda x: nx.lax.fori_loop(0, 10, lambda i, c: nx.sort(c), x), X[0]).cost_analysis()
    assert many["bytes accessed"] >= 10 * once["bytes accessed"] > 0


def test_every_stage_has_a_text():
    lowered = {}
    with nx.config.using(executor="cpu"):
        stages = nx.jit(lambda x: nx.nn.softmax(x.T * 1.0)).lower(X)
        for dialect in ("program", "simplified", "tape", "stablehlo", "llvm", "asm"):
            lowered[dialect] = stages.as_text(dialect=dialect)
        assert stages.as_text() == lowered["tape"]
        with pytest.raises(ParameterError, match="dialect"):
            stages.as_text(dialect="latin")
    assert "mul" in lowered["program"] and "mul" not in lowered["simplified"]
    assert lowered["tape"].startswith("cpu program") and "module" in lowered["stablehlo"]


def test_other_executors_have_the_portable_texts():
    with nx.config.using(executor="reference"):
        stages = nx.jit(lambda x: x * 2).lower(X)
        assert "stablehlo.multiply" in stages.as_text(dialect="stablehlo") and "mul" in stages.as_text("program")
        with pytest.raises(ParameterError, match="dialect"):
            stages.as_text(dialect="asm")
