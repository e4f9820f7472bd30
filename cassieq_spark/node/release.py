"""The releases of Cassandra that can be embedded, and what tells them apart. Pure."""

from __future__ import annotations

from enum import StrEnum


class Release(StrEnum):
    """A line of releases; both serve protocols 4 and 5, and run on Java 17.

    4.1 is made for Java 8 and 11; on 17 it serves tests, and is not for production.
    """

    V4_1 = "4.1"
    V5_0 = "5.0"

    @property
    def version(self) -> str:
        """The one that is downloaded, as Maven Central has it."""
        return {Release.V4_1: "4.1.10", Release.V5_0: "5.0.8"}[self]

    @property
    def logs_directly(self) -> bool:
        """Whether it can write its log of writes past the page cache."""
        return self is not Release.V4_1


DEFAULT_RELEASE = Release.V5_0
