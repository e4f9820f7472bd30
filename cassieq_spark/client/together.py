"""The state that clients of one process share, so that threads share LWTs and do not compete."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from cassieq_spark.groups.rounds import Rounds
from cassieq_spark.producer.group_commit import Commits
from cassieq_spark.settings.connection import ConnectionOptions


@dataclass(slots=True, weakref_slot=True, eq=False)
class Together:
    """The threads that publish to queues, and the threads that lease from groups and settle."""

    commits: Commits = field(default_factory=Commits)
    rounds: Rounds = field(default_factory=Rounds)

    @classmethod
    def of(cls, options: ConnectionOptions) -> Together:
        """The shared state of all clients that connect in the same way, as the same user."""
        return _KNOWN.setdefault(options, cls())


_KNOWN: WeakValueDictionary[ConnectionOptions, Together] = WeakValueDictionary()
