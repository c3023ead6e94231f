"""Where modules and functions of POSIX are not, as on Windows, everything still imports, and functions run and compile.

The machine code that runs here is this system's all the same: what is shown is that no name is taken for granted.
"""

import subprocess
import sys

HIDDEN = """
import asyncio, concurrent.futures.process, ctypes, importlib, logging.handlers, mmap, multiprocessing, os, pkgutil
import selectors, shutil, signal, socket, subprocess, sys, tempfile, threading, warnings, webbrowser, zipfile
import numpy, llvmlite.binding, optree

for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for module, names in (
    # But for those asked for where `os.name` is "posix" only.
    (os, "fork forkpty register_at_fork sched_getaffinity sched_setaffinity memfd_create mkfifo O_NOFOLLOW O_DIRECTORY "
         "O_NONBLOCK killpg setsid getpgid WNOHANG wait4 waitid pidfd_open statvfs getloadavg posix_fallocate pread "
         "pwrite preadv sendfile sysconf uname chown fchmod"),
    (signal, "SIGALRM SIGKILL SIGUSR1 SIGUSR2 SIGHUP SIGQUIT SIGPIPE SIGBUS SIGCHLD setitimer alarm pthread_sigmask "
             "pthread_kill sigwait"),
    (socket, "AF_UNIX SO_REUSEPORT socketpair"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
USE = """
import nxjax as nx, nxjax.numpy as jnp
from nxjax.__main__ import main

assert nx.jit(nx.grad(lambda x: jnp.sin(x).sum()))(jnp.zeros(3)).tolist() == [1, 1, 1]
artifact = nx.compile(nx.quantize(jnp.tanh, "int8", calibrate=[(jnp.ones((1, 3)),)]), target="tflite")(jnp.ones((1, 3)))
assert artifact.files
assert main(["info", "--all"]) == main(["explain", "ShapeError"]) == 0
warnings.simplefilter("ignore")
failed = []
for module in pkgutil.walk_packages(nx.__path__, "nxjax."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except Exception as error:
            failed.append(f"{module.name}: {error!r}")
assert not failed, failed
"""


def test_everything_imports_where_posix_is_not(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + USE], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
