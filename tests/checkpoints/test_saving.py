"""Trees on disk and back: every dtype and kind of node, what is refused, and files that others can read."""

import collections
import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nxjax as nx
from nxjax import checkpoints
from nxjax.errors import DtypeError, InvalidFileError, ParameterError, ShapeError, TreeError
from nxjax.trace import dtypes

Point = collections.namedtuple("Point", "x y")
R = np.random.default_rng(0)


@nx.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object
    name: str = dataclasses.field(default="layer", metadata={"static": True})


def same(a, b):
    a, a_def = nx.tree.flatten(a)
    b, b_def = nx.tree.flatten(b)
    assert a_def == b_def
    for x, y in zip(a, b, strict=True):
        if isinstance(x, (str, bool, int, float, complex)) and not isinstance(x, np.generic):
            assert type(x) is type(y) and (x == y or x != x)
            continue
        assert x.dtype == y.dtype and x.shape == y.shape
        x, y = (v.numpy() if isinstance(v, nx.Array) else np.asarray(v) for v in (x, y))
        np.testing.assert_array_equal(x.reshape(-1).view(np.uint8), np.ascontiguousarray(y).reshape(-1).view(np.uint8))


STATE = {
    "params": [Layer(nx.ones((3, 4)), nx.zeros(4)), Layer(nx.arange(6).reshape(2, 3), None)],
    "opt": Point(nx.array(3), (nx.ones(2, dtype="bfloat16"),)),
    "key": nx.random.key(3),
    "keys": nx.random.split(nx.random.key(3), 4),
    "step": 7,
    "rate": 0.1,
    "done": False,
    "z": 1 + 2j,
    "run": "näme",
    "nothing": None,
    "empty": {},
    3: nx.ones(()),
}


def test_with_like_the_same_tree_comes_back(tmp_path):
    checkpoints.save(tmp_path, STATE, step=5)
    back = checkpoints.restore(tmp_path, like=STATE)
    same(back, STATE)
    assert isinstance(back["params"][0], Layer) and isinstance(back["opt"], Point)
    assert all(isinstance(x, nx.Array) for x in nx.tree.leaves(back["params"]))


def test_without_like_dicts_and_lists_come_back(tmp_path):
    checkpoints.save(tmp_path, STATE, step=5)
    back = checkpoints.restore(tmp_path)
    assert set(back) == set(STATE)
    assert set(back["params"][0]) == {"w", "b"} and back["params"][1]["b"] is None
    assert set(back["opt"]) == {"x", "y"} and isinstance(back["opt"]["y"], tuple)
    assert back["empty"] == {} and back["nothing"] is None and back["run"] == "näme" and back["z"] == 1 + 2j
    assert back["step"] == 7 and type(back["rate"]) is float and back["done"] is False
    assert back[3].shape == () and back["key"].dtype == nx.random.key(0).dtype
    same(back["params"][0]["w"], STATE["params"][0].w)
    again = checkpoints.restore(tmp_path, like=STATE)
    checkpoints.save(tmp_path / "b", back, step=0)
    same(checkpoints.restore(tmp_path / "b", like=STATE), again)  # found by path, whatever the nodes


ALL = sorted((*dtypes.NUMERIC,), key=str)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7)], ids=str)
def test_every_dtype(dtype, shape, tmp_path):
    x = (R.standard_normal(shape) * 3).clip(0 if dtype in dtypes.UNSIGNED else -7, 7).astype(dtype)
    checkpoints.save(tmp_path, {"x": x, "y": nx.asarray(x, dtype=dtype)})
    back = checkpoints.restore(tmp_path)
    same(back, {"x": x, "y": x})
    same(checkpoints.restore(tmp_path, like={"x": x, "y": nx.asarray(x, dtype=dtype)})["x"], x)


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.one_of(
            hnp.arrays(st.sampled_from([np.float32, np.int8, np.bool_, np.uint64]), hnp.array_shapes(max_side=4)),
            st.integers(-(2**70), 2**70),
            st.floats(),
            st.booleans(),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            st.none(),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=3),
        ),
        max_leaves=12,
    )
)
def test_any_tree(tree):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(folder, tree)
        same(checkpoints.restore(folder), tree)
        same(checkpoints.restore(folder, like=tree), tree)


