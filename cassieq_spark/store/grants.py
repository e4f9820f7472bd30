"""What each sort of user needs to be allowed in Cassandra, and no more. Pure."""

from __future__ import annotations

from enum import StrEnum

from cassieq_spark.errors import OptionError
from cassieq_spark.store.tables import Table

#: What a lightweight transaction takes.
_BOTH = ("SELECT", "MODIFY")
_READ = ("SELECT",)
_WRITE = ("MODIFY",)


class User(StrEnum):
    """Who uses the tables, by what they do."""

    #: Publishes.
    PRODUCER = "producer"
    #: Leases, reads, settles; and moves dead letters, which is publishing.
    CONSUMER = "consumer"
    #: Serves the queues by HTTP: makes and deletes queues and accounts.
    GATEWAY = "gateway"
    #: Runs the repair.
    REPAIR = "repair"
    #: Makes tables, queues and groups, and does all that the others do.
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
    # It removes what deleted queues leave behind; accounts are none of its business.
    User.REPAIR: {each: _BOTH for each in Table if each is not Table.ACCOUNT},
}
#: Of the keyspace, so of the tables of later releases, too.
_OF_KEYSPACE = ("SELECT", "MODIFY", "CREATE", "ALTER")


def grant_statements(user: User, role: str, keyspace: str) -> list[str]:
    """The statements that let a role of Cassandra do what a sort of user does.

    >>> grant_statements(User.PRODUCER, "loader", "cassieq")[-1]
    'GRANT MODIFY ON TABLE cassieq.chunk TO "loader"'

    Args:
        user: What it is to do.
        role: Its name, in the case of letters that it was created in.
        keyspace: A valid keyspace name.

    Raises:
        OptionError: A role without a name.
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
