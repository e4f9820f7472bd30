"""Give Spark's Python processes bytecode of all that they import.

They import from ``python/lib/*.zip`` of Spark's installation. Python stores no bytecode of modules
in a zip file. So each worker, and the process that each streaming query starts for its source,
compiles Spark's modules again: about 0.4 s of CPU time. Most files in the archives are Spark's own
tests. Before Python 3.13, each of these processes reads the archive's whole list once per package
that it imports from the archive: another 0.05 s.

The archive of this package that ``--py-files`` sends to executors has no bytecode, either. So each
new worker there takes a second of CPU time more to import this package.

Modules in folders can lack bytecode, too: Python stores none if PYTHONDONTWRITEBYTECODE is set, as
in many images of containers, or if the user may not write to the folder; uv stores none, and some
images of Python come without any. Then each process compiles these modules, this package among
them, in 0.15 s.
"""

from __future__ import annotations

import json
import marshal
import os
import py_compile
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, is_zipfile

from cassieq_spark.errors import SetupError
from cassieq_spark.spark.daemon import MODULES

#: PEP 552: hash-based bytecode whose source is not checked.
_UNCHECKED = (1).to_bytes(4, "little")
_HEADER_BYTES = 16
_32_BITS = 0xFFFFFFFF
_OURS = ("cassieq_spark", "pyspark_cassieq")


@dataclass(frozen=True, slots=True)
class Compiled:
    """The modules in folders that `compile_modules` looked at and that had no bytecode.

    Attributes:
        modules: The sources that got bytecode.
        refused: The sources whose bytecode cannot be written.
    """

    modules: tuple[Path, ...] = ()
    refused: tuple[Path, ...] = ()


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


def compile_archive(archive: Path, *, keep_tests: bool = False) -> bool:
    """Add the bytecode of this version of Python to a zip file, and remove tests from its list.

    The sources stay in place, for processes that are importing from the file and for other
    versions of Python. One rename replaces the file.

    Args:
        archive: The file.
        keep_tests: Whether tests stay on the list.

    Returns:
        True if the file has changed.

    Raises:
        SetupError: There is no such file, or it is not a zip file.
        OSError: The file cannot be written.
    """
    if not archive.exists():
        raise SetupError(f"there is no file {archive}")
    if not is_zipfile(archive):
        raise SetupError(
            f"{archive} is not a zip file: reinstall this Spark, or name an archive of --py-files"
        )
    handle, name = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
    os.close(handle)
    copy = Path(name)
    try:
        shutil.copy2(archive, copy)
        with ZipFile(copy, "a", ZIP_DEFLATED) as modules, warnings.catch_warnings():
            # The modules' code warns, and so does adding a name that is there already.
            warnings.simplefilter("ignore")
            tests = set() if keep_tests else set(filter(_is_test, modules.namelist()))
            if _is_compiled(modules) and not tests:
                return False
            for each in list(modules.infolist()):
                if each.filename in tests or each.filename.endswith(".pyc"):
                    modules.filelist.remove(each)
                    modules.NameToInfo.pop(each.filename, None)
            for module in [each for each in modules.namelist() if each.endswith(".py")]:
                _add_bytecode(modules, module, f"{archive}/{module}")
        copy.replace(archive)
    finally:
        copy.unlink(missing_ok=True)
    return True


def compile_imports(archives: Sequence[Path]) -> Compiled:
    """Compile this package, and what Spark's processes import from folders, in a new process.

    Only modules whose bytecode is missing or out of date.

    Args:
        archives: The zip files of the Spark installation, from which the process imports.

    Raises:
        SetupError: The process failed.
    """
    path = os.pathsep.join(map(str, archives))
    ran = subprocess.run(  # noqa: S603 (this Python)
        [sys.executable, "-m", __name__],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        last = ran.stderr.strip().rpartition("\n")[2]
        raise SetupError(f"{sys.executable} could not compile this package: {last}")
    found = json.loads(ran.stdout)
    return Compiled(**{name: tuple(map(Path, files)) for name, files in found.items()})


def compile_modules(sources: Iterable[Path]) -> Compiled:
    """Compile those sources whose bytecode is missing or out of date.

    Python ignores bytecode that is older than its source, so a source may change afterwards.
    """
    compiled, refused = [], []
    for source in sources:
        if _has_bytecode(source):
            continue
        # Some are for a later Python; importing them fails as before.
        with suppress(py_compile.PyCompileError):
            try:
                py_compile.compile(str(source), doraise=True)
                compiled.append(source)
            except OSError:
                refused.append(source)
    return Compiled(tuple(compiled), tuple(refused))


def main() -> None:
    """Import what Spark's processes import, compile it, and print what was compiled."""
    with redirect_stdout(sys.stderr):
        for each in (*_OURS, *MODULES, "pandas"):
            # A package that is missing, or pandas, which is optional, is no concern of ours.
            with suppress(Exception):
                import_module(each)
    ours = [Path(origin).parent for name in _OURS if (origin := _origin(name))]
    sources = {each for folder in ours for each in folder.rglob("*.py")}
    sources |= {Path(origin) for name in list(sys.modules) if (origin := _origin(name))}
    found = compile_modules(sorted(each for each in sources if each.is_file()))
    files = {name: list(map(str, getattr(found, name))) for name in found.__slots__}
    sys.stdout.write(json.dumps(files))


def _origin(name: str) -> str | None:
    """The source of an imported module, if it has one."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    origin = getattr(spec, "origin", None)
    return origin if origin is not None and origin.endswith(".py") else None


def _has_bytecode(source: Path) -> bool:
    try:
        with Path(cache_from_source(str(source))).open("rb") as stored:
            header = stored.read(_HEADER_BYTES)
    except OSError:
        return False
    kind, rest = header[4:8], header[8:]
    if not header.startswith(MAGIC_NUMBER):
        return False
    if any(kind):
        # By the source's hash: whoever built it so decides when it is out of date.
        return True
    about = source.stat()
    return rest == struct.pack(
        "<LL", *(int(n) & _32_BITS for n in (about.st_mtime, about.st_size))
    )


def _is_test(name: str) -> bool:
    return "tests" in PurePosixPath(name).parts


def _is_compiled(modules: ZipFile) -> bool:
    first = next((name for name in modules.namelist() if name.endswith(".pyc")), None)
    return first is not None and modules.read(first).startswith(MAGIC_NUMBER)


def _add_bytecode(modules: ZipFile, module: str, shown: str) -> None:
    source = modules.read(module)
    try:
        code = compile(source, shown, "exec", dont_inherit=True)
    except SyntaxError:
        # A template, or a module for a later Python; importing it fails as before.
        return
    bytecode = MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)
    # Each process would spend a tenth of its start on decompressing it.
    modules.writestr(f"{module}c", bytecode, ZIP_STORED)


if __name__ == "__main__":
    main()
