"""Settings: one object, JAX's names, for the process or for a thread inside a block, restored after it."""

import asyncio
import contextvars
import gc
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import LaneOptions
from nxjax.backends.hybrid.jobs import Job
from nxjax.backends.memory.double import prefetch
from nxjax.config import CallSettings, config, current_settings, with_current_settings
from nxjax.errors import ParameterError, TypePromotionError


def test_update_and_restore():
    with config.using(executor="reference"):
        assert config.executor == "reference"
        with pytest.raises(ZeroDivisionError), config.using(executor="xla"):
            raise ZeroDivisionError
        assert config.executor == "reference"
    assert config.executor != "reference"


def test_jax_names_are_understood_and_unknown_ones_refused():
    nx.config.update("jax_enable_x64", True)
    try:
        assert nx.zeros(1).dtype == "float64"
    finally:
        nx.config.update("jax_enable_x64", False)
    assert nx.zeros(1).dtype == "float32"
    with pytest.raises(ParameterError, match="no setting"):
        config.update("jax_nonsense", 1)


def test_flags_of_absl_can_be_read_after_jax_has_parsed_its_own(monkeypatch):
    flags = pytest.importorskip("absl.flags")
    values = flags.FlagValues()
    flags.DEFINE_integer("size", 3, "of what", flag_values=values)
    monkeypatch.setattr(flags, "FLAGS", values)
    config.config_with_absl()
    with pytest.raises(flags.UnparsedFlagAccessError):
        print(values.size)
    config.parse_flags_with_absl()
    assert values.size == 3
    values.size = 4
    config.parse_flags_with_absl()  # once
    assert values.size == 4


def test_flags_of_jax():
    assert config.jax_debug_nans is False and config.read("jax_threefry_partitionable") is True
    for name, value in (("jax_threefry_partitionable", True), ("jax_default_prng_impl", "threefry2x32")):
        config.update(name, value)
    with config.using(jax_transfer_guard="disallow", jax_log_compiles=False):
        assert config.jax_transfer_guard == "disallow"
    assert config.jax_transfer_guard == "allow"
    config.parse_flags_with_absl()
    assert config.values["jax_numpy_rank_promotion"] == "allow"
    for name, value, said in (
        ("jax_threefry_partitionable", False, "one value"),
        ("jax_numpy_rank_promotion", "never", "raise"),
        ("jax_debug_nan", True, "debug_nans"),
        ("mode", (), "no setting"),
        ("jax_transfer_guard", "perhaps", "disallow"),
        ("jax_debug_nans", "yes", "True or False"),
    ):
        with pytest.raises(ParameterError, match=said):
            config.update(name, value)
    with pytest.raises(AttributeError):
        _ = config.jax_nonsense
    assert config.mode is None
    assert repr(nx.debug_nans(True)) == "<settings inside: debug_nans=True>"
    assert repr(nx.debug_nans) == "<setting debug_nans = False>" and nx.debug_nans.value is False
    with pytest.raises(TypeError, match="context manager"):
        bool(nx.debug_nans)


def test_promotion_can_be_strict():
    x, i = nx.ones(2), nx.ones(2, int)
    with nx.numpy_dtype_promotion("strict"):
        assert (x + 1).dtype == "float32" and (i * 2).dtype == "int32" and (x * 2.0).dtype == "float32"
        for f in (lambda: x + i, lambda: i + 1.5, lambda: nx.jit(lambda a, b: a * b)(x, i)):
            with pytest.raises(TypePromotionError, match="strict"):
                f()
        # Both ends are read in the dtype that is asked for.
        assert nx.linspace(nx.ones((), "float16"), x[0], 3, dtype="float16").dtype == "float16"
    assert (x + i).dtype == "float32"
    with nx.numpy_rank_promotion("raise"):
        assert (x + 1).shape == (2,)
        for f in (lambda: x + nx.ones((2, 2)), lambda: nx.jit(nx.add)(x, nx.ones((2, 2)))):
            with pytest.raises(ValueError, match="numpy_rank_promotion"):
                f()
    with nx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="numpy_rank_promotion"):
        _ = x + nx.ones((2, 2))