def test_names_that_meet(tmp_path):
    tree = {"a.b": nx.ones(1), "a": {"b": nx.zeros(1)}, "__metadata__": nx.ones(2), "1": nx.ones(3), 1: nx.ones(4)}
    checkpoints.save(tmp_path, tree)
    same(checkpoints.restore(tmp_path), tree)


def test_qarrays_come_back_as_they_are(tmp_path):
    w = nx.QArray(nx.array([[1, -7]], dtype="int4"), nx.array([[0.5]]))
    checkpoints.save(tmp_path, {"w": w, "v": [w]})
    for back in (checkpoints.restore(tmp_path), checkpoints.restore(tmp_path, like={"w": w, "v": [w]})):
        assert isinstance(back["w"], nx.QArray) and back["w"].dtype == ml_dtypes.int4
        np.testing.assert_array_equal(np.asarray(back["v"][0]), np.asarray(w))


def test_arrays_of_jax(tmp_path):
    tree = {"x": jnp.arange(3.0), "k": jax.random.key(1), "b": jnp.ones(2, jnp.bfloat16)}
    checkpoints.save(tmp_path, tree)
    back = checkpoints.restore(tmp_path)
    np.testing.assert_array_equal(nx.random.key_data(back["k"]), jax.random.key_data(tree["k"]))
    np.testing.assert_array_equal(back["x"], np.arange(3))
    checkpoints.restore(tmp_path, like=tree)


def test_numpy_keeps_64_bits_and_any_order_in_memory(tmp_path):
    x = np.asfortranarray(R.standard_normal((5, 7)))
    tree = {"x": x, "y": x[::2, ::-3], "n": np.int64(2**40), "i": np.arange(3)}
    checkpoints.save(tmp_path, tree)
    back = checkpoints.restore(tmp_path, like=tree)
    same(back, tree)
    assert isinstance(back["x"], np.ndarray) and back["x"].flags.writeable and isinstance(back["n"], np.int64)
    assert checkpoints.restore(tmp_path)["x"].dtype == np.float64


def test_weak_types_stay(tmp_path):
    weak = nx.jit(lambda x: x)(2.0)
    checkpoints.save(tmp_path, {"a": weak, "b": nx.ones(())})
    back = checkpoints.restore(tmp_path)
    assert back["a"].weak_type == weak.weak_type and not back["b"].weak_type


def test_shapes_in_the_place_of_arrays(tmp_path):
    checkpoints.save(tmp_path, {"w": nx.ones((2, 3)), "k": nx.random.key(0), "n": 3})
    like = nx.eval_shape(lambda: {"w": nx.ones((2, 3)), "k": nx.random.key(0), "n": 3.0})
    back = checkpoints.restore(tmp_path, like=like)
    same(back["w"], nx.ones((2, 3)))
    assert back["n"].dtype == np.float32


def test_restored_arrays_train_on(tmp_path):
    step = nx.jit(lambda p: nx.tree.map(lambda x: x * 2, p), donate_argnums=0)
    checkpoints.save(tmp_path, {"w": nx.ones((64, 64))})
    state = checkpoints.restore(tmp_path)
    for _ in range(3):
        state = step(state)
    assert float(state["w"][0, 0]) == 8
    same(checkpoints.restore(tmp_path)["w"], nx.ones((64, 64)))


def test_files_are_read_by_any_safetensors_library(tmp_path):
    tree = {"a": {"w": nx.ones((2, 3)), "i": nx.arange(5)}, "b": nx.array([True, False])}
    folder = checkpoints.save(tmp_path, tree, step=2, metadata={"lr": 0.1})
    (path,) = folder.glob("*.safetensors")
    assert path.name == "shard-00000-of-00001.safetensors"
    found = safetensors.numpy.load_file(path)
    assert set(found) == {"a.w", "a.i", "b"}
    np.testing.assert_array_equal(found["a.i"], np.arange(5))
    index = json.loads((folder / "index.json").read_text())["checkpoint"]
    assert index["step"] == 2 and index["metadata"] == {"lr": 0.1}
    assert checkpoints.metadata(tmp_path) == {"lr": 0.1}


