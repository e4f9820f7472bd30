"""Print the requirements of the project and of the named extras, one in a line.

Where pip compares digests, it accepts no folder such as the project itself. So the image installs
these requirements first, with their digests, and then the project alone.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(extras: list[str]) -> list[str]:
    """The requirements of the project and of some of its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(each for extra in extras for each in optional[extra])]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{each}\n" for each in requirements(sys.argv[1:])))
