"""Labels against records: what a tool did with other bytes, or did not do, earns nothing."""

import numpy as np
import pytest

from nxjax.backends.evidence import LABELS, Record, digest, digests, label
from nxjax.backends.target import Build, Runner
from nxjax.errors import ExecutionError
from nxjax.lower.placement import Placement

FILES = {"model.tflite": b"written", "model_vela.tflite": b"compiled"}
WRITTEN, COMPILED, OTHER = (digest(x) for x in (b"written", b"compiled", b"other"))
X = np.ones((2, 3), np.float32)


def record(act, by, took=(WRITTEN,), gave=()):
    return Record(act, by, "a tool", took=took, gave=gave)


BY_COMPILER = record("compiled", "vendor-compiler", gave=(COMPILED,))
CASES = [
    ([], True, False, "emitted"),
    ([record("compiled", "vendor-compiler", gave=(COMPILED,))], True, False, "vendor-compiled"),
    ([record("compiled", "vendor-compiler", gave=(COMPILED,))], False, False, "host"),
    ([record("compiled", "vendor-compiler", gave=(COMPILED,))], None, False, "emitted"),
    # It was given another file, or what it gave is not what is handed over.
    ([record("compiled", "vendor-compiler", (OTHER,), (COMPILED,))], True, False, "emitted"),
    ([record("compiled", "vendor-compiler", gave=(OTHER,))], True, False, "emitted"),
    ([record("compiled", "vendor-compiler", took=())], True, False, "emitted"),
    ([record("refused", "vendor-compiler"), record("failed", "vendor-compiler")], True, False, "emitted"),
    ([record("ran", "chip", (COMPILED,))], True, False, "hardware"),
    ([record("ran", "chip", (OTHER,))], True, False, "emitted"),
    # Nothing is known to be on the chip.
    ([record("ran", "chip")], None, False, "emitted"),
    ([record("ran", "vendor-simulator")], False, False, "emitted"),
    ([record("loaded", "chip", (COMPILED,))], True, False, "emitted"),
    ([record("ran", "vendor-simulator")], True, False, "vendor-simulator"),
    ([record("ran", "vendor-simulator", (OTHER,))], True, False, "emitted"),
    # It gave what it took.
    ([record("compiled", "vendor-compiler", gave=(WRITTEN,))], True, False, "emitted"),
    ([record("compiled", "vendor-compiler", gave=(WRITTEN,))], False, False, "emitted"),
    # What the compiler gave is another file by now.
    ([record("compiled", "vendor-compiler", gave=(OTHER,)), record("ran", "chip")], True, False, "emitted"),
    # The vendor's own simulator does not run what the compiler left; of another file that says nothing.
    ([BY_COMPILER, record("failed", "vendor-simulator", (COMPILED,))], True, False, "emitted"),
    ([BY_COMPILER, record("refused", "vendor-simulator", (COMPILED,))], False, False, "emitted"),
    ([BY_COMPILER, record("failed", "vendor-simulator", (OTHER,))], True, False, "vendor-compiled"),
    ([BY_COMPILER, record("failed", "chip", (COMPILED,))], True, False, "vendor-compiled"),
    ([record("ran", "own-model", ())], True, False, "own-model"),
    ([record("compiled", "vendor-compiler"), record("ran", "own-model")], True, False, "vendor-compiled"),
    ([record("ran", "host")], True, False, "emitted"),
    ([record("ran", "host")], False, True, "host"),
    ([record("loaded", "host")], False, True, "host"),
    ([record("failed", "host")], False, True, "emitted"),
]


@pytest.mark.parametrize(("records", "on_chip", "host", "expected"), CASES)
def test_a_label_is_what_records_earn(records, on_chip, host, expected):
    assert label(records, FILES, on_chip, host) == expected and expected in LABELS


def test_a_run_is_noted_once_its_results_were_compared():
    results = [X[:, 0]]
    build = Build(dict(FILES), [Placement("add", "", "npu")])
    build.runner = Runner(lambda args: results, "a chip", "chip", digests(FILES, ["model.tflite"]))
    with pytest.raises(ExecutionError, match="other shapes"):
        build.execute([X], [X.shape])
    assert build.label == "emitted" and not build.evidence
    for _ in range(2):
        got = build.execute([X], [results[0].shape])
    assert build.label == "emitted" and not build.evidence
    for _ in range(2):
        build.proved(got)
    (made,) = build.evidence
    assert build.label == "hardware" and build.ran_file == "model.tflite"
    assert (made.act, made.by, made.took, made.gave) == ("ran", "chip", (WRITTEN,), (digest(results[0].tobytes()),))
    # Files that are changed afterwards are no longer those that ran.
    build.files["model.tflite"] = b"changed"
    assert build.label == "emitted"


def test_long_answers_are_cut_and_all_is_plain_data():
    made = Record("refused", "vendor-compiler", "a tool", status=1, took=(WRITTEN,), answer="no\n" * 1000)
    assert len(made.answer) < 400 and made.to_dict()["status"] == 1 and "status 1" in str(made)


def test_a_compiler_that_ended_with_an_error_compiled_nothing():
    failed = Record("compiled", "vendor-compiler", "a tool", status=1, took=(WRITTEN,), gave=(COMPILED,))
    assert label([failed], FILES, True) == label([failed], FILES, False) == "emitted"
    build = Build(dict(FILES), [Placement("add", "", "npu", decided_by="vendor")], evidence=[failed])
    with pytest.raises(ExecutionError, match="at fault"):
        build.check("it")