def test_what_is_made_for_a_shape_or_a_stack_promotes_no_ranks():
    key, ones, m = nx.random.key(0), nx.ones(3), nx.ones((2, 3, 3)) + nx.eye(3)
    with nx.numpy_rank_promotion("raise"):
        assert nx.random.uniform(key, (2, 3), minval=-ones).shape == nx.random.gamma(key, ones, (2, 3)).shape == (2, 3)
        assert nx.random.multivariate_normal(key, ones, nx.eye(3), (0, 2)).shape == (0, 2, 3)
        assert nx.linalg.slogdet(m).sign.shape == (2,) and nx.linalg.pinv(m).shape == (2, 3, 3)
        assert nx.scipy.linalg.expm(m).shape == (2, 3, 3)
        with nx.numpy_dtype_promotion("strict"):
            assert nx.vander(ones).dtype == "float32" and nx.polyfit(nx.arange(3.0), ones, 1).shape == (2,)


@pytest.mark.parametrize("name", ["CACHE_BYTES", "CPU_POOL_BYTES", "NUM_CPU_DEVICES", "NUM_THREADS"])
@pytest.mark.parametrize("given", ["abc", "1e9", "-5"])
def test_environment_variables_that_are_no_numbers_are_named(name, given, monkeypatch):
    monkeypatch.setenv(f"NXJAX_{name}", given)
    with pytest.raises(ParameterError, match=f"NXJAX_{name}"):
        type(config)()
    monkeypatch.setenv(f"NXJAX_{name}", "12")
    assert getattr(type(config)(), name.lower()) == 12


@pytest.mark.parametrize("name", ["ENABLE_X64", "FAST_CALLS", "VERIFY", "DEBUG_NANS"])
def test_environment_variables_say_yes_or_no_as_in_jax(name, monkeypatch):
    for given, wanted in {"off": False, "N": False, "f": False, "": False, "on": True, "T": True, "yes": True}.items():
        monkeypatch.setenv(f"NXJAX_{name}", given)
        assert getattr(type(config)(), name.lower()) is wanted, given
    for given in ("flase", "2", " 0"):
        monkeypatch.setenv(f"NXJAX_{name}", given)
        with pytest.raises(ParameterError, match=f"NXJAX_{name}"):
            type(config)()


@pytest.mark.parametrize(("name", "given"), [("CPU_ISA", "avx-512"), ("GUARD", "endd")])
def test_an_environment_variable_names_what_there_is(name, given, monkeypatch):
    monkeypatch.setenv(f"NXJAX_{name}", given)
    with pytest.raises(ParameterError, match=f"{name.lower()}\n.*{given}"):
        type(config)()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fast_calls", (None, 2, "no", [], 0.0)),
        ("debug_nans", (None, 2, "yes", [], 0.0)),
        ("executor", (5, b"cpu")),
        ("cpu_isa", (3, ("avx2",), "avx-512", "AVX2")),
        ("platforms", (3, ["cpu"])),
        ("ipu_model", (1,)),
        ("num_threads", (True, 2.0)),
        ("cpu_pool_bytes", (False, "1")),
    ],
)
def test_what_no_setting_can_be_is_refused_at_once(name, values):
    before = config.read(name)
    for value in values:
        with pytest.raises(ParameterError, match=name):
            config.update(name, value)
        with pytest.raises(ParameterError, match=name):
            config.using(**{name: value})
    assert config.read(name) == before


def test_numbers_and_numpys_truth_values_are_flags():
    for value in (True, 1, np.True_):
        with config.using(check=value, debug_nans=value):
            assert config.check is True and config.debug_nans is True


# --- threads, tasks and contexts ---


