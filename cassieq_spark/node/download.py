"""Download Cassandra's jars from a Maven repository, and check them at each start.

Only the jars on the list of `jars` are used, and only with the digest on that list. The user's
cache keeps them. A jar gets its name when it is complete and checked, so an interrupted download
keeps the jars that have arrived, and the next download gets the others.

A proxy is found as Python programs find it (``HTTPS_PROXY``, ``NO_PROXY``), else in
``JAVA_TOOL_OPTIONS``. ``CASSIEQ_MAVEN_REPOSITORY`` names a mirror of Maven Central.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cassieq_spark.arguments import abridged
from cassieq_spark.errors import SetupError
from cassieq_spark.node.jars import DEFAULT_RELEASE, Jar, Release, read_list
from cassieq_spark.terminal import PlainConsole

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
#: The variable that names another repository with the same files: a mirror, or a folder as
#: file:///...
VARIABLE = "CASSIEQ_MAVEN_REPOSITORY"

_SIDE_BY_SIDE = 8
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
_READ_BYTES = 1 << 16
#: How long to pause between two looks at the progress of a download.
_LOOK_SECONDS = 0.1
#: How long to pause between two lines about the progress, where there is no terminal.
_TELL_SECONDS = 10.0
#: A terminal narrower than this gets no bar, only figures.
_ROOM_FOR_BAR = 70
_MEGABYTE = 1e6
_SCHEMES = ("https://", "http://", "file://")
#: HTTP statuses that another attempt will not change.
_FINAL = range(400, 429)
_JAVA_PROXY = re.compile(r"-Dhttps\.proxy(Host|Port)=(\S+)")

#: Called with the number of bytes that have arrived.
Watch = Callable[[int], None]


def download(jars: Sequence[Jar], folder: Path, *, name: str, console: PlainConsole) -> None:
    """Download jars into a folder, eight at a time; each is tried three times.

    Args:
        jars: The jars.
        folder: The folder, which must exist.
        name: What the jars are, for the progress: ``Cassandra 5.0.9``.
        console: Where to show the progress: a bar on a terminal, otherwise a line every ten
            seconds.

    Raises:
        SetupError: A jar cannot be downloaded, or has other contents. Jars that have arrived are
            kept.
    """
    repository = find_repository(os.environ)
    total = sum(jar.size for jar in jars)
    console.print(
        f"Downloading {name} from {repository}, once: {_megabytes(total)}.", highlight=False
    )
    # The large ones first: no thread is left with one of them in the end.
    ordered = sorted(jars, key=lambda jar: -jar.size)
    begun = time.monotonic()
    with (
        (_bar if console.is_terminal else _lines)(total, console) as watch,
        ThreadPoolExecutor(_SIDE_BY_SIDE) as pool,
    ):
        under_way = _Download(repository, folder)
        pending = {pool.submit(under_way.get, jar) for jar in ordered}
        try:
            while pending:
                done, pending = wait(pending, _LOOK_SECONDS, return_when=FIRST_COMPLETED)
                watch(under_way.arrived)
                for each in done:
                    each.result()
        finally:
            # One failed, or Ctrl-C: the others need not go on.
            under_way.stop.set()
            pool.shutdown(cancel_futures=True)
    took = time.monotonic() - begun
    console.print(f"Downloaded {_megabytes(total)} in {took:.0f} s.", highlight=False)


def find_repository(environment: Mapping[str, str]) -> str:
    """The repository: Maven Central, unless ``CASSIEQ_MAVEN_REPOSITORY`` names another one.

    >>> find_repository({})
    'https://repo1.maven.org/maven2'

    Raises:
        SetupError: The variable is no URL with one of the known schemes.
    """
    given = environment.get(VARIABLE) or MAVEN_CENTRAL
    if not given.startswith(_SCHEMES):
        raise SetupError(
            f"{VARIABLE} must be the URL of a Maven repository, beginning with "
            f"{', '.join(_SCHEMES)}, not {given!r}"
        )
    return given.rstrip("/")


def find_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme: those that Python finds, otherwise that of ``JAVA_TOOL_OPTIONS``.

    >>> told = {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=proxy.local -Dhttps.proxyPort=3128"}
    >>> find_proxies(told)["https"]
    'http://proxy.local:3128'
    """
    proxies = urllib.request.getproxies()
    told = dict(_JAVA_PROXY.findall(environment.get("JAVA_TOOL_OPTIONS", "")))
    if "https" not in proxies and "Host" in told:
        proxies["https"] = f"http://{told['Host']}:{told.get('Port', '443')}"
    return proxies


class _StoppedError(Exception):
    """Another jar failed, or Ctrl-C."""


