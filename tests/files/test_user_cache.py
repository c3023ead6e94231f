"""What is kept on disk is believed only where nobody else can have written it, and takes no more room than it may."""

import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from nxjax.config import Config, config
from nxjax.files import user_cache

ROOT = Path(__file__).parents[2]
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("NXJAX_", "XDG_"))}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(user_cache, "_warned", set())
    monkeypatch.setattr(user_cache, "_known", {})
    monkeypatch.setattr(user_cache, "_stored", {})
    with config.using(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def off(why):
    """Nothing is kept and nothing believed, and that is said once."""
    with pytest.warns(RuntimeWarning, match=why):
        assert user_cache.load("a.nxc") is None
    assert user_cache.store("a.nxc", b"x") is None and user_cache.load("a.nxc") is None


def test_what_is_made_is_closed_to_others_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        with config.using(cache_dir=str(folder / "deep" / "down")):
            place = user_cache.store("a.nxc", b"payload")
    finally:
        os.umask(before)
    assert mode(place) == 0o600
    assert [mode(p) for p in (folder, folder / "deep", folder / "deep" / "down")] == [0o700] * 3


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o733, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to(folder, bits):
    folder.mkdir()
    folder.chmod(bits)
    off("others may write")
    assert mode(folder) == bits & 0o7777 and not list(folder.iterdir())


def test_a_folder_that_others_may_read_is_closed(folder):
    user_cache.store("a.nxc", b"payload")
    folder.chmod(0o755)
    assert user_cache.load("a.nxc") == b"payload" and mode(folder) == 0o700


def test_a_folder_of_other_files_is_not_closed(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("")
    folder.chmod(0o755)
    off("others may read it")
    assert mode(folder) == 0o755


def test_a_folder_of_another_user(folder, monkeypatch):
    user_cache.store("a.nxc", b"payload")
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    off("belongs to")


def test_a_file_of_another_user(folder, monkeypatch):
    path = Path(user_cache.store("a.nxc", b"payload"))
    assert user_cache.load("a.nxc") == b"payload"
    real, user = os.fstat, os.geteuid() + 1

    def foreign(handle):
        found = list(real(handle))
        found[4] = user
        return os.stat_result(found)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", foreign)
        assert user_cache.load("a.nxc") is None
    assert not path.exists()


def test_the_user_may_change_while_the_process_runs(folder, monkeypatch):
    user_cache.store("a.nxc", b"payload")
    user = os.geteuid()
    assert user_cache.load("a.nxc") == b"payload"
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    off("belongs to")


def test_folders_on_the_way(folder, tmp_path):
    """Who may rename what is above the folder may put another in its place."""
    (tmp_path / "open").mkdir()
    with config.using(cache_dir=str(tmp_path / "open" / "cache")):
        assert user_cache.store("a.nxc", b"payload")
        (tmp_path / "open").chmod(0o1777)
        assert user_cache.load("a.nxc") == b"payload"  # sticky, as /tmp
        user_cache._known.clear()
        (tmp_path / "open").chmod(0o777)
        off("others may write to .*open")


def test_links(folder, tmp_path, monkeypatch):
    """A user may have the folder elsewhere; a link of another user is not followed, and none in a file's place."""
    user_cache.store("a.nxc", b"payload")
    (tmp_path / "link").symlink_to("cache")
    with config.using(cache_dir=str(tmp_path / "link")):
        assert user_cache.load("a.nxc") == b"payload"
        user_cache._known.clear()
        real, user = os.lstat, os.geteuid() + 1

        def foreign(path):
            found = list(real(path))
            if stat.S_ISLNK(found[0]):
                found[4] = user
            return os.stat_result(found)

        monkeypatch.setattr(os, "lstat", foreign)
        off("link belongs to another user")
    monkeypatch.undo()
    (folder / "b.nxc").symlink_to("a.nxc")
    assert user_cache.load("b.nxc") is None and not (folder / "b.nxc").is_symlink()
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with config.using(cache_dir=str(tmp_path / "x")):
        off("no end")


def test_nothing_is_made_behind_the_link_of_another_user(folder, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    real, user = os.lstat, os.geteuid() + 1
    owned = lambda found: os.stat_result([*found[:4], user, *found[5:]]) if stat.S_ISLNK(found[0]) else found
    monkeypatch.setattr(os, "lstat", lambda path: owned(real(path)))
    place = str(tmp_path / "link" / "cache")
    with config.using(cache_dir=place), pytest.warns(RuntimeWarning, match="link belongs to another user"):
        assert user_cache.store("a.nxc", b"") is None
    assert not list((tmp_path / "mine").iterdir())


def test_a_folder_that_was_replaced_is_looked_at_again(folder, tmp_path):
    user_cache.store("a.nxc", b"payload")
    folder.rename(tmp_path / "before")
    folder.mkdir()
    folder.chmod(0o777)
    off("others may write")


def test_what_is_no_file_of_ours(folder):
    """A pipe does not stop the process, a file of no end is not read, and one that others may write to is dropped."""
    user_cache.store("a.nxc", b"payload")
    os.mkfifo(folder / "pipe.nxc")
    (folder / "folder.nxc").mkdir()
    with open(folder / "hole.nxc", "wb") as file:
        file.truncate(2**42)
    for name in ("pipe.nxc", "folder.nxc", "hole.nxc"):
        assert user_cache.load(name) is None
    assert sorted(os.listdir(folder)) == ["a.nxc", "folder.nxc"]
    (folder / "a.nxc").chmod(0o666)
    assert user_cache.load("a.nxc") is None and not (folder / "a.nxc").exists()
    assert user_cache.store("folder.nxc", b"") is None


def test_the_hash_is_of_the_name_and_all_bytes(folder):
    path = Path(user_cache.store("a.so", b"payload"))
    good = path.read_bytes()
    assert user_cache.load("a.so") == b"payload"
    for i in range(len(good)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        path.chmod(0o600)
        assert user_cache.load("a.so") is None and not path.exists()
    path.write_bytes(good)
    path.chmod(0o600)
    assert user_cache.load("a.so") == b"payload"
    path.rename(folder / "b.so")
    assert user_cache.load("b.so") is None


@pytest.mark.parametrize("given", ["", "cache", "./cache", "~/cache"])
def test_a_relative_xdg_cache_home_counts_as_none(given, monkeypatch):
    monkeypatch.delenv("NXJAX_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Config().cache_dir == "/home/somebody/.cache/nxjax"
    monkeypatch.setenv("HOME", "elsewhere")
    assert Config().cache_dir == ""
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert Config().cache_dir == "/caches/nxjax"


def test_a_relative_folder_is_none(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with config.using(cache_dir="here"):
        off("relative")
    assert not (tmp_path / "here").exists()


def test_the_limit_holds_over_processes_and_threads(folder):
    """Files of former processes count, those that were used last stay, and a new limit counts at once."""
    with config.using(cache_bytes=10_000):
        for i in range(200):
            user_cache.store(f"a{i}.nxc", bytes(100))
        assert 8_000 < sum(e.nbytes for e in user_cache.entries()) <= 10_000
        assert user_cache.load("a199.nxc") and not user_cache.load("a0.nxc")
    with config.using(cache_bytes=3_000):
        user_cache._stored.clear()  # as in another process
        user_cache.store("b.nxc", b"")
        assert sum(e.nbytes for e in user_cache.entries()) <= 3_000
        assert user_cache.load("b.nxc") == b""
        assert user_cache.store("c.nxc", bytes(3_000)) is None
    with config.using(cache_bytes=0):
        assert user_cache.store("d.nxc", b"") is None and user_cache.load("b.nxc") is None
    with config.using(cache_bytes=-1):
        assert user_cache.store("d.nxc", bytes(20_000))


def test_looking_through_many_files_is_not_done_by_every_process(folder, monkeypatch):
    for i in range(user_cache._MANY + 1):
        user_cache.store(f"a{i}.nxc", b"")
    swept = []
    monkeypatch.setattr(user_cache, "_sweep", lambda *a: swept.append(a))
    user_cache._stored.clear()
    user_cache.store("b.nxc", b"")
    assert len(swept) == 1  # only few were there when it was done last
    monkeypatch.undo()
    user_cache._sweep(folder, folder)
    monkeypatch.setattr(user_cache, "_sweep", lambda *a: swept.append(a))
    user_cache._stored.clear()
    user_cache.store("c.nxc", b"")
    assert len(swept) == 1
    with config.using(cache_bytes=2**20):
        user_cache._stored.clear()
        user_cache.store("d.nxc", b"")
    assert len(swept) == 2


def test_what_dead_writers_leave_is_removed(folder):
    folder.mkdir(mode=0o700)
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    dead, mine, former = f"a.nxc.{done.pid}-0f.part", f"a.nxc.{os.getpid()}-0f.part", "tmpabc.part"
    for name in (dead, mine, former):
        (folder / name).write_bytes(b"half")
    user_cache.store("b.nxc", b"")
    assert sorted(os.listdir(folder)) == sorted([mine, "b.nxc", former])
    os.utime(folder / former, (0, 0))
    user_cache._stored.clear()
    user_cache.store("b.nxc", b"")
    assert sorted(os.listdir(folder)) == sorted([mine, "b.nxc"])


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    user_cache.store("a.nxc", b"")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("full")))
    assert user_cache.store("b.nxc", b"payload") is None
    assert os.listdir(folder) == ["a.nxc"]


USE = """
import numpy as np, nxjax as nx
nx.config.update("compile_first", True)
print(nx.jit(lambda x: nx.sin(x) * 2, device="cpu")(np.zeros(3, "f4")).tolist())
"""


def test_machine_code_of_an_open_folder_is_not_run(tmp_path):
    """The whole way: the code is compiled anew, once with a warning."""
    environment = {**PLAIN, "PYTHONPATH": str(ROOT), "NXJAX_CACHE_DIR": str(tmp_path / "cache")}
    run = lambda: subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True)
    first = run()
    assert first.stdout == "[0.0, 0.0, 0.0]\n" and not first.stderr
    (tmp_path / "cache").chmod(0o777)
    second = run()
    assert second.stdout == first.stdout and second.stderr.count("RuntimeWarning") == 1


def test_no_warning_where_all_is_well(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert user_cache.store("a.nxc", b"x") and user_cache.load("a.nxc") == b"x"
        with config.using(cache_dir=""):
            assert user_cache.store("a.nxc", b"x") is None and user_cache.entries() == []
