"""A stand-in for AMD's package ``pyxrt``: it keeps the real one's rules, and computes with NumPy what it is told.

Rules as read in XRT's sources (pyxrt.cpp, xrt_kernel.cpp): what kinds of arguments are taken, that a called kernel
drops what it does not know, that the chip sees memory only after a sync, that contexts run out, and that the process
ends when a run is let go that the chip still works on. No hardware and no driver is behind it.
"""

import enum
import json
import struct
import threading
import time
import types
import weakref
from datetime import timedelta
from pathlib import Path

import numpy as np

from nxjax.lower.aie.parse import parse
from nxjax.vendors.amd.aie.model import run as array_model

MEANINGS = {
    "add": lambda a, b, word: [a + b + np.int32(word)],
    "matmul": lambda a, b, word: [a.astype(np.int32) @ b.astype(np.int32)],
    "double": lambda a, word: [a * 2],
}


def compiled(text: str) -> bytes:
    """What stands for AMD's file of a design: the design's text, which nxjax's model of the array computes."""
    arguments = parse(text).sequence.arguments
    rows = {"kernel": "MLIR_AIE", "meaning": "design", "outputs": 1, "most": 5, "text": text}
    rows |= {"shapes": [[t.size] for _, t in arguments], "dtypes": [str(t.dtype) for _, t in arguments]}
    return b"xclbin2\0" + json.dumps(rows).encode()


def xclbin(kernel="MLIR_AIE", meaning="add", shapes=(), dtypes=(), outputs=1, most=5) -> bytes:
    """What stands for AMD's file: a kernel's name, how many buffers it declares, what it computes of which arrays."""
    rows = {"kernel": kernel, "meaning": meaning, "shapes": shapes, "dtypes": dtypes, "outputs": outputs, "most": most}
    return b"xclbin2\0" + json.dumps(rows).encode()


class State(enum.Enum):
    ERT_CMD_STATE_NEW = 1
    ERT_CMD_STATE_QUEUED = 2
    ERT_CMD_STATE_COMPLETED = 4
    ERT_CMD_STATE_ERROR = 5
    ERT_CMD_STATE_ABORT = 6
    ERT_CMD_STATE_SUBMITTED = 7
    ERT_CMD_STATE_TIMEOUT = 8
    ERT_CMD_STATE_NORESPONSE = 9
    ERT_CMD_STATE_SKERROR = 10
    ERT_CMD_STATE_SKCRASHED = 11


class Direction(enum.Enum):
    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1


class Flags(enum.Enum):
    normal = 0
    cacheable = 1
    host_only = 3


class Info(enum.Enum):
    bdf = 0
    name = 6


ENDED = {s for s in State if s.value in (4, 5, 6, 8, 9, 10, 11)}


