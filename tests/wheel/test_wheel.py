from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

import cassieq_spark
from tests.docs.pages import ROOT

NAME = f"cassieq_spark-{cassieq_spark.__version__}"
PACKAGES = ("cassieq_spark", "pyspark_cassieq")
#: What `make` and the tests use beside them.
BESIDE = (".ci", ".github", "benchmarks", "conf", "demo", "deploy", "docs", "examples", "jobs")
BESIDE += ("tests", "trials")
FILES = {".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO"}
FILES |= {"README.md", "SECURITY.md", "constraints.txt", "mkdocs.yml", "pyproject.toml"}
LICENCES = {
    "LICENSE",
    "cassieq_spark/console/static/idiomorph.LICENSE",
    "cassieq_spark/http/gateway/viewer/LICENSE",
    "cassieq_spark/http/gateway/viewer/NOTICE",
    "cassieq_spark/http/gateway/viewer/swagger-ui-bundle.js.LICENSE.txt",
}
INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    folder = tmp_path_factory.mktemp("archive")
    command = ["-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    return folder / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def wheel(archive: Path) -> ZipFile:
    """The wheel that is built from the archive."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(archive.parent), str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    return ZipFile(archive.parent / f"{NAME}-py3-none-any.whl")


@pytest.fixture
def metadata(wheel: ZipFile) -> Message:
    return message_from_bytes(wheel.read(f"{NAME}.dist-info/METADATA"))


def files_in(folders: tuple[str, ...]) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", ".hypothesis"} & set(path.parts)
    }


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: ZipFile):
    expected = files_in(PACKAGES)

    assert {"cassieq_spark/store/cassandra/statements.cql", "cassieq_spark/py.typed"} <= expected
    info = INFO | {f"licenses/{name}" for name in LICENCES}
    assert set(wheel.namelist()) == expected | {f"{NAME}.dist-info/{name}" for name in info}


def test_the_archive_holds_what_make_and_the_tests_use_and_nothing_else(archive: Path):
    with tarfile.open(archive) as files:
        names = {each.name.removeprefix(f"{NAME}/") for each in files if each.isfile()}

    assert names == files_in((*PACKAGES, *BESIDE)) | FILES


def test_every_licence_in_the_package_is_named(metadata: Message):
    found = {name for name in files_in(PACKAGES) if re.search("LICENSE|NOTICE", name)}

    assert found | {"LICENSE"} == LICENCES == set(metadata.get_all("License-File") or ())


def test_the_page_of_the_package_index_leads_to_no_file_that_it_does_not_have(metadata: Message):
    page = metadata.get_payload()

    assert isinstance(page, str)
    assert "](docs/" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.startswith("# cassieq-spark\n")
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)|<img", page) == []
