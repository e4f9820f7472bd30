from __future__ import annotations

import marshal
import os
import py_compile
import subprocess
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.spark.bytecode import Compiled, archives_of, compile_archive, compile_modules

OTHER_PYTHON = bytes(4)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "sparky.zip"
    with ZipFile(path, "w") as made:
        made.writestr("sparky/__init__.py", "from sparky.inner import answer\n")
        made.writestr("sparky/inner.py", "answer = 42\n")
        made.writestr("sparky/data.json", "{}")
        made.writestr("sparky/tests/__init__.py", "")
        made.writestr("sparky/tests/test_inner.py", "assert True\n")
    path.chmod(0o640)
    return path


def test_modules_are_taken_from_bytecode_then(archive: Path):
    assert _import(archive) == "42 __init__.py inner.py"

    assert compile_archive(archive)

    assert _import(archive) == "42 __init__.pyc inner.pyc"


def test_sources_stay_where_they_are_for_whoever_is_reading_them(archive: Path):
    before = _entries(archive)

    compile_archive(archive)

    after = _entries(archive)
    used = {name: where for name, where in before.items() if "tests" not in name}
    assert {name: after[name] for name in used} == used
    assert archive.stat().st_mode & 0o777 == 0o640


def test_tests_are_not_on_the_list_any_more(archive: Path):
    compile_archive(archive)

    assert sorted(_entries(archive)) == [
        "sparky/__init__.py",
        "sparky/__init__.pyc",
        "sparky/data.json",
        "sparky/inner.py",
        "sparky/inner.pyc",
    ]
    with ZipFile(archive) as made:
        assert made.testzip() is None


def test_tests_leave_the_list_of_what_was_compiled_with_them(archive: Path):
    compile_archive(archive)
    with ZipFile(archive, "a") as made:
        made.writestr("sparky/tests/test_inner.pyc", MAGIC_NUMBER)

    assert compile_archive(archive)

    with ZipFile(archive) as made:
        names = made.namelist()
    assert not [name for name in names if "tests" in name]
    assert len(names) == len(set(names))
    assert _import(archive) == "42 __init__.pyc inner.pyc"


def test_no_process_has_to_decompress_bytecode(archive: Path):
    compile_archive(archive)

    with ZipFile(archive) as made:
        kinds = {each.compress_type for each in made.infolist() if each.filename.endswith(".pyc")}
    assert kinds == {ZIP_STORED}


def test_a_second_time_there_is_nothing_to_do(archive: Path):
    compile_archive(archive)
    before = archive.read_bytes()

    assert not compile_archive(archive)

    assert archive.read_bytes() == before


def test_bytecode_of_another_python_gives_way(archive: Path):
    with ZipFile(archive, "a") as made:
        made.writestr("sparky/inner.pyc", OTHER_PYTHON)

    assert _import(archive) == "42 __init__.py inner.py"
    assert compile_archive(archive)

    assert _import(archive) == "42 __init__.pyc inner.pyc"


def test_a_stack_trace_tells_the_line_and_its_file(archive: Path):
    compile_archive(archive)

    with ZipFile(archive) as made:
        code = marshal.loads(made.read("sparky/inner.pyc")[16:])

    assert code.co_filename == f"{archive}/sparky/inner.py"


def test_what_is_no_python_is_passed_over(archive: Path):
    with ZipFile(archive, "a") as made:
        made.writestr("sparky/template.py", "{{ not python }")

    assert compile_archive(archive)

    with ZipFile(archive) as made:
        compiled = {name for name in made.namelist() if name.endswith(".pyc")}
        assert compiled == {"sparky/__init__.pyc", "sparky/inner.pyc"}
        assert all(made.read(name).startswith(MAGIC_NUMBER) for name in compiled)


def test_a_broken_archive_is_named_and_left_alone(tmp_path: Path):
    archive = tmp_path / "pyspark.zip"
    archive.write_text("not a zip")

    with pytest.raises(SetupError, match=r"pyspark\.zip is not a zip file"):
        compile_archive(archive)

    assert [each.name for each in tmp_path.iterdir()] == ["pyspark.zip"]
    assert archive.read_text() == "not a zip"


def test_a_folder_that_is_no_spark_is_refused(tmp_path: Path):
    with pytest.raises(SetupError, match="is not an installation of Spark with Python"):
        archives_of(tmp_path)


# -- modules in folders ---------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "lonely.py"
    path.write_text("answer = 42\n")
    return path


def test_a_module_without_bytecode_gets_it(module: Path):
    assert compile_modules([module]) == Compiled(modules=(module,))

    _change_unseen(module, "answer = 43\n")
    assert _answer(module) == "42"


def test_a_module_with_bytecode_is_left_alone(module: Path):
    compile_modules([module])

    assert compile_modules([module]) == Compiled()


def test_a_module_that_has_changed_is_compiled_again(module: Path):
    compile_modules([module])
    module.write_text("answer = 1234\n")

    assert compile_modules([module]) == Compiled(modules=(module,))

    assert _answer(module) == "1234"


def test_a_module_with_bytecode_of_another_python_is_compiled(module: Path):
    compile_modules([module])
    stored = Path(cache_from_source(str(module)))
    stored.write_bytes(OTHER_PYTHON + stored.read_bytes()[4:])

    assert compile_modules([module]) == Compiled(modules=(module,))


def test_bytecode_by_the_hash_of_its_source_is_left_to_whoever_built_it(module: Path):
    by_hash = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), invalidation_mode=by_hash)

    assert compile_modules([module]) == Compiled()


def test_a_module_for_another_python_is_passed_over(module: Path):
    module.write_text("{{ not python }")

    assert compile_modules([module]) == Compiled()


def test_modules_whose_bytecode_cannot_be_written_are_told(module: Path):
    (module.parent / "__pycache__").write_text("no folder")

    assert compile_modules([module]) == Compiled(refused=(module,))


def _change_unseen(module: Path, source: str) -> None:
    """Change a source such that Python takes it for the one that was compiled."""
    before = module.stat()
    module.write_text(source)
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))


def _answer(module: Path) -> str:
    program = f"import {module.stem}; print({module.stem}.answer)"
    command = [sys.executable, "-S", "-c", program]
    environment = {"PYTHONPATH": str(module.parent)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def _import(archive: Path) -> str:
    """What a new process imports, and from which files."""
    program = (
        "import os, sparky; print(sparky.answer, "
        "*(os.path.basename(each.__file__) for each in (sparky, sparky.inner)))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def _entries(archive: Path) -> dict[str, tuple[int, int]]:
    with ZipFile(archive) as made:
        return {each.filename: (each.header_offset, each.CRC) for each in made.infolist()}
