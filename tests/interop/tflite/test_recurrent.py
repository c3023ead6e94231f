"""LSTM, RNN and SVDF, whose state goes from call to call, against LiteRT's reference kernels."""

from typing import Any

import numpy as np
import pytest

from tests.interop.tflite.tflite_files import G, Operator, T, agree, const, written

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(0)
B, STEPS, IN, CELLS = 2, 5, 4, 6


def w(*shape: int, stored: bool = False) -> T:
    if stored:
        return const(RNG.integers(-127, 127, shape).astype(np.int8), scale=0.01)
    return const(RNG.normal(size=shape).astype(np.float32) * 0.5)


def kept(*shape: int) -> T:
    return T(shape, variable=True, name=f"state{RNG.integers(1 << 30)}")


def gates(coupled: bool, peep: bool, proj: int, stored: bool, size: int = IN) -> list[T | None]:
    """Weights of one direction of an LSTM."""
    out = proj or CELLS
    rows: list[T | None] = [w(CELLS, size, stored=stored) for _ in range(4)]
    rows += [w(CELLS, out, stored=stored) for _ in range(4)]
    rows += [w(CELLS, stored=stored) if peep else None for _ in range(3)]
    rows += [w(CELLS) for _ in range(4)]
    rows += [w(proj, CELLS, stored=stored), w(proj)] if proj else [None, None]
    if coupled:
        for i in (0, 4, 8, 11):
            rows[i] = None
    return rows


def run(kind: str, operands: Any, outs: Any, shape: Any, **options: Any) -> None:
    x = T(shape)
    data = written(G([x], outs, [Operator(kind, [x, *operands], outs, options)]))
    calls = [[RNG.normal(size=shape).astype(np.float32)] for _ in range(3)]
    agree(data, *calls, tolerance=3e-6)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("proj", [0, 3])