def elsewhere(function):
    """What ``function`` gives in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def dtype_of_one(m):
    """Which setting holds, and that the arrays made and the functions called are of it."""
    made, called = m.numpy.asarray(1.0).dtype.name, m.jit(lambda x: x * 2.0)(np.float64(3)).dtype.name
    assert made == called == ("float64" if m.config.jax_enable_x64 else "float32")
    return made


def both(m):
    return dtype_of_one(m), elsewhere(partial(dtype_of_one, m))


def blocks(m):
    yield "at rest", both(m)
    with m.enable_x64(True):
        yield "inside", both(m)
        with m.enable_x64(False):
            yield "inside of both", both(m)
        yield "inside again", both(m)
    yield "after", both(m)
    try:
        with m.enable_x64(True):
            raise ZeroDivisionError
    except ZeroDivisionError:
        yield "after an error", both(m)


def updates(m):
    with m.enable_x64(True):
        m.config.update("jax_enable_x64", False)
        yield "off, inside on", both(m)
    yield "off", both(m)
    with m.enable_x64(False):
        m.config.update("jax_enable_x64", True)
        yield "on, inside off", both(m)
        with m.enable_x64(False):
            yield "deeper", both(m)
    yield "on", both(m)
    m.config.update("jax_enable_x64", False)
    yield "off again", both(m)


def suspended(m):
    def generator():
        with m.enable_x64(True):
            yield both(m)

    first, second = generator(), generator()
    yield "in a generator", next(first)
    yield "while it waits", both(m)  # it shares its caller's context
    with m.enable_x64(False):
        yield "inside", both(m)
        next(second)
        first.close()
        yield "which ended first", both(m)
    second.close()
    yield "after all", both(m)


def in_another_thread(m):
    def generator():
        with m.enable_x64(True):
            yield

    opened = generator()
    next(opened)
    elsewhere(opened.close)
    yield "closed elsewhere", both(m)
    m.enable_x64(False).__enter__()
    yield "to the end of the thread", both(m)


@pytest.mark.parametrize("scenario", [blocks, updates, suspended, in_another_thread])
def test_blocks_are_the_threads_own_as_in_jax(scenario):
    results = [elsewhere(lambda m=m: list(scenario(m))) for m in (nx, jax)]
    assert results[0] == results[1]
    assert both(nx) == both(jax) == ("float32", "float32")


def test_each_task_has_its_own_settings():
    """As a program expects of a task; in JAX tasks that take turns end with each other's settings."""

    async def wide(on, mine, others):
        seen = [config.enable_x64]
        with nx.enable_x64(on):
            mine.set()
            await others.wait()
            seen.append(dtype_of_one(nx))
        return [*seen, config.enable_x64]

    async def main():
        a, b = asyncio.Event(), asyncio.Event()
        taken = await asyncio.gather(wide(True, a, b), wide(False, b, a))
        with nx.enable_x64(True):
            inside = asyncio.create_task(asyncio.to_thread(dtype_of_one, nx))
        return taken, await inside, config.enable_x64

    taken, inside, after = asyncio.run(main())
    assert taken == [[False, "float64", False], [False, "float32", False]]
    assert inside == "float64" and after is False


def test_a_copied_context_keeps_its_settings_and_follows_the_process():
    with config.using(enable_x64=True):
        context = contextvars.copy_context()
    assert context.run(dtype_of_one, nx) == "float64" and dtype_of_one(nx) == "float32"
    config.update("numpy_rank_promotion", "raise")
    try:
        assert context.run(lambda: (config.numpy_rank_promotion, config.enable_x64)) == ("raise", True)
    finally:
        config.update("numpy_rank_promotion", "allow")
    assert context.run(lambda: config.mode) is None


def test_settings_without_effect_are_the_threads_own_too():
    with nx.transfer_guard("log"):
        assert config.jax_transfer_guard == "log"
        assert elsewhere(lambda: config.jax_transfer_guard) == "allow"
        config.update("jax_pprint_use_color", True)
        assert config.jax_pprint_use_color is True
    assert config.jax_transfer_guard == "allow" and config.jax_pprint_use_color is True
    config.update("jax_pprint_use_color", False)


def test_settings_of_the_process_change_for_all_threads():
    before = config.cpu_pool_bytes
    for wrong in ({"num_threads": -3}, {"cpu_pool_bytes": 1.5}, {"num_threads": 2, "cpu_pool_bytes": -1}):
        with pytest.raises(ParameterError, match="a number of"):
            config.using(enable_x64=True, **wrong)
    with config.using(cpu_pool_bytes=12345, check=not config.check):
        assert elsewhere(lambda: config.cpu_pool_bytes) == 12345
        assert elsewhere(lambda: config.check) is not config.check
    assert config.cpu_pool_bytes == before
    config.cpu_isa = "portable"
    try:
        assert elsewhere(lambda: config.cpu_isa) == "portable"
    finally:
        config.cpu_isa = ""
    with pytest.raises(AttributeError, match="no setting"):
        config.cpu_izza = ""


@pytest.mark.parametrize("m", [nx, jax], ids=["nxjax", "jax"])
def test_debugging_stops_the_thread_that_asked(m):
    log, x = m.jit(m.numpy.log), m.numpy.asarray(-1.0)
    bad = lambda: (np.isnan(log(x)), np.isnan(m.numpy.log(x)))
    with m.debug_nans(True):
        assert elsewhere(bad) == (True, True)
        for call in (log, m.numpy.log):
            with pytest.raises(FloatingPointError):
                call(x)
    assert bad() == (True, True)
    m.config.update("jax_debug_nans", True)
    try:
        for call in (log, m.numpy.log):
            with pytest.raises(FloatingPointError):
                elsewhere(lambda call=call: call(x))
        with m.debug_nans(False):
            assert bad() == (True, True)
    finally:
        m.config.update("jax_debug_nans", False)
    assert bad() == elsewhere(bad) == (True, True)