def test_big_arrays_lie_on_cache_lines_of_the_file(tmp_path):
    checkpoints.save(tmp_path, {"a": nx.ones(3), "b": nx.ones((16, 16)), "c": nx.ones(1, dtype="int8")})
    back = checkpoints.restore(tmp_path, verify=False)
    data = back["b"].numpy()
    assert data.ctypes.data % 64 == 0 and not data.flags.writeable and not data.flags.owndata


def test_steps(tmp_path):
    assert checkpoints.all_steps(tmp_path) == [] and checkpoints.latest_step(tmp_path / "none") is None
    for step in (3, 20, 100):
        checkpoints.save(tmp_path, {"s": step}, step=step)
    for other in ("7", "007", "x", "5.nxjax-tmp-h-1-1"):
        (tmp_path / other).mkdir()
    assert checkpoints.all_steps(tmp_path) == [3, 20, 100] and checkpoints.latest_step(tmp_path) == 100
    assert checkpoints.restore(tmp_path)["s"] == 100 and checkpoints.restore(tmp_path, step=3)["s"] == 3
    with pytest.raises(ParameterError, match=r"no checkpoint of step 4.*"):
        checkpoints.restore(tmp_path, step=4)
    with pytest.raises(ParameterError, match="no complete step"):
        checkpoints.restore(tmp_path / "none")
    with pytest.raises(ParameterError, match="already"):
        checkpoints.save(tmp_path, {"s": 0}, step=3)
    checkpoints.save(tmp_path, {"s": "new"}, step=3, overwrite=True)
    assert checkpoints.restore(tmp_path, step=3)["s"] == "new"
    with pytest.raises(ParameterError, match="blocks the path"):
        checkpoints.save(tmp_path, {"s": 0}, step=7, overwrite=True)
    for step in (-1, 1.5, "3", True, None):
        with pytest.raises(ParameterError, match="whole number"):
            checkpoints.save(tmp_path, {}, step=step)


def test_leaves_that_are_missing_or_more_are_named(tmp_path):
    checkpoints.save(tmp_path, {"a": nx.ones(2), "b": {"c": nx.ones(3)}})
    with pytest.raises(TreeError, match=r"not in the checkpoint: b\.d; not in like=: b\.c"):
        checkpoints.restore(tmp_path, like={"a": nx.ones(2), "b": {"d": nx.ones(3)}})


def test_other_shapes_and_dtypes_are_named(tmp_path):
    checkpoints.save(tmp_path, {"a": nx.ones(2), "b": {"c": nx.ones(3)}, "s": "text", "n": 2.5, "k": nx.random.key(0)})
    good = {"a": nx.ones(2), "b": {"c": nx.ones(3)}, "s": "", "n": 0.0, "k": nx.random.key(1)}
    checkpoints.restore(tmp_path, like=good)
    for change, words in [
        ({"a": nx.ones(3)}, r"a: f32\[2\], f32\[3\] asked for"),
        ({"b": {"c": nx.arange(3)}}, r"b\.c: f32\[3\], i32\[3\] asked for"),
        ({"s": nx.ones(1)}, r"s: a str"),
        ({"n": 3}, r"n: a float, a int asked for|n: a float, int asked for"),
        ({"a": 1.0}, r"a: f32\[2\], a float asked for"),
        ({"k": nx.ones(2)}, r"k: key"),
    ]:
        with pytest.raises(ShapeError, match=words):
            checkpoints.restore(tmp_path, like={**good, **change})


