"""The house keeps its order: who may import whom, what import costs, what every file has."""

import ast
import gc
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from nxjax.ops.index import FILES as INDEX
from nxjax.trace.core import find_op

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nxjax"
FILES = sorted(PACKAGE.rglob("*.py"))

# room -> rooms it may import
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": {"errors"},
    "display": {"errors", "config"},
    "files": {"errors", "config"},
    "trace": {"errors", "config", "display"},
    "ops": {"errors", "config", "display", "trace"},
    "transforms": {"errors", "config", "display", "trace", "ops"},
    "quant": {"errors", "config", "display", "files", "trace", "ops", "transforms"},
    "kernels": {"errors", "config", "display", "files", "trace", "ops"},
    "lower": {"errors", "config", "display", "files", "trace", "ops", "transforms", "quant", "kernels"},
    "backends": {"errors", "config", "display", "files", "trace", "ops", "transforms", "kernels", "lower"},
    "vendors": {
        "errors",
        "config",
        "display",
        "files",
        "trace",
        "ops",
        "transforms",
        "kernels",
        "lower",
        "backends",
    },
}
CORE = set(ALLOWED)
# What lies above the core: a room imports the core and the lines before its own.
ABOVE = """
    monitoring profiler tree typing version
    ad_checkpoint api_util custom_batching custom_derivatives deploy hybrid interpreters profiling stages tree_util
    commands
    runtime
    checkpoints core numpy tuning
    dlpack dtypes flatten_util image lax notebook
    debug sharding
    random
    distributed nn scipy stablehlo
    example_libraries experimental export predict
    interop nas
    generation
    doctor
    __init__
    demo hardware
    testing
    __main__ extend test_util
"""
FACES = {
    "numpy", "lax", "nn", "random", "scipy", "tree", "tree_util", "flatten_util", "dtypes", "debug", "typing", "core",
    "custom_derivatives", "ad_checkpoint", "experimental", "example_libraries", "ops", "sharding",
}  # fmt: skip
VENDORS = {
    "jax", "jaxlib", "libtpu", "scipy", "sklearn", "matplotlib", "tqdm", "torch", "tensorflow", "safetensors",
    "openvino", "onnx", "onnxruntime", "onnxruntime_qnn", "ai_edge_litert", "ethosu", "coremltools", "flatbuffers",
    "pyxrt", "optuna",
    "onnxruntime_genai", "tokenizers",
    "iree",
}  # fmt: skip
# Where a vendor's package may be named, inside functions.
NPU = ("lower/npu/formats", "vendors")
VENDOR_ROOMS = {
    "jaxlib": ("backends/xla", "backends/tpu"),
    "libtpu": ("backends/xla", "backends/tpu"),
    "jax": ("trace/tree_nodes.py", "interop/jax.py"),
    "scipy": ("demo/sounds.py",),
    "sklearn": ("demo", "predict"),
    "matplotlib": ("demo", "quant", "deploy", "profiling", "nas"),
    "optuna": ("nas",),
    "tqdm": ("demo", "debug", "display"),
    "iree": ("backends/iree",),
    "safetensors": ("quant",),
    "tokenizers": ("generation/tokenizer.py",),
    "onnx": (*NPU, "interop/onnx"),
    "torch": ("interop/torch",),
    **dict.fromkeys(
        (
            "openvino",
            "onnxruntime",
            "onnxruntime_qnn",
            "onnxruntime_genai",
            "ai_edge_litert",
            "ethosu",
            "coremltools",
            "flatbuffers",
            "pyxrt",
            "optuna",
        ),
        NPU,
    ),
}