@pytest.mark.parametrize(("coupled", "peep"), [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("time_major", [False, True])
def test_lstm(coupled: bool, peep: bool, proj: int, stored: bool, time_major: bool):
    shape = (STEPS, B, IN) if time_major else (B, STEPS, IN)
    out = proj or CELLS
    states = [kept(B, out), kept(B, CELLS)]
    y = T((*shape[:2], out))
    run(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", [*gates(coupled, peep, proj, stored), *states], [y], shape,
        fused_activation_function=4, cell_clip=1.5, proj_clip=0.7, time_major=time_major,
    )  # fmt: skip


def test_lstm_with_normalized_gates():
    shape = (STEPS, B, IN)
    rows = [*gates(False, False, 0, False), kept(B, CELLS), kept(B, CELLS), *(w(CELLS) for _ in range(4))]
    y = T((STEPS, B, CELLS))
    run("UNIDIRECTIONAL_SEQUENCE_LSTM", rows, [y], shape, fused_activation_function=4, time_major=True)


def test_lstm_of_one_step():
    rows = [*gates(False, True, 0, False), kept(B, CELLS), kept(B, CELLS)]
    run("LSTM", rows, [T((B, CELLS))], (B, IN), fused_activation_function=4)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("aux", [False, True])
def test_lstm_of_both_directions(merged: bool, aux: bool):
    shape = (STEPS, B, IN)
    states = [kept(B, CELLS) for _ in range(4)]
    more: list[T | None] = [None] * 9
    if aux:
        more = [const(RNG.normal(size=(STEPS, B, 3)).astype(np.float32)), *(w(CELLS, 3) for _ in range(8))]
    rows = [*gates(False, False, 0, False), *gates(False, False, 0, False), *states, *more]
    outs = [T((STEPS, B, 2 * CELLS))] if merged else [T((STEPS, B, CELLS)), T((STEPS, B, CELLS))]
    run(
        "BIDIRECTIONAL_SEQUENCE_LSTM", rows, outs, shape, fused_activation_function=4, merge_outputs=merged,
        time_major=True,
    )  # fmt: skip


@pytest.mark.parametrize("stored", [False, True])
def test_rnn(stored: bool):
    cell = lambda: [w(CELLS, IN, stored=stored), w(CELLS, CELLS, stored=stored), w(CELLS), kept(B, CELLS)]
    run("RNN", cell(), [T((B, CELLS))], (B, IN), fused_activation_function=1)
    for time_major in (False, True):
        shape = (STEPS, B, IN) if time_major else (B, STEPS, IN)
        run(
            "UNIDIRECTIONAL_SEQUENCE_RNN", cell(), [T((*shape[:2], CELLS))], shape, fused_activation_function=4,
            time_major=time_major,
        )  # fmt: skip
    # With stored weights and time in front, LiteRT's results are of no size that these weights can give.
    shape = (B, STEPS, IN) if stored else (STEPS, B, IN)
    outs = [T((*shape[:2], CELLS)), T((*shape[:2], CELLS))]
    run(
        "BIDIRECTIONAL_SEQUENCE_RNN", [*cell(), *cell(), None, None, None], outs, shape,
        fused_activation_function=4, time_major=not stored,
    )  # fmt: skip


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank: int, stored: bool):
    filters, memory = 3 * rank, 7
    operands = [w(filters, IN, stored=stored), w(filters, memory, stored=stored), w(3), kept(B, memory * filters)]
    run("SVDF", operands, [T((B, 3))], (B, IN), rank=rank, fused_activation_function=1)


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf_of_integers(rank: int):
    filters, memory = 3 * rank, 7
    x, y = T((B, IN), "int8", 0.05, 3), T((B, 3), "int8", 0.1, -5)
    times = const(RNG.integers(-3000, 3000, (filters, memory)).astype(np.int16), scale=2.0**-12)
    bias = const(RNG.integers(-500, 500, 3).astype(np.int32), scale=2.0**-24)
    state = T((B, memory * filters), "int16", 2.0**-12, variable=True, name="state")
    operands = [x, w(filters, IN, stored=True), times, bias, state]
    options = {"rank": rank, "fused_activation_function": 1}
    data = written(G([x], [y], [Operator("SVDF", operands, [y], options, version=3)]))
    agree(data, *[[RNG.integers(-128, 127, (B, IN)).astype(np.int8)] for _ in range(9)])


@pytest.mark.parametrize("proj", [0, 3])
@pytest.mark.parametrize(("coupled", "peep"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("time_major", [False, True])
def test_lstm_of_integers(coupled: bool, peep: bool, proj: int, time_major: bool):
    if proj and peep:
        pytest.skip("LiteRT gives peepholes to as many cells as there are results, not to all")
    out, low = proj or CELLS, (-128, 127)
    x_scale, h_scale, c_scale, hidden = 0.02, 0.008, 2.0**-11, T((), "int8", 0.007, 5 if proj else -3)
    stored = lambda *shape: const(RNG.integers(*low, shape).astype(np.int8), scale=0.01)
    rows: list[T | None] = [stored(CELLS, IN) for _ in range(4)] + [stored(CELLS, out) for _ in range(4)]
    peeps = [const(RNG.integers(-9000, 9000, CELLS).astype(np.int16), scale=2.0**-14) for _ in range(3)]
    rows += peeps if peep else [None] * 3
    rows += [const(RNG.integers(-3000, 3000, CELLS).astype(np.int32), scale=0.01 * x_scale) for _ in range(4)]
    rows += (
        [stored(proj, CELLS), const(RNG.integers(-900, 900, proj).astype(np.int32), scale=7e-5)] if proj else [None] * 2
    )
    zero = 4 if proj else hidden.zero
    h_grid = {"scale": h_scale if proj else hidden.scale, "zero": zero}
    rows += [
        T((B, out), "int8", **h_grid, variable=True, name="h"),
        T((B, CELLS), "int16", c_scale, variable=True, name="c"),
    ]
    if coupled:
        for i in (0, 4, 8, 11):
            rows[i] = None
    rows += [None] * 4
    shape = (STEPS, B, IN) if time_major else (B, STEPS, IN)
    x, y = T(shape, "int8", x_scale, -7, name="x"), T((*shape[:2], out), "int8", **h_grid)
    between = [T((), "int16", 2.0**-12) for _ in range(4)]
    options = {"fused_activation_function": 4, "time_major": time_major, "cell_clip": 5.0}
    node = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", [x, *rows], [y], options, intermediates=[*between, hidden])
    data = written(G([x], [y], [node]))
    agree(data, *[[RNG.integers(*low, shape).astype(np.int8)] for _ in range(3)])
