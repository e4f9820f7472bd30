from __future__ import annotations

import hashlib
import io
import multiprocessing
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Release, download
from cassieq_spark.node.download import (
    _Download,
    default_cache,
    download_folder,
    find_proxies,
    find_repository,
    resolve_jars,
)
from cassieq_spark.node.jars import DEFAULT_RELEASE, Jar, read_list
from cassieq_spark.terminal import PlainConsole

CONTENTS = {
    "org.example:alpha:1.0": b"contents of alpha",
    "org.example:beta:2.0": b"b" * 200_000,
    "org.example:beta:2.0:linux-x86_64": b"contents of beta for linux",
}
JARS = tuple(
    Jar(coordinates, len(data), hashlib.sha256(data).hexdigest())
    for coordinates, data in CONTENTS.items()
)
ALPHA, BETA, _ = JARS
PATHS = {f"/maven2/{jar.path}": CONTENTS[jar.coordinates] for jar in JARS}


class Repository:
    """A Maven repository on this machine; ``answers`` come before what it has."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers: dict[str, list[tuple[int, bytes, int]]] = {}
        self.meeting: threading.Barrier | None = None
        #: Holds the second half of each answer back.
        self.second_half: threading.Event | None = None
        self.url = ""

    def answer(self, path: str) -> tuple[int, bytes, int]:
        self.asked[path] += 1
        if self.meeting is not None:
            self.meeting.wait()
        if self.answers.get(path):
            return self.answers[path].pop(0)
        data = PATHS.get(path)
        return (404, b"", 0) if data is None else (200, data, len(data))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    found = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, data, length = found.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if found.second_half is not None:
                data, rest = data[: len(data) // 2], data[len(data) // 2 :]
                self.wfile.write(data)
                found.second_half.wait(20)
                data = rest
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/maven2"
        monkeypatch.setenv("CASSIEQ_MAVEN_REPOSITORY", found.url)
        monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.001)
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path):
    return tmp_path / "cache"


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def console(request: pytest.FixtureRequest):
    return PlainConsole(file=io.StringIO(), force_terminal=request.param, width=300)


def resolve(cache: Path, console: PlainConsole | None = None) -> list[Path]:
    return resolve_jars(
        cache=cache, console=console or PlainConsole(file=io.StringIO()), jars=JARS
    )


def at(jar: Jar) -> str:
    return f"/maven2/{jar.path}"


def test_what_is_missing_is_downloaded_once(
    cache: Path, repository: Repository, console: PlainConsole
):
    first = resolve(cache, console)
    second = resolve(cache, console)

    assert [jar.name for jar in first] == [
        "alpha-1.0.jar",
        "beta-2.0.jar",
        "beta-2.0-linux-x86_64.jar",
    ]
    assert [jar.read_bytes() for jar in first] == list(CONTENTS.values())
    assert second == first
    assert repository.asked == dict.fromkeys(PATHS, 1)


def test_jars_come_side_by_side(cache: Path, repository: Repository):
    # None is answered before all are asked for.
    repository.meeting = threading.Barrier(len(JARS), timeout=20)

    assert len(resolve(cache)) == len(JARS)


def test_a_download_leaves_nothing_but_the_jars_and_its_lock(cache: Path, repository: Repository):
    resolve(cache)

    assert sorted(path.name for path in cache.iterdir()) == [
        f"cassandra-{DEFAULT_RELEASE.version}",
        "download.lock",
    ]
    assert len(list(download_folder(cache).iterdir())) == len(JARS)


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        (b"cut", "alpha-1.0.jar has 3 bytes, not 17"),
        (b"CONTENTS of alpha", "alpha-1.0.jar has other contents"),
        (None, "alpha-1.0.jar cannot be read (No such file or directory)"),
    ],
)
def test_a_start_finds_a_jar_that_is_not_the_one_it_was_and_gets_only_that_again(
    cache: Path, repository: Repository, console: PlainConsole, contents: bytes | None, told: str
):
    jar = resolve(cache, console)[0]
    jar.unlink()
    if contents is not None:
        jar.write_bytes(contents)

    resolve(cache, console)

    assert told in console.file.getvalue()
    assert jar.read_bytes() == CONTENTS[ALPHA.coordinates]
    assert repository.asked == {**dict.fromkeys(PATHS, 1), at(ALPHA): 2}


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"CONTENTS of alpha", 17),
        (200, b"contents of alpha and more", 26),
        (200, b"short", 5),
    ],
    ids=["other", "longer", "shorter"],
)
def test_what_a_repository_sends_in_place_of_a_jar_is_never_used(
    cache: Path, repository: Repository, answer: tuple[int, bytes, int]
):
    repository.answers[at(ALPHA)] = [answer] * 3

    with pytest.raises(SetupError, match=r"alpha-1\.0\.jar"):
        resolve(cache)

    assert not (download_folder(cache) / ALPHA.file_name).exists()


@pytest.mark.parametrize("first", [(503, b"", 0), (200, b"cont", 17), (200, b"cont", 4)])
def test_a_jar_that_does_not_come_whole_is_asked_for_again(
    cache: Path, repository: Repository, first: tuple[int, bytes, int]
):
    repository.answers[at(ALPHA)] = [first]

    resolve(cache)

    assert repository.asked[at(ALPHA)] == 2


def test_bytes_count_as_they_arrive(tmp_path: Path, repository: Repository):
    repository.second_half = threading.Event()
    under_way = _Download(repository.url, tmp_path)
    thread = threading.Thread(target=under_way.get, args=(BETA,))
    thread.start()

    deadline = time.monotonic() + 20
    while not under_way.arrived and time.monotonic() < deadline:
        time.sleep(0.01)
    halfway = under_way.arrived
    repository.second_half.set()
    thread.join()

    assert 0 < halfway <= BETA.size // 2
    assert under_way.arrived == BETA.size


@pytest.mark.parametrize("first", [(503, b"", 0), (200, b"b" * 150_000, 200_000)])
def test_what_a_failed_attempt_has_got_does_not_count(
    tmp_path: Path, repository: Repository, first: tuple[int, bytes, int]
):
    repository.answers[at(BETA)] = [first, first]
    under_way = _Download(repository.url, tmp_path)

    under_way.get(BETA)

    assert under_way.arrived == BETA.size


def test_without_a_terminal_lines_tell_how_far_it_is(
    cache: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(download, "_TELL_SECONDS", 0.0)
    monkeypatch.setattr(download, "_MEGABYTE", 1)
    console = PlainConsole(file=io.StringIO(), width=300)

    resolve(cache, console)

    total = sum(jar.size for jar in JARS)
    first, *lines, last = console.file.getvalue().splitlines()
    assert first == (
        f"Downloading Cassandra {DEFAULT_RELEASE.version} from {repository.url}, once: {total} MB."
    )
    told = [int(line.removesuffix(f" of {total} MB have arrived.")) for line in lines]
    assert told == sorted(told)
    assert told[-1] == total
    assert last == f"Downloaded {total} MB in 0 s."


@pytest.mark.parametrize("width", [40, 80])
def test_the_bar_fits_the_terminal(
    cache: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, width: int
):
    monkeypatch.setattr(download, "_MEGABYTE", 1)
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=width, color_system=None)

    with download._bar(64_000_000, console) as watch:
        watch(32_000_000)
        watch(64_000_000)

    lines = re.split(r"[\r\n]|\x1b\[[^a-zA-Z]*[a-zA-Z]", file.getvalue())
    assert any("100 %" in line and "64.0/64.0 MB" in line for line in lines)
    assert all(len(line) <= width for line in lines)


def test_a_failure_tells_what_to_do_and_keeps_what_has_come(cache: Path, repository: Repository):
    repository.answers[at(ALPHA)] = [(404, b"", 0)]

    with pytest.raises(SetupError, match=r"alpha-1\.0\.jar failed \(Not Found\)") as raised:
        resolve(cache)
    resolve(cache)

    assert at(ALPHA) in str(raised.value)
    assert "Behind a proxy, set HTTPS_PROXY; for a mirror of Maven Central" in str(raised.value)
    assert repository.asked[at(ALPHA)] == 2
    assert sum(repository.asked.values()) <= len(JARS) * 2


def test_processes_that_download_at_once_do_it_once(cache: Path, repository: Repository):
    context = multiprocessing.get_context("spawn")

    with context.Pool(3) as pool:
        found = pool.map(resolve, [cache] * 3)

    assert found[0] == found[1] == found[2]
    assert repository.asked == dict.fromkeys(PATHS, 1)


def test_a_folder_can_be_the_repository(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for path, data in PATHS.items():
        file = tmp_path / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    monkeypatch.setenv("CASSIEQ_MAVEN_REPOSITORY", (tmp_path / "maven2").as_uri() + "/")

    assert [jar.read_bytes() for jar in resolve(cache)] == list(CONTENTS.values())


def test_a_repository_that_is_no_url_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CASSIEQ_MAVEN_REPOSITORY", "maven.local")

    with pytest.raises(SetupError, match="CASSIEQ_MAVEN_REPOSITORY must be the URL"):
        resolve(cache)


def test_without_a_mirror_it_is_maven_central():
    assert find_repository({}) == "https://repo1.maven.org/maven2"
    assert find_repository({"CASSIEQ_MAVEN_REPOSITORY": ""}) == find_repository({})


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g -Dhttps.proxyHost=b -Dhttps.proxyPort=2"}, "http://b:2"),
        ({"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=b"}, "http://b:443"),
        ({"HTTPS_PROXY": "http://a:1", "JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=b"}, "http://a:1"),
        ({}, None),
    ],
)
def test_a_proxy_is_found_as_other_programs_find_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
):
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert find_proxies(environment).get("https") == proxy


def test_a_cache_that_is_a_file_is_named(tmp_path: Path):
    (tmp_path / "cache").write_text("")

    with pytest.raises(SetupError, match="cannot be written"):
        resolve(tmp_path / "cache")


def test_the_cache_is_in_the_folder_that_the_user_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert default_cache() == tmp_path / "cassieq-spark"


def test_files_that_the_list_does_not_name_are_left_out(cache: Path, repository: Repository):
    jars = resolve(cache)
    (download_folder(cache) / "aaa-1.0.jar").write_text("stray")

    assert resolve(cache) == jars


@pytest.mark.parametrize("release", Release)
def test_the_list_of_a_release_has_each_jar_once_and_cassandra_itself(release: Release):
    jars = read_list(release)

    assert [jar.file_name for jar in jars] == sorted({jar.file_name for jar in jars})
    assert f"org.apache.cassandra:cassandra-all:{release.version}" in {
        jar.coordinates for jar in jars
    }
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.size > 0 for jar in jars)
