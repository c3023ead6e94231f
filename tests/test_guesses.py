"""What people of JAX, PyTorch, Keras and TFLite write first: it works, or the error says what to write.

The rows of docs/coming_from_pytorch.md are what errors quote: the names are not here, and what they say to write is.
"""

import ast
import re

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.display import pages
from nxjax.numpy import methods

X = jnp.ones((2, 3))
MODEL = nx.nn.Linear(3, 4)
ARTIFACT = nx.compile(lambda x: x + 1, target="tflite", verify=False)(X)
OBJECTS = {"x": X, "model": MODEL, "artifact": ARTIFACT}
ROWS = [line for line in pages.page("coming_from_pytorch").splitlines() if line.startswith("| `")]
NAMES = [name for row in ROWS for name in re.findall(r"`([\w.*]+)`", row.split(" | ")[0])]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_page_is_refused_with_its_row(name):
    *homes, last = name.removesuffix(".*").split(".")
    found = OBJECTS.get(homes[0]) if homes else None
    owner = found if found is not None else nx
    for home in homes[found is not None :]:
        owner = getattr(owner, home, None)
    if owner is None:  # below what another row refuses
        return
    assert not hasattr(owner, last)
    with pytest.raises(AttributeError, match=rf"{last}'(?s:.*)instead: (?s:.*)nxjax explain coming_from_pytorch"):
        getattr(owner, last)


@pytest.mark.parametrize("name", ["tree_map", "xla_computation", "linear_util"])
def test_what_jax_has_no_longer_is_refused_with_its_row(name):
    with pytest.raises(AttributeError, match="no longer in JAX either"):
        getattr(nx, name)


def test_arrays_refuse_the_names_of_the_page_and_list_none():
    assert sorted(methods._ELSEWHERE) == sorted(n[2:] for n in NAMES if n.startswith("x."))
    assert not set(methods._ELSEWHERE) & set(dir(X)) and "reshape" in dir(X)
    assert "cuda" not in dir(jnp) and not hasattr(nx.Array, "cuda")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("`")[1])
def test_what_a_row_says_to_write_is_there(row):
    for code in re.findall(r"`([^`]+)`", row.split(" | ")[1]):
        if code.startswith("nxjax ") or code.endswith("="):
            continue
        for node in ast.walk(ast.parse(code.replace(" ...", ""))):
            if isinstance(node, ast.Attribute):
                words = ast.unparse(node).split(".")
                if all(map(str.isidentifier, words)) and words[0] in (owners := {"nx": nx, "jnp": jnp, **OBJECTS}):
                    owner = owners[words[0]]
                    for word in words[1:]:
                        owner = getattr(owner, word)


WORKS = {
    "numpy": lambda: jnp.array([1.0]).numpy().tolist() == [1.0],
    "item": lambda: X[0, 0].item() == 1.0,
    "a module": lambda: nx.nn.Linear(3, 4)(X[0]).shape == (4,),
    "a bar": lambda: list(nx.debug.progress_bar(range(3), bar=Bar)) == [0, 1, 2],
    "concat": lambda: jnp.concat([X, X]).shape == (4, 3),
    "keepdims": lambda: X.sum(axis=0, keepdims=True).shape == (1, 3),
    "a shape as a number": lambda: nx.random.normal(nx.random.key(0), 3).shape == (3,),
    "tree_map": lambda: nx.tree_util.tree_map(lambda x: x + 1, {"a": 1}) == {"a": 2},
    "export": lambda: nx.export.export(nx.jit(jnp.sin))(X).call(X).shape == (2, 3),
    "in place": lambda: float((lambda x: x.__iadd__(1) if hasattr(x, "__iadd__") else x + 1)(X)[0, 0]) == 2.0,
    "the version": lambda: isinstance(nx.__version__, str),
    "a module that was not imported": lambda: callable(nx.experimental.shard_map.shard_map),
}


class Bar:
    def __init__(self, total, desc):
        self.total = total

    def update(self, n):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("name", sorted(WORKS))
def test_it_works(name):
    assert WORKS[name]()


def test_save_and_load(tmp_path):
    nx.save(tmp_path / "x.npy", X)
    assert nx.load(tmp_path / "x.npy").shape == (2, 3)


f = lambda x: (x * 2).sum()

