"""Get jars from a Maven repository, several at a time, and keep only what has its digest.

A jar is there under its name once it is complete and is what the list says; so what an interrupted
download has got stays, and the next one gets the rest.

Proxies are found as programs in Python find them (``HTTPS_PROXY``, ``NO_PROXY``), else as Java is
told of them (``JAVA_TOOL_OPTIONS``); a mirror of Maven Central is named in the environment.

Jars come from this user's cache, or from Maven Central, once. Nothing is resolved, nothing runs
that is not on the list of `jars`, and every start compares all digests.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from cassieq_spark.errors import SetupError
from cassieq_spark.node.jars import DEFAULT_RELEASE, Jar, Release, read_list
from cassieq_spark.terminal import Console

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
#: Names another repository that has the same files: a mirror, or a folder as file:///...
VARIABLE = "CASSIEQ_MAVEN_REPOSITORY"

_SIDE_BY_SIDE = 8
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
_READ_BYTES = 1 << 16
_PLAIN_STEPS = 4
_SCHEMES = ("https://", "http://", "file://")
#: What a repository says about a file that another attempt will not change.
_FINAL = range(400, 429)
_JAVA_PROXY = re.compile(r"-Dhttps\.proxy(Host|Port)=(\S+)")

Watch = Callable[[int], None]


def download(jars: Sequence[Jar], folder: Path, *, name: str, console: Console) -> None:
    """Download jars into a folder, eight at a time; each is tried three times.

    Args:
        jars: Which.
        folder: Where to; it exists.
        name: What they are, for people.
        console: Where progress is shown: a bar on a terminal, else a few lines.

    Raises:
        SetupError: One of them cannot be had, or has other contents; what has arrived is kept.
    """
    repository = find_repository(os.environ)
    # The large ones first: no thread is left with one of them in the end.
    ordered = sorted(jars, key=lambda jar: -jar.size)
    watch_with = _bar if console.is_terminal else _plain
    with (
        watch_with(name, repository, sum(jar.size for jar in jars), console) as watch,
        ThreadPoolExecutor(_SIDE_BY_SIDE) as pool,
    ):
        under_way = _Download(repository, folder, watch)
        getting = [pool.submit(under_way.get, jar) for jar in ordered]
        try:
            for each in as_completed(getting):
                each.result()
        finally:
            # One failed, or Ctrl-C: the others need not go on.
            under_way.stop.set()
            pool.shutdown(cancel_futures=True)


def find_repository(environment: Mapping[str, str]) -> str:
    """Where jars come from: Maven Central, unless ``CASSIEQ_MAVEN_REPOSITORY`` names another one.

    >>> find_repository({})
    'https://repo1.maven.org/maven2'

    Raises:
        SetupError: That is no URL of a kind that is known.
    """
    given = environment.get(VARIABLE) or MAVEN_CENTRAL
    if not given.startswith(_SCHEMES):
        raise SetupError(
            f"{VARIABLE} must be the URL of a Maven repository, beginning with "
            f"{', '.join(_SCHEMES)}, not {given!r}"
        )
    return given.rstrip("/")


def find_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme: as programs in Python find them, else as Java is told of them.

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
    """What the threads of a download share."""

    def __init__(self, repository: str, folder: Path, watch: Watch) -> None:
        self.stop = threading.Event()
        self._repository = repository
        self._folder = folder
        self._watch = watch
        proxies = urllib.request.ProxyHandler(find_proxies(os.environ))
        self._opener = urllib.request.build_opener(proxies)

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
        if size < jar.size:
            raise http.client.IncompleteRead(b"", jar.size - size)
        if digest.hexdigest() != jar.sha256:
            part.unlink()
            raise SetupError(
                f"{url} is not the {jar.file_name} that this release of cassieq-spark knows (its "
                f"SHA-256 should be {jar.sha256}): it is not used. Tell those who run "
                "that repository."
            )
        part.replace(self._folder / jar.file_name)
        self._watch(size)


def _explain(jar: Jar, url: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return (
        f"Downloading {jar.file_name} failed ({reason}): {url}\n"
        "Check the network and try again; what has arrived is kept. Behind a proxy, set "
        f"HTTPS_PROXY; for a mirror of Maven Central, {VARIABLE}; for a certificate authority of "
        "your own, SSL_CERT_FILE."
    )


@contextmanager
def _bar(name: str, repository: str, total: int, console: Console) -> Iterator[Watch]:
    del repository
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"Getting {name}", total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _plain(name: str, repository: str, total: int, console: Console) -> Iterator[Watch]:
    console.print(
        f"Getting {name} from {repository}, once: {total / 1e6:.0f} MB.", highlight=False
    )
    done = told = 0
    turn = threading.Lock()

    def watch(count: int) -> None:
        nonlocal done, told
        with turn:
            done += count
            if done * _PLAIN_STEPS // total > told and done < total:
                told = done * _PLAIN_STEPS // total
                console.print(
                    f"{done / 1e6:.0f} of {total / 1e6:.0f} MB are here.", highlight=False
                )

    yield watch


_LIBRARY = "lib"
_NAMED = 5


def default_cache() -> Path:
    """Name the folder where downloads are kept: ``cassieq-spark`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache", "cassieq-spark")


def download_folder(cache: Path, release: Release = DEFAULT_RELEASE) -> Path:
    """Name the folder in ``cache`` that holds the jars of a release."""
    return cache / f"cassandra-{release.version}" / _LIBRARY


def resolve_jars(
    *,
    release: Release = DEFAULT_RELEASE,
    cache: Path | None = None,
    console: Console | None = None,
    jars: Sequence[Jar] | None = None,
) -> list[Path]:
    """Return Cassandra's jars, every one checked (0.2 s); download what is not there (64 MB).

    Args:
        release: Which Cassandra.
        cache: Where downloads are kept; ``default_cache()`` unless given.
        console: Where progress is shown; standard error unless given.
        jars: Which jars it consists of; those of the list that comes along unless given.

    Returns:
        All jars of the class path, Cassandra's own and those it depends on.

    Raises:
        SetupError: The download failed; says what to do.
    """
    cache = default_cache() if cache is None else cache
    folder = download_folder(cache, release)
    wanted = read_list(release) if jars is None else jars
    if _damaged(wanted, folder):
        console = Console(stderr=True) if console is None else console
        with _only_one(cache, folder):
            # Another process may have finished the download while this one waited.
            if damaged := _damaged(wanted, folder):
                _tell(damaged, wanted, folder, console)
                download(
                    list(damaged), folder, name=f"Cassandra {release.version}", console=console
                )
    return [folder / jar.file_name for jar in wanted]


def _damaged(jars: Sequence[Jar], folder: Path) -> dict[Jar, str]:
    found = ((jar, jar.damage(folder)) for jar in jars)
    return {jar: damage for jar, damage in found if damage is not None}


def _tell(damaged: dict[Jar, str], wanted: Sequence[Jar], folder: Path, console: Console) -> None:
    if len(damaged) < len(wanted):
        more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        reason = "; ".join(list(damaged.values())[:_NAMED]) + more
        text = f"The download in {folder} is incomplete ({reason}): downloading the missing files."
        console.print(text, highlight=False)


@contextmanager
def _only_one(cache: Path, folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w")
    except OSError as exc:
        raise SetupError(
            f"The cache folder {cache} cannot be written ({exc.strerror}):"
            " choose another one, or set XDG_CACHE_HOME."
        ) from exc
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