def test_what_files_do_not_hold_is_named(tmp_path):
    for tree, error, words in [
        ({"a": object()}, TreeError, "a cannot be saved"),
        ({"a": np.array(["x"])}, DtypeError, "cannot hold"),
        ({"a": np.zeros(2, nx.float0)}, DtypeError, "a has an element type|cannot hold|float0"),
        ({1.5: nx.ones(1)}, TreeError, "neither string nor integer"),
    ]:
        with pytest.raises(error, match=words):
            checkpoints.save(tmp_path / "x", tree)
    with pytest.raises(ParameterError, match="must be JSON"):
        checkpoints.save(tmp_path / "x", {}, metadata={"a": object()})
    with pytest.raises(TreeError, match="traced value"):
        nx.jit(lambda x: checkpoints.save(tmp_path / "x", {"w": x}))(1.0)
    deep = nx.ones(1)
    for _ in range(250):
        deep = [deep]
    with pytest.raises(TreeError, match="too deep"):
        checkpoints.save(tmp_path / "x", deep)
    assert not (tmp_path / "x").exists()


def damaged(folder, path, change):
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data))
    return folder


def test_damaged_files_are_named_with_the_tensor(tmp_path):
    folder = checkpoints.save(tmp_path, {"first": nx.ones(64), "second": nx.zeros(64)})
    (path,) = folder.glob("*.safetensors")
    whole = path.read_bytes()
    for position in range(0, len(whole), 17):
        data = bytearray(whole)
        data[position] ^= 4
        path.write_bytes(data)
        said = None
        try:
            back = checkpoints.restore(tmp_path)
            same(back, {"first": nx.ones(64), "second": nx.zeros(64)})
        except InvalidFileError as error:
            said = str(error)
        assert said is None or path.name in said
        assert position <= len(whole) - 256 or "'second'" in said
    for size in (0, 4, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidFileError, match="shard-00000"):
            checkpoints.restore(tmp_path)
    path.unlink()
    with pytest.raises(InvalidFileError, match="missing"):
        checkpoints.restore(tmp_path)


def test_a_damaged_index_is_named(tmp_path):
    folder = checkpoints.save(tmp_path, {"a": nx.ones(3), "b": [1, None, "x"]}, metadata={"m": [1.5]})
    path = folder / "index.json"
    whole = path.read_bytes()
    for position in range(0, len(whole), 3):
        data = bytearray(whole)
        data[position] ^= 1
        path.write_bytes(data)
        with pytest.raises(InvalidFileError, match=r"index\.json"):
            checkpoints.restore(tmp_path)
    for size in range(0, len(whole), 29):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidFileError, match=r"index\.json"):
            checkpoints.restore(tmp_path)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_hostile_indices(tmp_path_factory, data):
    """Every field may be anything, under a checksum that fits."""
    from nxjax.checkpoints import index as indexes
    from nxjax.errors import NxError

    tmp_path = tmp_path_factory.mktemp("hostile")
    folder = checkpoints.save(tmp_path, {"a": nx.ones((2, 3)), "b": [1, None, "x"], "q": (2.5,)})
    path = folder / "index.json"
    body = json.loads(path.read_bytes())["checkpoint"]
    places = []

    def walk(x):
        for key in x if isinstance(x, dict) else range(len(x)):
            places.append((x, key))
            if isinstance(x[key], (dict, list)):
                walk(x[key])

    walk(body)
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    junk = st.one_of(
        st.none(), st.integers(-5, 2**66), st.text(max_size=4), st.just([]), st.just({}), st.just([[1]]), st.just(1e99),
        st.sampled_from(["../index.json", "float64", "/etc/passwd", [2**62, 2**62], {"l": [0, 0]}, {"d": [[None, 0]]}]),
    )  # fmt: skip
    holder[key] = data.draw(junk)
    path.write_bytes(json.dumps({"crc32": indexes._checksum(body), "checkpoint": body}).encode())
    try:
        checkpoints.restore(tmp_path)
        checkpoints.restore(tmp_path, like={"a": nx.ones((2, 3)), "b": [1, None, "x"], "q": (2.5,)})
    except (NxError, OSError):
        pass


