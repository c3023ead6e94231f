"""What pyproject.toml cannot say: a wheel holds the pages of `docs/`, which `nxjax explain` and messages quote."""

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


setup(cmdclass={"build_py": Build})