def test_watching_ends_with_the_last_block_that_asks():
    from nxjax.trace import core

    def ask(enter, leave):
        with nx.debug_nans(True):
            enter.wait()
            leave.wait()

    gates = [threading.Barrier(2), threading.Barrier(2)]
    thread = threading.Thread(target=ask, args=gates)
    thread.start()
    gates[0].wait()
    with nx.debug_infs(True):
        assert core.current_watcher() is not None
    assert core.current_watcher() is not None
    gates[1].wait()
    thread.join()
    gc.collect()
    assert core.current_watcher() is None


def test_promotion_is_strict_for_the_thread_that_asked():
    x, i = nx.ones(2), nx.ones(2, int)
    with nx.numpy_dtype_promotion("strict"):
        assert elsewhere(lambda: (x + i).dtype) == "float32"
        with pytest.raises(TypePromotionError):
            _ = x + i


def test_a_function_can_be_bound_to_the_settings_of_now():
    with config.using(enable_x64=True):
        bound = with_current_settings(lambda: (dtype_of_one(nx), both(nx)))
    assert elsewhere(bound) == ("float64", ("float64", "float32"))
    assert bound()[0] == "float64" and dtype_of_one(nx) == "float32"
    with config.using(enable_x64=True):
        plain = elsewhere(lambda: with_current_settings(lambda: config.enable_x64))
        assert plain() is False and config.enable_x64


def test_many_threads_keep_their_own_settings():
    """Each thread sees its own in what it makes, traces and calls, whatever others do and the process is set to."""
    f = nx.jit(lambda x: x * nx.numpy.arange(3) + 1.5)
    wrong: list[object] = []

    def work(number):
        for turn in range(40):
            wide = bool((number + turn) % 2)
            with nx.enable_x64(wide):
                dtypes = {f(2.5).dtype.name, nx.numpy.linspace(0, 1, 3).dtype.name, (nx.asarray(1.5) + 2).dtype.name}
            if dtypes != {"float64" if wide else "float32"}:
                wrong.append((number, turn, dtypes))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            config.update("enable_x64", not config.process.enable_x64)
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
        config.update("enable_x64", False)
    assert not wrong
    assert f._cache_size() == 2
    # What is left is what the next blocks will find again.
    assert set(map(id, config._overriding)) == set(map(id, config._resting.values()))


def test_the_next_block_with_the_same_overrides_finds_its_settings():
    def inside(**values):
        with config.using(**values):
            return config.here.get()

    assert inside(enable_x64=True) is inside(enable_x64=True)
    assert inside(enable_x64=True) is not inside(enable_x64=False)
    # Who watches modes has to know when the last block with one has ended.
    assert inside(debug_nans=True) is not inside(debug_nans=True)
    with config.using(enable_x64=True):
        config.update("progress", False)
        try:
            assert not config.progress
        finally:
            config.update("progress", True)


def test_what_a_call_means_is_one_object_for_equal_settings():
    here = current_settings().call
    with config.using(enable_x64=True):
        wide = current_settings().call
        assert wide is not here and isinstance(wide, CallSettings)
        with config.using(enable_x64=False):
            assert current_settings().call is here
        with config.using(log_compiles=True):
            assert current_settings().call is wide
    assert current_settings().call is here
    assert pickle.loads(pickle.dumps(wide)) is wide


def test_threads_of_nxjax_run_under_the_settings_of_who_asked():
    seen: dict[str, object] = {}

    def look(name, result=None):
        seen[name] = (threading.current_thread() is not threading.main_thread(), dtype_of_one(nx))
        return result

    def batches():
        yield look("prefetch", np.ones(2))

    double = Job("double", "cpu", {"cpu": lambda args: look("units", [2 * args[0]])}, inputs=((-1, 0),))
    with Engine({"cpu": LaneOptions()}) as engine:
        engine.submit([double], [1]).result()
        assert seen.pop("units") == (True, "float32")
        with nx.enable_x64(True):
            assert engine.submit([double], [21]).result() == [42]
            assert [x.dtype.name for x in prefetch(batches())] == ["float64"]
        assert seen == {"units": (True, "float64"), "prefetch": (True, "float64")}
        engine.submit([double], [1]).result()
    assert seen["units"] == (True, "float32")
