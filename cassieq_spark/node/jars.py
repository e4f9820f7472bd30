"""The releases of Cassandra that can be embedded, and the list of jars of each.

`make cassandra-jars` has written the lists beside this module: one line with coordinates, bytes
and SHA-256 per jar that Ivy finds for `cassandra-all`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Release(StrEnum):
    """A line of releases; both lines support protocols 4 and 5, and run on Java 17.

    4.1 is made for Java 8 and 11; on 17 it is only for tests.
    """

    V4_1 = "4.1"
    V5_0 = "5.0"

    @property
    def version(self) -> str:
        """The release that is downloaded."""
        return {Release.V4_1: "4.1.10", Release.V5_0: "5.0.9"}[self]

    @property
    def logs_directly(self) -> bool:
        """True if the commit log of the release can bypass the page cache."""
        return self is not Release.V4_1


DEFAULT_RELEASE = Release.V5_0

_LISTS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on Maven Central.

    Attributes:
        coordinates: ``group:name:version``, or ``group:name:version:classifier``.
        size: Length in bytes.
        sha256: The SHA-256 digest of the contents, in hex.
    """

    coordinates: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the jar on Maven Central.

        >>> Jar("io.netty:netty-all:4.1.130.Final:linux", 0, "").file_name
        'netty-all-4.1.130.Final-linux.jar'
        """
        _, *rest = self.coordinates.split(":")
        return "-".join(rest) + ".jar"

    @property
    def path(self) -> str:
        """The path of the jar in a Maven repository.

        >>> Jar("io.netty:netty-all:4.1.130.Final", 0, "").path
        'io/netty/netty-all/4.1.130.Final/netty-all-4.1.130.Final.jar'
        """
        group, name, version, *_ = self.coordinates.split(":")
        return "/".join((*group.split("."), name, version, self.file_name))

    def damage(self, folder: Path) -> str | None:
        """The damage of this jar's file in ``folder``; None if the file is correct."""
        try:
            with (folder / self.file_name).open("rb") as file:
                size = file.seek(0, 2)
                if size != self.size:
                    return f"{self.file_name} has {size} bytes, not {self.size}"
                file.seek(0)
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{self.file_name} cannot be read ({error.strerror})"
        return None if found == self.sha256 else f"{self.file_name} has other contents"


def read_list(release: Release) -> tuple[Jar, ...]:
    """The jars of the class path of a release: Cassandra's own, and its dependencies."""
    lines = list_of(release).read_text(encoding="utf-8").splitlines()
    found = (line.split() for line in lines)
    return tuple(Jar(coordinates, int(size), sha256) for coordinates, size, sha256 in found)


def list_of(release: Release) -> Path:
    """The file with the list of a release."""
    return _LISTS / f"cassandra-{release.version}.jars"
