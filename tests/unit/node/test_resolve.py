from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from cassieq_spark.errors import SetupError
from cassieq_spark.node import resolve
from cassieq_spark.node.ivy import telling_lines
from cassieq_spark.node.manifest import find_damage, read_jars, write_manifest
from cassieq_spark.node.resolve import default_cache, download_folder, resolve_jars

MakeIvy = Callable[..., Path]

#: Stands for Java: writes what Ivy would, and a line per call into ``calls``.
FAKE_IVY = """\
#!/bin/sh
echo called >> "{calls}"
test -z "{failure}" || {{ printf '%s\\n' "{failure}"; exit 1; }}
printf '\\tfound org.apache.cassandra#cassandra-all;5.0.8 in public\\n'
mkdir -p lib
for name in cassandra-all-5.0.8 jamm-0.4.0; do
  echo "contents of $name" > lib/$name.jar
  printf '\\t[SUCCESSFUL ] %s.jar (1ms)\\n' $name
done
"""


@pytest.fixture
def cache(tmp_path: Path):
    return tmp_path / "cache"


@pytest.fixture
def make_ivy(tmp_path: Path):
    def make(failure: str = "") -> Path:
        java = tmp_path / "java"
        java.write_text(FAKE_IVY.format(calls=tmp_path / "calls", failure=failure))
        java.chmod(0o755)
        return java

    return make


@pytest.fixture
def calls(tmp_path: Path):
    def count() -> int:
        path = tmp_path / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    return count


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def console(request: pytest.FixtureRequest):
    return Console(file=io.StringIO(), force_terminal=request.param, width=300)


def test_what_is_missing_is_downloaded_once(
    cache: Path, make_ivy: MakeIvy, calls: Callable[[], int], console: Console
):
    first = resolve_jars(java=make_ivy(), cache=cache, console=console)
    second = resolve_jars(java=make_ivy(), cache=cache, console=console)

    assert [jar.name for jar in first] == ["cassandra-all-5.0.8.jar", "jamm-0.4.0.jar"]
    assert all(jar.is_file() for jar in first)
    assert second == first
    assert calls() == 1


def test_a_download_leaves_nothing_but_the_jars_and_its_lock(
    cache: Path, make_ivy: MakeIvy, console: Console
):
    resolve_jars(java=make_ivy(), cache=cache, console=console)

    assert sorted(path.name for path in cache.iterdir()) == ["cassandra-5.0.8", "download.lock"]


def test_a_jar_of_another_size_is_told_and_downloaded_again(
    cache: Path, make_ivy: MakeIvy, calls: Callable[[], int], console: Console
):
    jar = resolve_jars(java=make_ivy(), cache=cache, console=console)[0]
    jar.write_text("cut")

    resolve_jars(java=make_ivy(), cache=cache, console=console)

    assert "cassandra-all-5.0.8.jar has 3 bytes, not 32" in console.file.getvalue()
    assert jar.read_text() == "contents of cassandra-all-5.0.8\n"
    assert calls() == 2


def test_a_missing_jar_is_told_and_downloaded_again(
    cache: Path, make_ivy: MakeIvy, calls: Callable[[], int], console: Console
):
    jar = resolve_jars(java=make_ivy(), cache=cache, console=console)[0]
    jar.unlink()

    resolve_jars(java=make_ivy(), cache=cache, console=console)

    assert "cassandra-all-5.0.8.jar is missing" in console.file.getvalue()
    assert jar.exists()


def test_a_failure_tells_why_and_leaves_no_half_download(
    cache: Path, make_ivy: MakeIvy, calls: Callable[[], int], console: Console
):
    with pytest.raises(SetupError, match="Server access error: refused") as raised:
        resolve_jars(
            java=make_ivy(failure="Server access error: refused"), cache=cache, console=console
        )

    assert "Behind a proxy" in str(raised.value)
    assert not download_folder(cache).exists()
    assert [jar.name for jar in resolve_jars(java=make_ivy(), cache=cache, console=console)]


def test_processes_that_download_at_once_do_it_once(
    cache: Path, make_ivy: MakeIvy, calls: Callable[[], int]
):
    java = make_ivy()
    context = multiprocessing.get_context("spawn")

    with context.Pool(3) as pool:
        found = pool.map(resolve_with, [(java, cache)] * 3)

    assert found[0] == found[1] == found[2]
    assert calls() == 1


def resolve_with(arguments: tuple[Path, Path]):
    java, cache = arguments
    return resolve_jars(java=java, cache=cache, console=Console(file=io.StringIO()))


def test_without_pyspark_the_error_says_how_to_install_it(
    cache: Path, make_ivy: MakeIvy, console: Console, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(resolve.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(SetupError, match=r"cassieq-spark\[spark\]"):
        resolve_jars(java=make_ivy(), cache=cache, console=console)


def test_a_cache_that_is_a_file_is_named(tmp_path: Path, make_ivy: MakeIvy, console: Console):
    (tmp_path / "cache").write_text("")

    with pytest.raises(SetupError, match="cannot be written"):
        resolve_jars(java=make_ivy(), cache=tmp_path / "cache", console=console)


def test_the_cache_is_in_the_folder_that_the_user_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert default_cache() == tmp_path / "cassieq-spark"


@pytest.fixture
def download(tmp_path: Path):
    (tmp_path / "lib").mkdir()
    for name in ("a.jar", "b.jar"):
        (tmp_path / "lib" / name).write_text(name)
    write_manifest(tmp_path)
    return tmp_path


def test_a_complete_download_has_no_damage(download: Path):
    assert find_damage(download, contents=True) == []


def test_other_contents_of_the_same_size_are_found_when_asked(download: Path):
    (download / "lib" / "a.jar").write_text("x.jar")

    assert find_damage(download) == []
    assert find_damage(download, contents=True) == ["a.jar has other contents"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"jars": {"a.jar": {}}}', '{"jars": 1}'])
def test_a_manifest_that_makes_no_sense_is_damage(download: Path, text: str):
    (download / "manifest.json").write_text(text)

    assert find_damage(download) == ["manifest.json is not readable"]


def test_files_that_the_manifest_does_not_name_are_left_out(download: Path):
    (download / "lib" / "c.jar").write_text("stray")

    assert [jar.name for jar in read_jars(download)] == ["a.jar", "b.jar"]


def test_the_last_lines_stand_for_a_failure_without_telling_ones():
    assert telling_lines(["one", "", "two"]) == ["one", "two"]