def machine(names=("NPU Phoenix",), limit=6, timed_lists=False, memory=1 << 30) -> types.SimpleNamespace:
    """The package on a machine with these devices. ``log`` is what was done, ``script`` how the next runs go."""
    fake = types.SimpleNamespace(log=[], script=[], dead=[], contexts=weakref.WeakSet(), memory=memory, limit=limit)
    fake.lock = threading.RLock()
    fake.ert_cmd_state, fake.xclBOSyncDirection, fake.xrt_info_device = State, Direction, Info

    class Device:
        def __init__(self, index):
            if type(index) is not int or not 0 <= index < len(names):
                raise RuntimeError(f"Could not open device with index '{index}'")
            self.index, self.registered = index, set()

        def get_info(self, key):
            return {Info.name: names[self.index], Info.bdf: f"0000:c{5 + self.index}:00.1"}[key]

        def register_xclbin(self, x):
            assert isinstance(x, Xclbin)
            self.registered.add(x.uuid)
            return x.uuid

    class Kernel0:
        def __init__(self, rows):
            self.rows = rows

        def get_name(self):
            return self.rows["kernel"]

        def get_num_args(self):
            return 3 + self.rows["most"]

    class Xclbin:
        def __init__(self, path):
            data = Path(path).read_bytes()
            assert data.startswith(b"xclbin2\0")
            if data == b"xclbin2\0damaged":
                raise RuntimeError("Invalid xclbin")
            self.rows = json.loads(data[8:])
            self.uuid = str(hash(data))

        def get_uuid(self):
            return self.uuid

        def get_kernels(self):
            return [Kernel0(self.rows)]

    class HwContext:
        def __init__(self, device, uuid):
            assert uuid in device.registered, "register_xclbin comes first"
            with fake.lock:
                if len(fake.contexts) >= fake.limit:
                    raise RuntimeError("DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=2): No such file or directory")
                fake.contexts.add(self)
            self.uuid = uuid
            fake.log.append(("context", uuid))

    class Bo:
        def __init__(self, device, size, flags, group):
            assert isinstance(device, Device) and type(size) is int and isinstance(flags, Flags)
            if size <= 0:
                raise RuntimeError("invalid buffer size")
            if size > fake.memory:
                raise RuntimeError("failed to allocate BO: Cannot allocate memory")
            self.flags, self.group = flags, group
            self.host, self.chip = bytearray(size), bytearray(size)

        def write(self, data, seek):
            raw = bytes(memoryview(data).cast("B"))
            assert seek + len(raw) <= len(self.host), "written beyond the buffer"
            self.host[seek : seek + len(raw)] = raw

        def map(self):
            return memoryview(self.host)

        def sync(self, direction):
            assert isinstance(direction, Direction)
            if direction is Direction.XCL_BO_SYNC_BO_TO_DEVICE:
                self.chip[:] = self.host
            else:
                self.host[:] = self.chip

    class Kernel:
        def __init__(self, context, name):
            assert isinstance(context, HwContext) and isinstance(name, str)
            self.context = context
            self.rows = json.loads(fake.files[context.uuid][8:])
            assert self.rows["kernel"] == name

        def group_id(self, index):
            return 0x10000 + index

        def __call__(self, *args):
            run = Run(self)
            for i, x in enumerate(args):
                # Neither a buffer nor an int: dropped without a word.
                if isinstance(x, Bo) or type(x) is int:
                    run.set_arg(i, x)
            run.start()
            return run

    class Run:
        def __init__(self, kernel):
            self.kernel, self.args, self.now, self.how = kernel, {}, State.ERT_CMD_STATE_NEW, "ok"

        def set_arg(self, index, x):
            assert type(index) is int and (isinstance(x, Bo) or type(x) is int), f"argument {index}: {type(x)}"
            assert index < 3 + self.kernel.rows["most"], "segmentation fault: more buffers than the kernel declares"
            self.args[index] = x

        def start(self):
            self.how = fake.script.pop(0) if fake.script else "ok"
            if self.how == "refused":
                raise RuntimeError("bad command state, can't launch")
            self.now = State.ERT_CMD_STATE_QUEUED
            if self.how in ("hang", "interrupt"):
                fake.hung.append(weakref.ref(self))
            self.at = time.monotonic()
            fake.log.append(("run", self.kernel.rows["kernel"], self.how))

        def state(self):
            if self.now is State.ERT_CMD_STATE_NEW:
                raise RuntimeError("Cannot poll a command that has not been submitted")
            if self.now is State.ERT_CMD_STATE_QUEUED:
                self.step()
            return self.now

        def step(self):
            if self.how == "interrupt":
                self.how = "hang"
                raise KeyboardInterrupt
            if self.how == "hang":
                return
            if self.how.startswith("late"):
                if time.monotonic() - self.at < float(self.how[4:]):
                    return
                self.how = "ok"
            if self.how != "ok":
                self.now = State[f"ERT_CMD_STATE_{self.how}"]
                return
            self.compute()
            self.now = State.ERT_CMD_STATE_COMPLETED

        def compute(self):
            rows, args = self.kernel.rows, self.args
            insts = args[1]
            assert args[0] == 3 and insts.flags is Flags.cacheable and insts.group == 0x10001
            assert args[2] in (len(insts.chip), len(insts.chip) // 4), "length of the instructions"
            (word,) = struct.unpack_from("<i", insts.chip)
            bos = [args[i] for i in range(3, 3 + len(rows["shapes"]))]
            assert all(b.flags is Flags.host_only and b.group == 0x10003 + i for i, b in enumerate(bos))
            import ml_dtypes  # noqa: F401  # names such as bfloat16

            views = [
                np.frombuffer(b.chip, np.dtype(d))[: int(np.prod(s))].reshape(s)
                for b, s, d in zip(bos, rows["shapes"], rows["dtypes"], strict=True)
            ]
            if rows["meaning"] == "design":
                design = parse(rows["text"])
                buffers = {name: v.copy() for (name, _), v in zip(design.sequence.arguments, views, strict=True)}
                array_model(design, buffers)
                views[-1][...] = list(buffers.values())[-1]
                return
            split = len(views) - rows["outputs"]
            for view, y in zip(views[split:], MEANINGS[rows["meaning"]](*views[:split], word), strict=True):
                view[...] = y

        def __del__(self):
            if self.now is State.ERT_CMD_STATE_QUEUED:
                fake.dead.append("xrt::run destructed while command is still in progress")

    class Runlist:
        def __init__(self, context):
            assert isinstance(context, HwContext)
            self.runs, self.running = [], False

        def add(self, run):
            assert isinstance(run, Run) and not self.running
            self.runs.append(run)

        def execute(self):
            assert not self.running
            self.running = True
            for run in self.runs:
                run.start()
            fake.log.append(("list", len(self.runs)))

        def wait(self, timeout):
            if not timed_lists or not isinstance(timeout, timedelta):
                raise TypeError("wait(): incompatible function arguments")
            if not self.running:
                return "cv_status.no_timeout"
            for i, run in enumerate(self.runs):
                if run.state() not in ENDED:
                    time.sleep(timeout.total_seconds())
                    return "cv_status.timeout"
                if run.state() is not State.ERT_CMD_STATE_COMPLETED:
                    for later in self.runs[i + 1 :]:
                        later.now = State.ERT_CMD_STATE_ABORT
                    self.running = False
                    raise RuntimeError("runlist failed execution")
            self.running = False
            return "cv_status.no_timeout"

    fake.files = {}

    def release():
        """The chip goes on with the runs that hang."""
        for run in filter(None, (ref() for ref in fake.hung)):
            run.how = "ok"

    fake.hung, fake.release = [], release

    def opened(path):
        made = Xclbin(path)
        fake.files[made.uuid] = Path(path).read_bytes()
        return made

    fake.enumerate_devices = lambda: len(names)
    fake.device, fake.xclbin, fake.hw_context = Device, opened, HwContext
    fake.kernel, fake.run, fake.runlist = Kernel, Run, Runlist
    fake.bo = type("bo", (Bo,), {f.name: f for f in Flags})
    return fake