def test_half_a_file_is_not_compiled_once_the_vendors_simulator_refused_it():
    def refuse(args):
        raise RuntimeError("the file ends early")

    build = Build(dict(FILES), [Placement("add", "", "npu")], evidence=[BY_COMPILER])
    build.runner = Runner(refuse, "a simulator", "vendor-simulator", (COMPILED,))
    assert build.label == "vendor-compiled"
    with pytest.raises(ExecutionError, match="ends early") as caught:
        build.execute([X], [X.shape])
    build.disproved(caught.value)
    assert build.label == "emitted"


def test_words_of_tools_are_plain_text():
    made = Record("failed", "vendor-compiler", "a\x1b[31m tool", command="x\0y", answer="\x1b]0;title\a" + "z" * 10**6)
    assert str(made).isprintable() and len(made.answer) < 400


def test_tools_that_fail_or_refuse_leave_the_build_as_it_was_and_are_quoted():
    for refused in (False, True):
        build = Build(dict(FILES), [Placement("add", "", "npu")])
        error = ExecutionError("a tool: no file", got="its own words")
        error.refused, error.status = refused, 1
        build.unanswered(error, "vendor-compiler", "a tool 1.0", (WRITTEN,))
        assert build.label == "emitted" and "its own words" in build.notes[0]
        assert [r.act for r in build.evidence] == ["refused" if refused else "failed"]
        (row,) = build.placements
        assert (row.device, row.decided_by) == (("host", "vendor") if refused else ("npu", "table"))


def test_results_of_another_function_are_not_made_good_by_a_later_run():
    build = Build(dict(FILES), [Placement("add", "", "npu")])
    build.runner = Runner(lambda args: [X], "a simulator", "vendor-simulator", (WRITTEN,))
    build.proved(build.execute([X], [X.shape], [X.dtype]))
    assert build.label == "vendor-simulator"
    build.disproved(ExecutionError("a simulator gave results of another function"), [X])
    build.proved(build.execute([X], [X.shape], [X.dtype]))
    assert build.label == "emitted" and "another function" in build.notes[0]
    # One that did not run may run later.
    build.evidence.clear()
    build.disproved(ExecutionError("no chip is free"))
    build.proved(build.execute([X], [X.shape], [X.dtype]))
    assert build.label == "vendor-simulator"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, bool])
def test_results_are_of_the_dtypes_that_are_stored(dtype):
    build = Build(dict(FILES), [Placement("add", "", "npu")])
    build.runner = Runner(lambda args: [X.astype(dtype)], "a chip", "chip", (WRITTEN,))
    with pytest.raises(ExecutionError, match="other dtypes"):
        build.execute([X], [X.shape], [X.dtype])


@pytest.mark.parametrize("kind", [RuntimeError, OSError, MemoryError, SystemExit])
def test_what_a_runtime_raises_is_quoted(kind):
    def run(args):
        raise kind("the driver is gone")

    build = Build(dict(FILES), [], runner=Runner(run, "a chip", "chip", (WRITTEN,)))
    with pytest.raises(ExecutionError, match=r"a chip failed(.|\n)*the driver is gone"):
        build.execute([X], [X.shape])


def test_no_time_is_known_of_runs_that_do_not_count():
    build = Build(dict(FILES), [Placement("add", "", "npu")])
    build.runner = Runner(lambda args: [X], "a chip", "chip", (WRITTEN,))
    build.cost.timed(True, lambda: 1e-3)
    build.cost.add("file", 7, "bytes", "measured")
    build.disproved(ExecutionError("a chip gave results of another function", got="\x1b[31mnoise"), [X])
    assert list(build.cost) == ["file"] and "another function" in build.cost.why
    assert all(note.isprintable() for note in build.notes)

    def fails():
        raise OSError("no chip")

    build.cost.timed(True, fails)
    assert "latency" not in build.cost and "no chip" in build.cost.why


@pytest.mark.parametrize(("device", "by"), [("npu", "chip"), ("host", "host"), ("unknown", "host")])
def test_what_has_nothing_on_the_chip_ran_on_the_host(device, by):
    build = Build(
        dict(FILES), [Placement("add", "", device)], runner=Runner(lambda args: [X], "it", "chip", (WRITTEN,))
    )
    assert build.ran_by == by
    build.proved([X])
    assert build.evidence[0].by == by and (build.label == "hardware") == (device == "npu")


@pytest.mark.parametrize(
    ("by", "host", "enough"), [("host", False, False), ("host", True, True), ("chip", False, True)]
)
def test_a_vendors_word_is_its_own_tools_record(by, host, enough):
    build = Build(dict(FILES), [Placement("add", "", "npu", decided_by="vendor")], host=host)
    build.record("loaded", by, "a runtime", took=(WRITTEN,))
    if enough:
        build.check("it")
        return
    with pytest.raises(ExecutionError, match="at fault"):
        build.check("it")


def test_what_runs_it_cannot_write_to_its_inputs():
    def run(args):
        args[0][...] = 0
        return [args[0]]

    build = Build(dict(FILES), [], runner=Runner(run, "a chip", "chip", (WRITTEN,)))
    mine = X.copy()
    with pytest.raises(ExecutionError, match="read-only"):
        build.execute([mine], [X.shape])
    assert (mine == X).all()
