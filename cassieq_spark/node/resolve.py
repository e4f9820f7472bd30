"""Get Cassandra's jars: from this user's cache, or from Maven Central, once.

Which jars, and what is in each, says a list that comes with this package (`jars`): nothing is
resolved, and nothing runs that is not on it. Every start compares all digests.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cassieq_spark.errors import SetupError
from cassieq_spark.node.download import download
from cassieq_spark.node.jars import Jar, read_list
from cassieq_spark.node.release import DEFAULT_RELEASE, Release
from cassieq_spark.terminal import Console

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
        text = f"The download in {folder} is incomplete ({reason}): getting what is amiss."
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
