"""Add bytecode to the zip files of Python sources that Spark ships.

Spark's Python processes import from ``python/lib/*.zip`` of its installation. Python stores no
bytecode of modules in a zip file. So each worker, and the process that each streaming query starts
for its source, compiles Spark's modules again: about 0.4 s of CPU time. Most files in the archives
are Spark's own tests. Before Python 3.13, each of these processes reads the archive's whole list
once per package that it imports from the archive: another 0.05 s.
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

#: PEP 552: hash-based bytecode whose source is not checked.
_UNCHECKED = (1).to_bytes(4, "little")


def archives_of(spark_home: Path) -> list[Path]:
    """The zip files of a Spark installation, by name.

    Raises:
        SetupError: The folder has no zip files, so it is not an installation of Spark.
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
    """Add the bytecode of this version of Python to a zip file, and remove tests from its list.

    The sources stay in place, for processes that are importing from the file and for other
    versions of Python. One rename replaces the file.

    Returns:
        True if the file has changed.

    Raises:
        SetupError: The file is not a zip file.
        OSError: The file cannot be written.
    """
    if not is_zipfile(archive):
        raise SetupError(f"{archive} is not a zip file: reinstall this Spark")
    handle, name = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
    os.close(handle)
    copy = Path(name)
    try:
        shutil.copy2(archive, copy)
        with ZipFile(copy, "a", ZIP_DEFLATED) as modules, warnings.catch_warnings():
            # The modules' code warns, and so does adding a name that is there already.
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
        # A template, or a module for a later Python; importing it fails as before.
        return
    bytecode = MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)
    modules.writestr(f"{module}c", bytecode)