def test_a_bar_when_asked_for(tmp_path, capsys):
    checkpoints.save(tmp_path, {"a": nx.ones(1000)}, progress=True)
    assert "saving step 0" in capsys.readouterr().err
    checkpoints.restore(tmp_path, progress=True)
    assert "restoring step 0" in capsys.readouterr().err
    checkpoints.save(tmp_path, {"a": nx.ones(1000)}, step=1)
    assert not capsys.readouterr().err


def test_arrays_of_the_other_order_of_bytes(tmp_path):
    """They are saved as this machine has them, to the last bit, and come back into arrays of either order."""
    for i, kind in enumerate(("i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16")):
        x = np.array([1.1, -2.7, 1e4]).astype(f">{kind}") if kind[0] != "u" else np.array([1, 2**31], f">{kind}")
        for value in (x, x[::-2], x[:0], x[1]):
            checkpoints.save(tmp_path, {"x": value}, step=i, overwrite=True)
            back = checkpoints.restore(tmp_path, step=i)["x"]
            assert back.dtype == np.dtype(kind) and np.array_equal(back, value)
            like = checkpoints.restore(tmp_path, step=i, like={"x": value})["x"]
            assert np.array_equal(like, value)
        assert checkpoints.restore(tmp_path, step=i, like={"x": x[1:2].reshape(())})["x"].dtype == x.dtype


@pytest.mark.parametrize("mask", [[False, True, False], False])
def test_a_masked_array_is_refused(tmp_path, mask):
    """Its mask would be lost without a word."""
    with pytest.raises(TreeError, match=r"layers.0 is a masked array[\s\S]*filled"):
        checkpoints.save(tmp_path, {"layers": [np.ma.array([1.0, 2.0, 3.0], mask=mask)]})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(2, [("a", "i4")]), np.rec.array([(1,)], dtype=[("a", "i4")]), np.array([1, None]), np.array(["a"]),
        np.array([b"a"]), np.array(["2020-01-01"], "M8[D]"), np.array([1], "m8[s]"), np.arange(2, dtype=np.longdouble),
        np.array([1]).astype(ml_dtypes.int2), np.array([1]).astype(ml_dtypes.float8_e8m0fnu), b"text",
    ],
    ids=lambda x: str(getattr(x, "dtype", type(x))),
)  # fmt: skip
def test_what_files_do_not_hold_is_refused(tmp_path, x):
    with pytest.raises((DtypeError, TreeError)):
        checkpoints.save(tmp_path, {"x": x})
    assert not any(tmp_path.iterdir())


def test_arrays_however_they_lie_in_memory(tmp_path):
    mapped = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(3,))
    base = np.arange(24.0).reshape(2, 3, 4)
    tree = {
        "F": np.asfortranarray(base), "T": base.T, "step": base[::2, ::-1, 1::2],
        "repeated": np.broadcast_to(base[0], (5, 3, 4)),
        "0": np.array(2.5), "none": base[:0], "mapped": mapped, "bool": base > 3,
    }  # fmt: skip
    checkpoints.save(tmp_path, tree)
    for back in (checkpoints.restore(tmp_path), checkpoints.restore(tmp_path, like=tree)):
        for name, x in tree.items():
            assert back[name].shape == x.shape and back[name].dtype == x.dtype and np.array_equal(back[name], x)


def test_keys_are_no_paths(tmp_path):
    names = (
        "..",
        "/",
        "/etc/passwd",
        "a/b",
        "x" * 5000,
        "ü\0\n",
        "",
        "__metadata__",
        "nxjax.crc32",
        "\u202e",
        "a.b",
        "a@0",
    )
    tree = {name: {name: np.arange(i), "n": i} for i, name in enumerate(names)}
    folder = checkpoints.save(tmp_path / "runs", tree)
    assert sorted(p.name for p in folder.iterdir()) == ["index.json", "shard-00000-of-00001.safetensors"]
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
    for back in (checkpoints.restore(tmp_path / "runs"), checkpoints.restore(tmp_path / "runs", like=tree)):
        for i, name in enumerate(names):
            assert back[name][name].shape == (i,) and back[name]["n"] == i
    with pytest.raises(TreeError, match="is not text"):
        checkpoints.save(tmp_path, {"a": {"\ud800": 1}})


