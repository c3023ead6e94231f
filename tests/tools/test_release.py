"""A release is refused while something is amiss, made of what is committed alone, and never uploaded."""

import datetime
import subprocess
import tarfile

import pytest

from tools import release

TODAY = datetime.date(2026, 11, 29)
FILES = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "nxjax"
version = "1.2.3"
[project.urls]
Repository = "https://example.org"
[tool.setuptools]
packages = ["nxjax"]
""",
    "nxjax/__init__.py": "",
    "nxjax/version.py": 'OWN = "1.2.3"\n',
    "CITATION.cff": "version: 1.2.3\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-11-28)\n\n- All.\n",
    ".gitignore": "dist\n",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    release._git(tmp_path, "init", "--quiet")
    for key, value in (("user.name", "a"), ("user.email", "a@example.org"), ("tag.gpgsign", "false")):
        release._git(tmp_path, "config", key, value)
    _commit(tmp_path)
    return tmp_path


def _commit(project):
    release._git(project, "add", "--all")
    release._git(project, "commit", "--quiet", "--no-gpg-sign", "--message", "all")


def test_nothing_stands_against_it(project):
    assert release.problems(project, TODAY) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("nxjax/version.py", "1.2.3", "1.2.2", "nxjax/version.py has no line"),
        ("CITATION.cff", "1.2.3", "1.2.2", "CITATION.cff has no line"),
        ("CHANGELOG.md", "2026-11-28", "unreleased", "does not begin with ## 1.2.3 (2026-11-29)"),
        ("CHANGELOG.md", "2026-11-28", "2026-11-30", "2026-11-30 is not yet"),
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.2", "does not begin with"),
        ("pyproject.toml", "[project.urls]", "[tool.urls]", "[project.urls]"),
        ("pyproject.toml", '"1.2.3"', '"1.2"', "no version such as"),
    ],
)
def test_what_stands_against_it(project, file, old, new, says):
    (project / file).write_text(FILES[file].replace(old, new))
    assert any("git status" in p for p in release.problems(project, TODAY))
    _commit(project)
    assert any(says in p for p in release.problems(project, TODAY))
    assert not any("git status" in p for p in release.problems(project, TODAY))


def test_it_builds_what_is_committed_and_tags_it_once(project, monkeypatch, capsys):
    pytest.importorskip("setuptools", "77", reason="older setuptools do not know this form of pyproject.toml")
    tried = []
    monkeypatch.setattr(release, "smoke", lambda wheel, offline: tried.append((wheel.exists(), offline)))
    assert release.main(["tag", "--offline"], project) == 0
    assert tried == [(True, True)] and release._git(project, "tag", "--list") == "v1.2.3"
    assert "by hand: git push origin v1.2.3" in capsys.readouterr().out
    with tarfile.open(project / "dist" / "nxjax-1.2.3.tar.gz") as file:
        assert "nxjax-1.2.3/nxjax/version.py" in file.getnames()
    assert release.main(["check"], project) == 1
    assert "v1.2.3 is tagged already" in capsys.readouterr().err


def test_a_wheel_that_does_not_work_is_not_tagged(project):
    pytest.importorskip("setuptools", "77", reason="older setuptools do not know this form of pyproject.toml")
    with pytest.raises(subprocess.CalledProcessError):
        release.main(["tag", "--offline"], project)
    assert not release._git(project, "tag", "--list")
