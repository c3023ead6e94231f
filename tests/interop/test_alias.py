"""nxjax under the name `jax`, in processes of their own: one set of modules, and nothing of JAX."""

import subprocess
import sys

PROGRAM = """
import importlib, sys
import nxjax as nx
{alias}
import jax
import jax.numpy as jnp
import jax.scipy.special, jax.tree_util, jax.nn.initializers, jax.experimental.checkify
import jax.random as jr
from jax import lax, Array, config
from jax.tree_util import tree_map, register_pytree_node_class
from jax.experimental import checkify
from jax.sharding import PartitionSpec
from jax.flatten_util import ravel_pytree
assert jax is nx and jnp is nx.numpy and lax is nx.lax and jr is nx.random and jax.tree_util is nx.tree_util
assert jax.scipy.special is nx.scipy.special and sys.modules["jax.tree_util"] is sys.modules["nxjax.tree_util"]
assert jax.scipy.special.__spec__.name == "nxjax.scipy.special"
assert tree_map(lambda x: x + 1, {{"a": 1}}) == {{"a": 2}} and checkify is nx.experimental.checkify
assert isinstance(jnp.ones(3), jax.Array) and jax.version.__version__ == jax.__version__ == "0.10.2"
assert jax.__version_info__ == (0, 10, 2) and config is nx.config and jax.config is nx.config
assert jax.typeof(jnp.ones(3)).sharding.mesh.are_all_axes_explicit is False
seen = []
jax.jit(lambda x: (seen.append(isinstance(x, jax.core.Tracer)), x)[1])(1.0)
assert seen == [True]
from jax._src import compiler
import jax._src.traceback_util as traceback_util
traceback_util.register_exclusion(__file__ if "__file__" in globals() else "x")
assert jax._src.xla_bridge._backends == {{}}
import jax.lib, jax._src.interpreters.ad
assert jax.lib.__version__ == "0.10.2"
assert jax._src.interpreters.ad.UndefinedPrimal is jax.interpreters.ad.UndefinedPrimal
square = jax.custom_vjp(lambda x: x * x)
square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
try:
    jax.jvp(square, (1.0,), (1.0,))
except jax._src.interpreters.ad.CustomVJPException:
    pass
else:
    raise AssertionError("forward mode of a reverse rule")
for name, says in [
    ("jax._src.pjit", "private to JAX"), ("jax.config", "has none"), ("jax.nothing", "has none"),
]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert says in str(error) and error.name == name, (name, error)
    else:
        raise AssertionError(name)
try:
    compiler.backend_compile_and_load
except AttributeError as error:
    assert "private to JAX" in str(error)
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager, get_tensorstore_spec
try:
    get_tensorstore_spec("a")
except NotImplementedError as error:
    assert "get_tensorstore_spec is not here" in str(error)
else:
    raise AssertionError("called")
prefix_errors = jax._src.tree_util.prefix_errors
(wrong,) = prefix_errors({{"y": [1]}}, {{"y": 1}})
assert str(wrong("in_axes")).startswith("in_axes['y']") and isinstance(wrong("in_axes"), ValueError), wrong("in_axes")
assert prefix_errors(1, [1, 2]) == []
assert jax._src.core.ShapedArray is jax.core.ShapedArray and jax._src.core.trace_state_clean()
assert not [m for m in sys.modules if m.startswith(("jaxlib", "jax._src.pjit"))]
# A tree that only JAX's registry would know is looked for in JAX, not here.
class Leaf: pass
assert len(jax.tree.leaves([Leaf(), Leaf()])) == 2
{end}
print("done")
"""
ENDED = """
alias.end()
assert "jax" not in sys.modules and not [m for m in sys.modules if m.startswith("jax.")]
assert nx.__version__ != "0.10.2"
with nx.interop.as_jax() as again:
    import jax.lax
    assert again is nx and sys.modules["jax.lax"] is nx.lax
assert "jax" not in sys.modules
sys.modules["jax"] = sys
try:
    nx.interop.as_jax()
except nx.errors.NxError as error:
    assert "imported already" in str(error)
else:
    raise AssertionError
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr


def test_by_as_jax():
    run(PROGRAM.format(alias="alias = nx.interop.as_jax()", end=ENDED))


def test_by_hand():
    run(PROGRAM.format(alias='sys.modules["jax"] = nx; sys.modules["jax.numpy"] = nx.numpy', end=""))
