"""Get Cassandra's jars: from this user's cache, or once from Maven Central by PySpark's Ivy.

A cache that is complete is used without any network call. A new download is prepared beside
it and moved into place as a whole, under a lock, so it is there completely or not at all.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cassieq_spark.errors import SetupError
from cassieq_spark.node.ivy import run_ivy
from cassieq_spark.node.manifest import find_damage, read_jars, write_manifest
from cassieq_spark.node.release import DEFAULT_RELEASE, Release
from cassieq_spark.terminal import Console

_NAMED = 5


def default_cache() -> Path:
    """Name the folder where downloads are kept: ``cassieq-spark`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache", "cassieq-spark")


def download_folder(cache: Path, release: Release = DEFAULT_RELEASE) -> Path:
    """Name the folder in ``cache`` that holds the jars of a release and their manifest."""
    return cache / f"cassandra-{release.version}"


def resolve_jars(
    *,
    java: Path,
    release: Release = DEFAULT_RELEASE,
    cache: Path | None = None,
    console: Console | None = None,
) -> list[Path]:
    """Return Cassandra's jars; download them (62 MB, about two minutes) if they are not there.

    Args:
        java: Runs Ivy.
        release: Which Cassandra.
        cache: Where downloads are kept; ``default_cache()`` unless given.
        console: Where progress is shown; standard error unless given.

    Returns:
        All jars of the class path, Cassandra's own and those it depends on.

    Raises:
        SetupError: PySpark is missing, or the download failed; says what to do.
    """
    cache = default_cache() if cache is None else cache
    folder = download_folder(cache, release)
    if find_damage(folder):
        console = Console(stderr=True) if console is None else console
        with _only_one(cache):
            # Another process may have finished the download while this one waited.
            if damage := find_damage(folder):
                _tell(damage, folder, console)
                _download(folder, release, java=java, console=console)
    return read_jars(folder)


def _tell(damage: list[str], folder: Path, console: Console) -> None:
    if folder.exists():
        more = f" and {len(damage) - _NAMED} more" if len(damage) > _NAMED else ""
        reason = "; ".join(damage[:_NAMED]) + more
        text = f"The download in {folder} is incomplete ({reason}): getting it again."
        console.print(text, markup=False, highlight=False)


def _download(folder: Path, release: Release, *, java: Path, console: Console) -> None:
    ivy = _find_ivy()
    for stale in folder.parent.glob("download-*"):
        shutil.rmtree(stale, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix="download-", dir=folder.parent))
    try:
        run_ivy(
            [str(java), "-jar", str(ivy)],
            coordinates=("org.apache.cassandra", "cassandra-all", release.version),
            ivy_cache=folder.parent / "ivy",
            target=fresh,
            console=console,
        )
        write_manifest(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    # Ivy's copies have served: they let an interrupted download go on where it stopped.
    shutil.rmtree(folder.parent / "ivy", ignore_errors=True)


def _find_ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise SetupError(
        "Downloading Cassandra needs the Ivy that comes with PySpark, and PySpark is not"
        " installed here. Install it: pip install 'cassieq-spark[spark]'"
    )


@contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w")
    except OSError as exc:
        raise SetupError(
            f"The cache folder {cache} cannot be written ({exc.strerror}):"
            " choose another one, or set XDG_CACHE_HOME."
        ) from exc
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