def room(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


@pytest.fixture(autouse=True, scope="module")
def _trees_are_no_garbage() -> Iterator[None]:
    """Trees end with the last use, and the collector would walk them all the time."""
    gc.disable()
    yield
    gc.enable()


def walked(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` gives, in that order, in a third of the time."""
    nodes = [tree]
    for node in nodes:
        for value in vars(node).values():
            if isinstance(value, list):
                nodes += [v for v in value if isinstance(v, ast.AST)]
            elif isinstance(value, ast.AST):
                nodes.append(value)
    return nodes


class Facts(NamedTuple):
    """What the tests ask of a file's tree."""

    docstring: str | None
    imports: list[tuple[str, bool]]
    """Imported modules, and whether the import stands at the top of the file."""
    by_name: set[str]
    """Modules that it finds by name."""
    classes: list[str]
    """Public ones at its top."""
    inner: list[str]
    """Of each import of nxjax inside a function, the module."""
    has_asked: list[int]
    """Lines of functions that ask an op or a primitive whether it has a member of a given name."""
    questions: int
    """How often functions ask an op for its name."""
    tables: set[str]
    """Texts of tables that are asked for the row of an op."""


@lru_cache(None)
def parsed(path: Path) -> Facts:
    """Trees of a thousand files take too much memory: each is walked once."""
    tree = ast.parse(path.read_text())
    nodes = walked(tree)
    functions = [walked(n) for n in nodes if isinstance(n, ast.FunctionDef)]
    asking: set[int] = set()
    for function in functions:
        names = named_ops(function)
        asking |= {id(n) for n in function if asks_by_name(n, names)}
    within = list({id(n): n for function in functions for n in function}.values())
    return Facts(
        ast.get_docstring(tree),
        imported(tree, nodes, path),
        found_by_name(nodes),
        [n.name for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")],
        [name for n in within for name in modules_of(n) if name.startswith("nxjax")],
        [n.lineno for n in within if asks_for_a_member(n)],
        len(asking),
        {ast.unparse(table) for n in nodes if (table := table_of(n)) is not None},
    )


def last_name(node: ast.AST) -> str:
    """``b`` of ``a.b``: to write out every call of every file takes longer than to find it."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


OP_FILES = {name: file for file, names in INDEX.items() for name in names.split()}


def found_by_name(nodes: list[ast.AST]) -> set[str]:
    """Modules given to `import_module` as text, and files of the ops that are asked of the vocabulary."""
    found: set[str] = set()
    vocabulary: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "nxjax.ops":
            vocabulary |= {alias.asname or alias.name for alias in node.names if alias.name == "vocabulary"}
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func).endswith("import_module"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("nxjax.")}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in vocabulary:
            found |= {f"nxjax.{file}" for file in [OP_FILES.get(node.attr.rstrip("_"))] if file}
    return found


def imports(path: Path) -> list[tuple[str, bool]]:
    return parsed(path).imports


def imported(tree: ast.Module, nodes: list[ast.AST], path: Path) -> list[tuple[str, bool]]:
    tried = [node for t in tree.body if isinstance(t, ast.Try) for node in t.body]
    tops = set(map(id, [*tree.body, *tried]))
    found = []
    for node in nodes:
        top = id(node) in tops
        if isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            ours = (node.module or "").startswith("nxjax")
            found += [(f"{node.module}.{alias.name}" if ours else node.module or "", top) for alias in node.names]
    return found


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_files_at_the_top_have_the_names_of_jax():
    """What is not a module of JAX has a room."""
    theirs = importlib.util.find_spec("jax").submodule_search_locations
    known = {m.name for m in pkgutil.iter_modules(theirs) if not m.name.startswith("_")}
    own = {p.stem for p in PACKAGE.glob("*.py")}
    assert {"core", "sharding"} <= own and own - known == {"__init__", "__main__"}


def test_rooms_import_only_what_lies_below_them():
    """One test for all files, as those below: a thousand files are a list, not a thousand tests."""
    wrong = []
    for path in (f for f in FILES if room(f) in CORE):
        allowed = ALLOWED[room(path)] | {room(path)}
        parts = [name.split(".") for name, _ in imports(path)]
        wrong += [
            f"{named(path)} imports {'.'.join(p)}" for p in parts if p[0] == "nxjax" and p[1:] and p[1] not in allowed
        ]
    assert not wrong


@lru_cache(None)
def needed(path: Path) -> frozenset[Path]:
    """The files that a file imports: at its top, inside functions, by name, and for annotations alone."""
    found: set[Path] = set()
    for name in (*(name for name, _ in imports(path)), *sorted(parsed(path).by_name)):
        parts = name.split(".")
        while parts[0] == "nxjax" and parts[1:]:
            file = PACKAGE.joinpath(*parts[1:])
            at = [p for p in (file.with_suffix(".py"), file / "__init__.py") if p in SEEN]
            if at:
                found.add(at[0])
                break
            parts.pop()
    return frozenset(found - {path})


SEEN = set(FILES)


def test_rooms_above_the_core_import_only_the_lines_before_theirs():
    line = {name: i for i, names in enumerate(ABOVE.strip().splitlines(), 1) for name in names.split()}
    line |= dict.fromkeys(CORE, 0)
    assert {room(f) for f in FILES} == line.keys()
    pairs = [(a, b) for a in FILES for b in needed(a) if room(a) not in {room(b), *CORE}]
    assert not [f"{named(a)} imports {named(b)}" for a, b in pairs if line[room(a)] <= line[room(b)]]


def circles(nodes: Iterable[str], arrows: Callable[[str], Iterable[str]]) -> list[set[str]]:
    """Sets of several nodes of which each reaches all others (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(a: str) -> None:
        index[a] = low[a] = len(index)
        stack.append(a)
        for b in arrows(a):
            if b not in index:
                visit(b)
            low[a] = min(low[a], low[b])
        if low[a] == index[a]:
            members = set(stack[stack.index(a) :])
            del stack[stack.index(a) :]
            low.update(dict.fromkeys(members, len(low) + len(FILES)))  # done: nobody's way back
            found.append(members)

    for a in nodes:
        if a not in index:
            visit(a)
    return [members for members in found if len(members) > 1]


# Files that need each other, and why. A circle that is not here is an error, and so is a row without one.
CIRCLES: dict[str, str] = {
    "trace/sharding trace/types": "a type may hold a sharding",
    "trace/array trace/core": "whatever is no array is made one where it is bound",
    "trace/program trace/text": "a program shows itself",
    "transforms/jit transforms/jit_entry transforms/jit_stages transforms/jit_trace "
    "transforms/retrace": "what a jitted function is, is asked of it by its parts",
    "numpy/__init__ numpy/array_functions numpy/at numpy/creation numpy/elementwise numpy/floats numpy/functional "
    "numpy/indexing numpy/integers numpy/joining numpy/methods numpy/operators numpy/powers numpy/promotion "
    "numpy/ranges numpy/rearranging numpy/reductions numpy/scalar_types numpy/selection numpy/shapes numpy/subscripts "
    "numpy/ufuncs": "arrays have the face's functions as methods, which the face finds by name",
    "ops/arithmetic ops/base ops/bitwise ops/compare ops/complex ops/convert ops/create ops/cumulative "
    "ops/dimension_numbers ops/elementary ops/indexing ops/reduce ops/rounding ops/scatter ops/select ops/shape "
    "ops/slicing ops/sort": (
        "a broadcast is transposed to a sum, and a sum to a broadcast, and the families of `ops/base` add, convert "
        "and broadcast. Rules find such ops when they run, in the vocabulary, which is below all of these files; an "
        "op would have to be cut into its definition and its rules, in two files, for these to stand in layers"
    ),
    "lax/__init__ lax/primitives": "a package gives the primitives by name, some of which are its own functions",
    "export/exported export/serialization": "an exported function writes itself",
    "testing/steps testing/writer": "a step is told who draws it",
    "profiling/figure profiling/perfetto profiling/rows": "a profile shows itself",
    "kernels/aie/elementwise kernels/aie/matmul kernels/aie/spec": "a kernel is found by its text",
    "kernels/cpu/columns kernels/cpu/columns_whole kernels/cpu/nest kernels/cpu/nest_emit kernels/cpu/nest_passes "
    "kernels/cpu/nest_plan kernels/cpu/rows": "a nest plans and writes itself",
    "kernels/cpu/gemm kernels/cpu/pack": "a product that packs as it goes is told by whom",
    "lower/cpu/builder lower/cpu/nests": "nests are found in what the builder has, for the builder",
    "lower/npu/memory lower/npu/memory_picture": "a plan of memory shows itself",
    "backends/base backends/registry": "a backend without StableHLO asks for the one that has it",
    "backends/hybrid/core backends/hybrid/run backends/hybrid/verify": "parts of one engine, which hold it",
    "backends/ipu/memory backends/ipu/pictures": "a use of memory shows itself",
    "backends/memory/pool backends/memory/unified": "a pool gives unified buffers",
    "vendors/amd/xrt_program vendors/amd/xrt_runtime": "a runtime gives programs, which hold it",
    "backends/tpu/advice backends/tpu/analysis backends/tpu/picture backends/tpu/roofline": "an analysis shows itself",
    "backends/tpu/ahead backends/tpu/build backends/tpu/topologies": "a topology compiles, for itself",
    "backends/xla/accounting backends/xla/backend backends/xla/buffers backends/xla/callbacks backends/xla/client "
    "backends/xla/executable backends/xla/lapack backends/xla/plugins backends/xla/rows backends/xla/serialize": (
        "a client is made by its plugin, which knows the backend, and an executable moves by a program of its own"
    ),
}
# Folders that need their parent, which needs them: it holds what its parts share, and whoever gathers them.
GATHERED = """
    backends/cpu/native distributed/compress lower/ipu/rules lower/npu/ops lower/npu/rules ops/fixed
    testing/productions transforms/control
"""


def test_circles_of_files_are_known():
    files = {named(f).removesuffix(".py"): f for f in FILES}
    found = circles(files, lambda a: (named(b).removesuffix(".py") for b in needed(files[a])))
    rows = [set(row.split()) for row in CIRCLES]
    assert sorted(map(sorted, found)) == sorted(map(sorted, rows))


def test_circles_of_folders_are_a_folder_and_its_parts():
    folders: dict[str, set[str]] = {}
    for a in FILES:
        for b in needed(a):
            if room(a) == room(b):
                folders.setdefault(str(a.parent.relative_to(PACKAGE)), set()).add(str(b.parent.relative_to(PACKAGE)))
    found = circles(folders, lambda a: folders.get(a, ()))
    gathered: dict[str, list[str]] = {}
    for part in GATHERED.split():
        gathered.setdefault(str(Path(part).parent), []).append(part)
    assert sorted(map(sorted, found)) == sorted([whole, *parts] for whole, parts in gathered.items())


def test_faces_do_not_reach_for_backends():
    below = ("nxjax.backends", "nxjax.lower")
    faces = [f for f in FILES if room(f) in FACES]
    assert not [f"{named(f)} imports {name}" for f in faces for name, _ in imports(f) if name.startswith(below)]


def test_vendor_packages_stay_in_their_room():
    wrong = []
    for path in FILES:
        for name, top in imports(path):
            vendor = name.split(".")[0]
            if vendor in VENDORS and (top or not named(path).startswith(VENDOR_ROOMS.get(vendor, ("nowhere",)))):
                wrong.append(f"{named(path)} imports {name}{' at the top' if top else ''}")
    assert not wrong


def test_files_say_what_they_are_for_and_stay_short():
    assert not [named(f) for f in FILES if not parsed(f)[0]], "a module docstring is missing"
    assert not [named(f) for f in FILES if f.read_text().count("\n") > 700], "more than one subject?"


def test_import_loads_no_vendor_package():
    code = "import sys, nxjax, nxjax.numpy; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(ast.literal_eval(subprocess.check_output([sys.executable, "-c", code], text=True)))
    assert not loaded & VENDORS


# What `import nxjax` loads: no op, no transform, no executor. May only shrink.
LOADED = """
    config config/digest config/forks config/table config/weak_registry errors numpy numpy/array_functions
    numpy/documented numpy/eager numpy/methods numpy/operators numpy/placement ops trace trace/array trace/boundary
    trace/core
    trace/dtypes trace/kinds trace/lazy trace/light trace/mesh trace/pages trace/params trace/partition
    trace/program trace/scope trace/sharding trace/sums trace/types
"""


def _of_reason(reason: str) -> set[str]:
    return {word.partition("*")[0] for word in INNER[reason].split()}


def _loaded(name: str, found: set[str]) -> bool:
    """Whether the module ``name``, or the one that has this name in it, is there anyway."""
    file = name.removeprefix("nxjax.").replace(".", "/")
    is_file = (PACKAGE / f"{file}.py").exists() or (PACKAGE / file).is_dir()
    return name.startswith("nxjax.") and (file if is_file else file.rpartition("/")[0]) in found


def test_import_loads_few_files():
    code = "import sys, nxjax; print([m for m in sys.modules if m.startswith('nxjax.')])"
    loaded = ast.literal_eval(subprocess.check_output([sys.executable, "-c", code], text=True))
    found = {name.removeprefix("nxjax.").replace(".", "/") for name in loaded}
    assert not found - set(LOADED.split())
    # An import inside a function that saves nothing has another reason, or stands at the top.
    wrong = [
        f"{named(path)} imports {name}"
        for path in FILES
        if named(path).removesuffix(".py") in _of_reason("a program that does not use it starts without it")
        for name, top in imports(path)
        if not top and _loaded(name, found)
    ]
    assert not wrong


WORDS = ("/wo" + "rk/", "/op" + "t/", "/ro" + "ot/", "TO" + "DO", "FIX" + "ME")


def test_no_file_names_a_machine_or_leaves_a_note_to_do():
    assert not [(named(f), w) for f in FILES for w in WORDS if w in f.read_text()]


def test_whatever_a_program_prints_can_be_read():
    """Compilers and drivers print what they like: text of theirs is decoded with something in place of odd bytes."""
    strict = []
    for path in FILES:
        text = path.read_text()
        if "subprocess" not in text:
            continue
        for call in (n for n in walked(ast.parse(text)) if isinstance(n, ast.Call)):
            given = {k.arg for k in call.keywords}
            if ast.unparse(call.func).startswith("subprocess.") and given & {"text", "encoding", "universal_newlines"}:
                strict += [] if "errors" in given else [f"{named(path)}:{call.lineno}"]
    assert not strict


# What starts processes by itself, and why not by `nxjax.backends.tools.ask`.
STARTS_PROCESSES = {
    "nxjax/backends/tools.py": "it is how tools are started",
    "nxjax/backends/children/child.py": "a child that stays, and is talked to over a socket",
    "nxjax/backends/sensors/reading.py": "a sensor's program, which is asked often and gives a line",
    "nxjax/backends/xla/distributed.py": "a service that stays for as long as the processes compute together",
    "nxjax/backends/xla/guard.py": "nxjax itself, which reads a module from its input under a limit of memory",
    "nxjax/backends/xla/read.py": "nxjax itself, which reads a module from its input and gives another",
    "nxjax/distributed/launch.py": "the user's own program, whose output is the user's",
    "nxjax/kernels/ipu/host_compiler.py": "the host's C++ compiler; kernels know no backends",
    "nxjax/testing/fuzz_programs.py": "nxjax itself, once for each program, so that a crash is found",
    "nxjax/testing/workers.py": "nxjax itself, which stays and runs one case after the other",
    "nxjax/vendors/qualcomm/worker.py": "a child that stays, and is talked to over pipes",
}


def test_tools_are_started_in_one_place():
    starts = re.compile(
        r"^ *(?:import|from) (?:subprocess|pty)\b|\bos\.(?:popen|system|spawn|exec|posix_spawn|fork)", re.M
    )
    found = {f"nxjax/{f.relative_to(PACKAGE)}" for f in FILES if starts.search(f.read_text())}
    assert found == set(STARTS_PROCESSES), "use nxjax.backends.tools.ask, which bounds time, output and files"


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("case", range(2))
def test_tests_draw_the_same_numbers_in_any_order(case):
    assert RNG.random() == np.random.Generator(np.random.default_rng(0).bit_generator.jumped()).random()


def test_what_every_process_imports_makes_its_classes_without_text():
    """The standard library's `dataclass` takes 0.3 ms for each."""
    rooms = ("backends/cpu/", "kernels/cpu/", "lower/cpu/", "lower/passes/", "ops/", "trace/", "transforms/")
    slow = [
        f"{named(path)}:{node.lineno}"
        for path in FILES
        if named(path).startswith(rooms)
        for node in walked(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names)
    ]
    assert not slow, "import it from nxjax.config.dataclass"


def test_cached_properties_have_no_lock():
    """Of Python 3.11's, all objects of a class share one: a child waits for ever if another thread had it."""
    locked = [
        f"{named(path)}:{node.lineno}"
        for path in FILES
        if named(path) != "config/forks.py"
        for node in walked(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if any(alias.name == "cached_property" for alias in node.names)
    ]
    assert not locked, "import it from nxjax.config.forks"


# Imports inside functions: why they stay there -> the files that have them, with their number. May only go down.
INNER: dict[str, str] = {
    "a program that does not use it starts without it": """
        __init__*3 __main__*5 backends/cpu/earlier backends/cpu/executable*2 backends/cpu/first_run*3
        backends/cpu/functions backends/cpu/memory backends/cpu/native/runtime backends/cpu/native/tape*2
        backends/cpu/stored backends/dispatch*4 kernels/cpu/ops_arithmetic
        checkpoints/processes*2 checkpoints/restoring*2 commands/info debug/progress debug/sharding_text
        deploy/loading deploy/plan_loading*2 distributed/joining*5 distributed/preemption export/body*4
        export/exported*3 export/lowering*2 lower/cpu/held lower/cpu/memory
        generation/genai*3 interop/jax*3 stablehlo/function
        lax/sharding lower/cpu/lower lower/cpu/registry nn/modules/base numpy/at
        numpy/creation numpy/elementwise*3 numpy/methods*7 numpy/placement*4 numpy/standard numpy/subscripts
        predict/features predict/predictor runtime/__init__ runtime/device sharding*2 transforms/jit backends/placing*2
        backends/cpu/compiled_later numpy/ranges ops/arithmetic transforms/jit_options
        """,
    "where the package or the chip is, or the kernel is wanted, it is loaded": """
        vendors/intel/openvino_run backends/tpu/topologies*2 backends/xla/client
        kernels/cpu/nest_emit*3
        """,
    "the other file needs this one": """
        backends/base backends/ipu/memory backends/memory/pool vendors/amd/xrt_runtime backends/xla/executable
        kernels/aie/spec kernels/cpu/nest*2 profiling/rows*2 trace/core trace/program
        trace/types*3
        """,
}
# How Python asks whether something is there at all.
ASKING = ("getattr", "hasattr")


def asks_for_a_member(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING):
        return False
    whom = ast.unparse(node.args[0]).split(".")[-1]
    return whom in ("op", "primitive") and isinstance(node.args[1], ast.Constant)


def modules_of(node: ast.AST) -> list[str]:
    """What an import imports."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_what_ops_can_do_is_declared_and_they_import_at_the_top():
    """Rules and facts are members of `Op`, asked for by `has` or as they stand. Files of ops stand in layers."""
    asked = [f"{named(path)}:{line}" for path in FILES for line in parsed(path).has_asked]
    inner = [named(path).removesuffix(".py") for path in FILES for _ in parsed(path).inner]
    assert not asked
    listed = [word.partition("*") for files in INNER.values() for word in files.split()]
    assert not Counter(inner) - Counter({file: int(number or 1) for file, _, number in listed})
    assert len(inner) < 150


# How often an op is asked for its name, or whether it is a certain one, by folder: where a pattern is recognized, as a
# product or a comparison with zero, and in passes for one op. May only go down: what an op can do is declared, and what
# a pass knows of one op is a row of its table.
BY_NAME = {
    "backends": 1, "debug": 5, "extend": 1, "lax": 4, "lower": 19, "numpy": 1, "quant": 19, "stablehlo": 5,
    "transforms": 4,
}  # fmt: skip
# In these rooms, each such question and each table by name has a reason, told here by file.
WITH_REASONS = ("trace", "ops", "transforms")
REASONS = {
    "transforms/bucketing/interpret.py": "rules of one transform, with a default; what it does not know is refused",
    "transforms/bucketing/walk.py": "the ops that a size of one makes the identity; others are refused",
    "transforms/checkify_walk.py": "the check is the op that `checkify` itself defines",
    "transforms/checkpoint.py": "policies of JAX that are about one op each: the product, and the name of a value",
    "transforms/inline.py": "rules that a caller gives, beside a default",
    "transforms/nested.py": "what a manual map adds is taken out again",
}
FAMILY = ("op", "primitive")


def is_op(node: ast.expr) -> bool:
    return getattr(node, "attr" if isinstance(node, ast.Attribute) else "id", None) in FAMILY


def is_name(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr == "name" and is_op(node.value)


def names_an_op(node: ast.expr) -> bool:
    """A name of an op, or several; those of other dialects have a dot."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and "." not in node.value
    return isinstance(node, (ast.Tuple, ast.List, ast.Set)) and any(map(names_an_op, node.elts))


def named_ops(function: list[ast.AST]) -> set[str]:
    """Local variables that are names of ops."""
    found: set[str] = set()
    for node in function:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=False) if several else [(target, value)]
            found |= {a.id for a, b in pairs if isinstance(a, ast.Name) and is_name(b, set())}
    return found


def asks_by_name(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Match):
        return is_name(node.subject, names)
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        ops = list(map(is_op, sides))
        return any(ops) and not all(ops) and not any(isinstance(side, ast.Constant) for side in sides)
    return any(is_name(side, names) for side in sides) and any(map(names_an_op, sides))


def table_of(node: ast.AST) -> ast.expr | None:
    """The table that is asked for the row of an op."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)) and is_name(node.left, set()):
        return node.comparators[0]
    if isinstance(node, ast.Subscript) and is_name(node.slice, set()):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return node.func.value if node.args and is_name(node.args[0], set()) else None
    return None


def test_ops_are_asked_what_they_can_do():
    asked: Counter[str] = Counter()
    for path in FILES:
        asked[room(path)] += parsed(path).questions
    assert not asked - Counter(BY_NAME)


def test_questions_by_name_have_a_reason():
    files = [path for path in FILES if room(path) in WITH_REASONS]
    found = {named(path) for path in files if parsed(path).questions or parsed(path).tables}
    assert found == set(REASONS)


def test_tables_by_op_have_rows_for_ops_only():
    """A row for a name that no op has is never found. Kernels of the CPU have steps of their own besides."""
    importlib.import_module("nxjax.export")
    steps = importlib.import_module("nxjax.kernels.cpu.ops").NAMES
    wrong: list[str] = []
    for path in FILES:
        for table in sorted(text for text in parsed(path).tables if text.split(".")[-1].isupper()):
            module = importlib.import_module(".".join(("nxjax", *path.relative_to(PACKAGE).with_suffix("").parts)))
            rows = [row for row in reduce(getattr, table.split("."), module) if isinstance(row, str) and "." not in row]
            wrong += [f"{named(path)}: {table}: {r}" for r in rows if r not in steps and find_op(r) is None]
    assert not wrong


# Public classes that share their name with an earlier one: how many, which may only go down, and why they may.
SHARED = 26
SHARING: dict[str, str] = {
    "an op, and the kernel, codelet or step of a program that computes it": """
        Cholesky Copy Cumulative Gather Geqrf HouseholderProduct Iota Lu Reduce ReduceWindow Requantize Scatter
        SelectAndScatterAdd Softmax Sort TriangularSolve While""",
    "a module of a network, and the op that computes it": "LayerNorm Softmax",
    "public names": "Sample Tensor",
    "the same part of several compilers, each read beside its own kind": "Builder Value",
}
TERM = re.compile(r"^\| ([\w ]+) \| .* \| `(\w+)` in `([\w/.]+)` \|$", re.MULTILINE)


def test_a_word_of_the_glossary_is_a_class_and_names_no_other():
    places: dict[str, list[str]] = {}
    for path in FILES:
        for name in parsed(path).classes:
            places.setdefault(name, []).append(named(path))
    text = (ROOT / "docs/glossary.md").read_text()
    terms = TERM.findall(text)
    assert len(terms) == text.count("\n| ") - 1  # but for the head
    for word, cls, file in terms:
        assert cls.lower() == word and file in places.get(cls, []), f"{word}: no {cls} in {file}"
    assert not [cls for _, cls, _ in terms if len(places[cls]) > 1]
    shared = {cls: len(found) for cls, found in places.items() if len(found) > 1}
    assert shared.keys() == set(" ".join(SHARING.values()).split())
    assert sum(shared.values()) - len(shared) <= SHARED


def test_macos_and_windows_run_the_quick_tests():
    jobs = re.split(r"^  (?=\w[\w-]*:\n)", (ROOT / ".github/workflows/tests.yml").read_text(), flags=re.MULTILINE)
    (job,) = [job for job in jobs if "windows-latest" in job]
    assert "macos-latest" in job and "continue-on-error: true" in job
    makefile = (ROOT / "Makefile").read_text()
    quick = re.search(r"^QUICK  := ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert quick is not None
    assert re.findall(r"tests/[\w/.]+", job) == re.findall(r"tests/[\w/.]+", quick[1])
