"""Compile the Python that Spark ships as zip files of sources.

Spark starts its Python from ``python/lib/*.zip`` of its installation. Python keeps no bytecode of
what it imports from a zip file, so every worker, and the process that each streaming query starts
for its source, compiles Spark's modules anew: some 0.4 s of processor time. Most of what the files
hold are Spark's own tests, and before 3.13 Python reads the list of it all once for each package
that it has imported from there, in each of these processes: another 0.05 s.
"""

from __future__ import annotations

import marshal
import os
import shutil
import tempfile
import warnings
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, ZipFile, is_zipfile

from cassieq_spark.errors import SetupError

#: PEP 552: valid by the hash of its source, which nobody is to check.
_UNCHECKED = (1).to_bytes(4, "little")


def archives_of(spark_home: Path) -> list[Path]:
    """The zip files of a Spark installation, by name.

    Raises:
        SetupError: There are none, so it is no such installation.
    """
    folder = spark_home / "python" / "lib"
    found = sorted(folder.glob("*.zip"))
    if not found:
        raise SetupError(
            f"{folder} has no zip file, so {spark_home} is not an installation of Spark with "
            "Python; name one with --spark-home, or set SPARK_HOME"
        )
    return found


def compile_archive(archive: Path) -> bool:
    """Add the bytecode of this very Python to a zip file, and take tests off its list.

    What the file has stays where it is in it, so a process that is importing from it goes on; and
    another version of Python finds the sources. It is replaced whole, by one rename.

    Returns:
        Whether there was anything to do.

    Raises:
        SetupError: It is not a zip file.
        OSError: It can't be written.
    """
    if not is_zipfile(archive):
        raise SetupError(f"{archive} is not a zip file: install this Spark anew")
    handle, name = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
    os.close(handle)
    copy = Path(name)
    try:
        shutil.copy2(archive, copy)
        with ZipFile(copy, "a", ZIP_DEFLATED) as modules, warnings.catch_warnings():
            # Of the modules' own code; and of a name that another version's bytecode has.
            warnings.simplefilter("ignore")
            if _is_compiled(modules):
                return False
            for each in list(modules.infolist()):
                if _is_test(each.filename) or each.filename.endswith(".pyc"):
                    modules.filelist.remove(each)
                    modules.NameToInfo.pop(each.filename, None)
            for module in [each for each in modules.namelist() if each.endswith(".py")]:
                _add_bytecode(modules, module, f"{archive}/{module}")
        copy.replace(archive)
    finally:
        copy.unlink(missing_ok=True)
    return True


def _is_test(name: str) -> bool:
    return "tests" in PurePosixPath(name).parts


def _is_compiled(modules: ZipFile) -> bool:
    names = modules.namelist()
    first = next((name for name in names if name.endswith(".pyc")), None)
    is_there = first is not None and modules.read(first).startswith(MAGIC_NUMBER)
    return is_there and not any(map(_is_test, names))


def _add_bytecode(modules: ZipFile, module: str, shown: str) -> None:
    source = modules.read(module)
    try:
        code = compile(source, shown, "exec", dont_inherit=True)
    except SyntaxError:
        # A template, or for a Python to come: whoever imports it is told.
        return
    bytecode = MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)
    modules.writestr(f"{module}c", bytecode)