def test_numbers_and_texts_of_any_length(tmp_path):
    tree = {"i": 7**9000, "minus": -(2**64), "s": "\ud800 \0 ü", "z": -0.0, "inf": float("-inf"), "c": complex(-0.0, 2)}
    checkpoints.save(tmp_path, tree)
    back = checkpoints.restore(tmp_path)
    assert back == tree and str(back["z"]) == "-0.0" and str(back["c"]) == str(tree["c"])


def test_pipes_and_folders_in_a_files_place(tmp_path):
    """A checkpoint from elsewhere does not stop the process."""
    folder = checkpoints.save(tmp_path, {"x": np.arange(3)})
    shard = next(folder.glob("*.safetensors"))
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(InvalidFileError, match="not a file"):
        checkpoints.restore(tmp_path)
    (folder / "index.json").unlink()
    os.mkfifo(folder / "index.json")
    with pytest.raises(ParameterError, match="no checkpoint"):
        checkpoints.restore(tmp_path)


def test_an_index_of_no_end_is_not_read(tmp_path):
    folder = checkpoints.save(tmp_path, {"x": np.arange(3)})
    os.truncate(folder / "index.json", 2**40)
    with pytest.raises(InvalidFileError, match="larger than a file of its kind"):
        checkpoints.restore(tmp_path)


@pytest.mark.parametrize("copies", [2, 1000])
def test_an_index_that_asks_for_many_copies_of_a_part(tmp_path, copies):
    """A short file would take any amount of memory."""
    folder = checkpoints.save(tmp_path, {"x": np.zeros(1000)})
    place = folder / "index.json"
    whole = json.loads(place.read_text())
    body = whole["checkpoint"]
    body["leaves"] = [{**body["leaves"][0], "path": ["x", i]} for i in range(copies)]
    body["tree"] = {"d": [["x", {"l": list(range(copies))}]]}
    whole["crc32"] = checkpoints.index._checksum(body)
    place.write_text(json.dumps(whole))
    with pytest.raises(InvalidFileError, match="in files of"):
        checkpoints.restore(tmp_path)


def test_links_in_a_steps_place(tmp_path):
    """Steps that were moved to another disk, and linked back."""
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for step in (1, 2):
        checkpoints.save(elsewhere, {"x": np.float32(step)}, step=step)
        here.mkdir(exist_ok=True)
        (here / str(step)).symlink_to(elsewhere / str(step))
    assert checkpoints.all_steps(here) == [1, 2] and checkpoints.restore(here)["x"] == 2
    with pytest.raises(ParameterError, match="there already"):
        checkpoints.save(here, {"x": np.float32(7)}, step=1)
    checkpoints.save(here, {"x": np.float32(7)}, step=1, overwrite=True)
    assert checkpoints.restore(here, step=1)["x"] == 7 and checkpoints.restore(elsewhere, step=1)["x"] == 1
    checkpoints.steps.remove(here, 2)
    assert os.listdir(here) == ["1"] and checkpoints.all_steps(elsewhere) == [1, 2]


@pytest.mark.parametrize("target", ["/no/such/folder", "3", "."])
@pytest.mark.parametrize("overwrite", [False, True])
def test_links_to_no_step_are_in_the_way(target, overwrite, tmp_path):
    (tmp_path / "3").symlink_to(target)
    with pytest.raises(ParameterError, match="blocks the path"):
        checkpoints.save(tmp_path, {"x": 1}, step=3, overwrite=overwrite)
    assert os.listdir(tmp_path) == ["3"]


@pytest.mark.parametrize(
    "x",
    [jax.random.key(1, impl="rbg"), np.ma.zeros(2, [("a", "i4")]), np.zeros(2, [("a", "i4")]), np.array(["a"])],
    ids=["rbg", "masked", "fields", "text"],
)
def test_the_leaf_that_files_do_not_hold_is_named(x, tmp_path):
    with pytest.raises((DtypeError, TreeError), match=r"layers\.0"):
        checkpoints.save(tmp_path, {"layers": [x]})
