"""What pyproject.toml cannot say: an installation has the pages of `docs/`, and the native runtime's machine code."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class Build(build_py):
    def run(self) -> None:
        super().run()
        # An editable install reads the pages where they are.
        if not self.editable_mode:
            for page in Path("docs").glob("*.md"):
                there = Path(self.build_lib, "nxjax", "docs", page.name)
                self.mkpath(str(there.parent))
                self.copy_file(str(page), str(there))
        root = Path() if self.editable_mode else Path(self.build_lib)
        command = [sys.executable, "-B", "-m", "nxjax.backends.cpu.installing"]
        made = subprocess.run(command, cwd=root, check=False)
        if made.returncode:
            print("nxjax: the native runtime is compiled by the first process instead of now", file=sys.stderr)


setup(cmdclass={"build_py": Build})
