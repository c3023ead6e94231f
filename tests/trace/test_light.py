"""Packages of which only the compiled part is loaded at first: what others see of them."""

import subprocess
import sys

import pytest

AFTER = {
    "names": "import optree; print(optree.tree_map(abs, {'a': -1}), optree.__version__ > '0', 'ops' in dir(optree))",
    "part": "import optree._C; print(optree._C.PyTreeSpec is optree.PyTreeSpec)",
    "inner": "import optree.ops; print(optree.ops.tree_leaves([1, 2]))",
    "all": "from optree import *; print(tree_structure([1]))",
    "pickle": "import pickle; s = nx.tree.structure([1, {'a': 2}]); print(pickle.loads(pickle.dumps(s)) == s)",
    "dtypes": "import ml_dtypes, numpy as np; print(np.dtype('bfloat16'), ml_dtypes.finfo('bfloat16').bits)",
    "nodes": "import collections; print(nx.tree.leaves_with_path(collections.OrderedDict(a=[1])))",
    "threads": "from threading import Thread; import optree; ts = [Thread(target=lambda: optree.ops) for _ in 'ab']\n"
    "[t.start() for t in ts]; [t.join() for t in ts]; print(optree.tree_map.__name__)",
    "collects": "import gc; print(gc.isenabled())",
}


@pytest.mark.parametrize("code", AFTER.values(), ids=AFTER)
def test_others_see_the_packages_as_they_are(code):
    runs = [
        subprocess.run([sys.executable, "-c", f"{first}import nxjax as nx\n{code}"], capture_output=True, text=True)
        for first in ("", "import optree, ml_dtypes\n")
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert runs[0].stdout == runs[1].stdout != ""
    assert not runs[0].stderr


def test_an_import_leaves_the_collection_of_garbage_as_it_was():
    code = (
        "import gc; gc.disable(); import nxjax as nx; nx.jit(lambda x: x + 1)(nx.numpy.ones(2)); print(gc.isenabled())"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
