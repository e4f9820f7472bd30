"""The permissions that each kind of user needs in Cassandra, and no others."""

from __future__ import annotations

from enum import StrEnum

from cassieq_spark.errors import OptionError
from cassieq_spark.store.tables import Table

#: The permissions for lightweight transactions.
_BOTH = ("SELECT", "MODIFY")
_READ = ("SELECT",)
_WRITE = ("MODIFY",)


class User(StrEnum):
    """The kinds of users of the tables."""

    #: Publishes messages.
    PRODUCER = "producer"
    #: Leases, reads and settles messages; copies dead letters to their queue, which is publishing.
    CONSUMER = "consumer"
    #: Serves queues by HTTP; creates and deletes queues and accounts.
    GATEWAY = "gateway"
    #: Runs the repair.
    REPAIR = "repair"
    #: Only reads: exports metrics, shows queues, messages and repair runs in a console.
    VIEWER = "viewer"
    #: Creates tables, queues and groups, and does all that the others do.
    ADMIN = "admin"


_OF_TABLES: dict[User, dict[Table, tuple[str, ...]]] = {
    User.PRODUCER: {Table.QUEUE: _READ, Table.LEDGER: _BOTH, Table.CHUNK: _WRITE},
    User.CONSUMER: {
        Table.QUEUE: _READ,
        Table.LEDGER: _BOTH,
        Table.GROUP_STATE: _BOTH,
        Table.CHUNK: _BOTH,
    },
    User.GATEWAY: {each: _BOTH for each in Table if each not in {Table.LOCK, Table.REPAIR}},
    # It deletes what is left of deleted queues, and has nothing to do with accounts.
    User.REPAIR: {each: _BOTH for each in Table if each is not Table.ACCOUNT},
    User.VIEWER: {each: _READ for each in Table if each is not Table.ACCOUNT},
}
#: Permissions of an admin on the whole keyspace, and so on the tables of later releases.
_OF_KEYSPACE = ("SELECT", "MODIFY", "CREATE", "ALTER")


def grant_statements(user: User, role: str, keyspace: str) -> list[str]:
    """The statements that give a role of Cassandra the permissions of a kind of user.

    >>> grant_statements(User.PRODUCER, "loader", "cassieq")[-1]
    'GRANT MODIFY ON TABLE cassieq.chunk TO "loader"'

    Args:
        user: The kind of user.
        role: The name of the role, in the letter case in which it was created.
        keyspace: A valid keyspace name.

    Raises:
        OptionError: The role has no name.
    """
    if not role.strip():
        raise OptionError("a role needs a name")
    quoted = '"' + role.replace('"', '""') + '"'
    if user is User.ADMIN:
        return [f"GRANT {each} ON KEYSPACE {keyspace} TO {quoted}" for each in _OF_KEYSPACE]
    return [
        f"GRANT {each} ON TABLE {keyspace}.{table} TO {quoted}"
        for table, permissions in _OF_TABLES[user].items()
        for each in permissions
    ]