# what is written -> what the error says to write
SAYS = {
    "profile(f, x)": (lambda: nx.profile(f, X), r"profile\(fun\)\(x\)"),
    "cost(f, x)": (lambda: nx.cost(f, X), r"cost\(fun\)\(x\)"),
    "compile(f)": (lambda: nx.compile(f)(X), r"nx\.targets\(\)` lists(?s:.*)compile\(fun, target=\.\.\.\)\(x\)"),
    "compile(f, x)": (lambda: nx.compile(f, X), r"compile\(fun, target=\.\.\.\)\(x\)"),
    "compile for a misspelt target": (lambda: nx.compile(f, target="tflight")(X), "did you mean 'tflite'"),
    "explain(f, x)": (lambda: nx.explain(f, X), r"explain\(fun, target=\.\.\.\)\(x\)"),
    "explain for a family": (lambda: nx.explain(f, target="qualcomm"), "did you mean 'qualcomm-htp'"),
    "targets by a misspelt name": (lambda: nx.targets()["ethos-u56"], "did you mean 'ethos-u55'"),
    "targets(name)": (lambda: nx.targets("ethos-u55"), r"it takes none: targets\(\)"),
    "quantize to int9": (lambda: nx.quantize(f, "int9"), "did you mean 'int8'"),
    "quantize to INT8": (lambda: nx.quantize(f, "INT8"), "did you mean 'int8'"),
    "quantize to int4": (lambda: nx.quantize(f, "int4"), "did you mean 'int4-weights'"),
    "quantize to bf16": (lambda: nx.quantize(f, "bf16"), r"x\.astype"),
    "save to an archive": (lambda: nx.save("m.npz", X), r"savez\(file, \*\*arrays\)"),
    "save of a tree": (lambda: nx.save("m", {"w": X}), r"nx\.checkpoints\.save\(folder, tree\)"),
    "tune(f, x)": (lambda: nx.tune(f, X), r"tune\(fun\)\(x\)"),
    "static_argnums as a name": (lambda: nx.jit(f, static_argnums="x"), 'static_argnames="x"'),
    "static_argnames as a place": (lambda: nx.jit(f, static_argnames=0), "static_argnums=0"),
    "grad of an int": (lambda: nx.grad(f)(3), r"x\.astype\(float\)"),
    "grad of a value": (lambda: nx.grad(f(X)), r"grad\(f\)\(x\), not grad\(f\(x\)\)"),
    "quantize without calibration": (lambda: nx.quantize(f, "int8")(X), r"calibrate=batches"),
    "calibration=": (lambda: nx.quantize(f, "int8", calibration=[X]), "did you mean calibrate=?"),
    "quantize to a dtype": (lambda: nx.quantize(f, jnp.int8), "one of int8"),
    "in_axes out of range": (lambda: nx.vmap(f, in_axes=5)(X), "-2 <= axis < 2"),
    "in_axis=": (lambda: nx.vmap(f, in_axis=0), "did you mean in_axes=?"),
    "assignment": (lambda: X.__setitem__(0, 1), r"x = x\.at\[index\]\.set\(value\)"),
    "assignment to at": (lambda: X.at.__setitem__(0, 1), r"x = x\.at\[index\]\.set\(value\)"),
    "sizes apart": (lambda: nx.zeros(3, 4), r"one tuple"),
    "view of a shape": (lambda: X.view(3, 2), r"x\.reshape"),
    "a list as operand": (lambda: jnp.sin([1.0]), r"nx\.array"),
    "a shape for a key": (lambda: nx.random.normal((3,)), r"nx\.random\.key\(0\)"),
    "save(x, file)": (lambda: nx.save(X, "x.npy"), r"save\(file, x\)"),
    "a device that is not here": (lambda: nx.devices("nonsense"), "cpu:0"),
    "debug.print without braces": (lambda: nx.debug.print("x", X), "{} or {name}"),
    "a bar of a loop on the device": (lambda: nx.debug.progress_bar(range(3), scan=True), "on the device"),
    "a misspelt dtype": (lambda: jnp.array([1], "flaot32"), "'float32'"),
    "numpy in jit": (lambda: nx.jit(np.sin)(X), r"nx\.numpy"),
}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_error_says_what_to_write(name):
    call, says = SAYS[name]
    with pytest.raises(nx.errors.NxError, match=says):
        call()


ARGUMENTS = {
    "use_bias": (lambda: nx.nn.Linear(3, 4, use_bias=False), "bias="),
    "strides": (lambda: nx.nn.Conv2d(3, 8, 3, strides=2), "stride="),
    "activation": (lambda: nx.nn.Linear(3, 4, activation="relu"), "a layer of its own"),
    "pool_size": (lambda: nx.nn.MaxPool2d(pool_size=2), "MaxPool2d"),
    "eps": (lambda: nx.nn.LayerNorm(3, eps=1e-3), "epsilon="),
}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_another_librarys_argument_is_refused_with_its_row(name):
    call, says = ARGUMENTS[name]
    with pytest.raises(TypeError, match=rf"'{name}'(?s:.*)instead: (?s:.*){says}(?s:.*)explain coming_from_pytorch"):
        call()


def test_a_keyword_that_no_page_has_is_pythons_error():
    with pytest.raises(TypeError, match=r"'xyzzy'$"):
        nx.nn.Linear(3, 4, xyzzy=1)