class _Download:
    """The state that the threads of a download share."""

    def __init__(self, repository: str, folder: Path) -> None:
        self.stop = threading.Event()
        self._arrived: dict[Jar, int] = {}
        self._repository = repository
        self._folder = folder
        proxies = urllib.request.ProxyHandler(find_proxies(os.environ))
        self._opener = urllib.request.build_opener(proxies)

    @property
    def arrived(self) -> int:
        """Bytes that have arrived, of complete jars and of jars in transfer."""
        return sum(list(self._arrived.values()))

    def get(self, jar: Jar) -> None:
        url = f"{self._repository}/{jar.path}"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._get_once(jar, url)
            except (OSError, http.client.HTTPException) as error:
                is_final = False
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                    is_final = error.code in _FINAL
                if is_final or attempt == _ATTEMPTS:
                    raise SetupError(_explain(jar, url, error)) from error
                self.stop.wait(_PAUSE_SECONDS * 2**attempt)
            else:
                return

    def _get_once(self, jar: Jar, url: str) -> None:
        part = self._folder / f"{jar.file_name}.part"
        digest = hashlib.sha256()
        size = 0
        with self._opener.open(url, timeout=_PATIENCE_SECONDS) as answer, part.open("wb") as file:
            # One byte more than expected is enough to know that it is another file.
            while size <= jar.size and (data := answer.read(_READ_BYTES)):
                if self.stop.is_set():
                    raise _StoppedError
                file.write(data)
                digest.update(data)
                size += len(data)
                # From zero again with each attempt.
                self._arrived[jar] = size
        if size < jar.size:
            raise http.client.IncompleteRead(b"", jar.size - size)
        if digest.hexdigest() != jar.sha256:
            part.unlink()
            raise SetupError(
                f"{url} is not the {jar.file_name} that this release of cassieq-spark expects: "
                f"its SHA-256 is not {jar.sha256}. It was not used. Tell the operators of that "
                f"repository, or name another one in {VARIABLE}"
            )
        part.replace(self._folder / jar.file_name)


def _explain(jar: Jar, url: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return (
        f"downloading {jar.file_name} failed ({reason}): {url}. Check the network and try again; "
        "the files that have arrived are kept. Behind a proxy, set HTTPS_PROXY; for a mirror of "
        f"Maven Central, set {VARIABLE}; for a certificate authority of your own, SSL_CERT_FILE"
    )


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.0f} MB"


@contextmanager
def _bar(total: int, console: PlainConsole) -> Iterator[Watch]:
    """A bar that shows how many bytes have arrived, how fast, and how long the rest will take."""
    columns: list[Any] = [TextColumn("{task.percentage:>3.0f} %"), DownloadColumn()]
    if console.width >= _ROOM_FOR_BAR:
        columns.insert(1, BarColumn())
    columns += [TransferSpeedColumn(), TimeRemainingColumn(compact=True)]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda arrived: progress.update(task, completed=arrived)


@contextmanager
def _lines(total: int, console: PlainConsole) -> Iterator[Watch]:
    """A line every ten seconds, so that a log shows the progress."""
    due = time.monotonic() + _TELL_SECONDS

    def watch(arrived: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _TELL_SECONDS
            told = f"{arrived / _MEGABYTE:.0f} of {_megabytes(total)} have arrived."
            console.print(told, highlight=False)

    yield watch


def default_cache() -> Path:
    """The folder that keeps downloads: ``cassieq-spark`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache", "cassieq-spark")


def download_folder(cache: Path, release: Release = DEFAULT_RELEASE) -> Path:
    """The folder in ``cache`` with the jars of a release."""
    return cache / f"cassandra-{release.version}" / "lib"


def resolve_jars(
    *,
    release: Release = DEFAULT_RELEASE,
    cache: Path | None = None,
    console: PlainConsole | None = None,
    jars: Sequence[Jar] | None = None,
) -> list[Path]:
    """Check the digest of each jar of Cassandra (0.2 s), and download the missing jars.

    All jars together are 64 MB.

    Args:
        release: The release of Cassandra.
        cache: The folder that keeps downloads; None for `default_cache`.
        console: Where to show the progress; None for standard error.
        jars: The jars of the release; None for the list in this package.

    Returns:
        All jars of the class path: Cassandra's own and its dependencies.

    Raises:
        SetupError: The download failed, or the cache cannot be written.
    """
    cache = default_cache() if cache is None else cache
    folder = download_folder(cache, release)
    wanted = read_list(release) if jars is None else jars
    if _damaged(wanted, folder):
        console = PlainConsole(stderr=True) if console is None else console
        with _only_one(cache, folder, console):
            # Another process may have finished the download while this one waited.
            if damaged := _damaged(wanted, folder):
                if len(damaged) < len(wanted):
                    reason = abridged(list(damaged.values()), "; ")
                    told = f"The download in {folder} is incomplete ({reason}): downloading the"
                    console.print(f"{told} missing files.", highlight=False)
                download(
                    list(damaged), folder, name=f"Cassandra {release.version}", console=console
                )
    return [folder / jar.file_name for jar in wanted]


def _damaged(jars: Sequence[Jar], folder: Path) -> dict[Jar, str]:
    found = ((jar, jar.damage(folder)) for jar in jars)
    return {jar: damage for jar, damage in found if damage is not None}


@contextmanager
def _only_one(cache: Path, folder: Path, console: PlainConsole) -> Iterator[None]:
    """Hold the lock on the cache; another process may hold it for as long as it downloads."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w")
    except OSError as exc:
        raise SetupError(
            f"the cache folder {cache} cannot be written ({exc.strerror}): make it writable, or "
            "name another one in XDG_CACHE_HOME"
        ) from exc
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("Waiting for a download by another process.", highlight=False)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
