import importlib.metadata
import re
from pathlib import Path

import kvpool

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_version_that_cmake_says() -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text("utf-8")
    match = re.search(r"project\(kvpool VERSION ([\d.]+)", cmake)
    assert match is not None
    assert kvpool.__version__ == match[1]
    assert importlib.metadata.version("kvpool") == match[1]
