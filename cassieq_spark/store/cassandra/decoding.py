"""How the driver reads timestamps: as our instants, whatever is stored.

Cassandra keeps a timestamp as milliseconds in 64 bits, and takes all of them. The driver makes a
`datetime` of it, which ends with the year 9999. Where that fails, it closes the connection and
marks the node down, for every queue of the process: one row stops them all.
"""

from __future__ import annotations

from datetime import datetime
from struct import Struct
from typing import Any

from cassandra.cqltypes import DateType
from cassandra.protocol import ProtocolHandler, ResultMessage

from cassieq_spark.model import from_millis

_MILLISECONDS = Struct(">q")
#: The code of the type ``timestamp`` in Cassandra's protocol.
_TIMESTAMP = 0x000B
_ROWS = ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]


# The underscores keep these classes out of the driver's own registries: other sessions of the
# process decode as ever.
class _InstantType(DateType):  # type: ignore[misc]
    """A timestamp; what our calendar does not have becomes its first or its last instant."""

    @staticmethod
    def deserialize(raw: bytes, protocol_version: int) -> datetime:
        del protocol_version
        return from_millis(_MILLISECONDS.unpack(raw)[0])


class _Result(_ROWS):  # type: ignore[misc,valid-type]
    type_codes: dict[int, Any] = _ROWS.type_codes | {_TIMESTAMP: _InstantType}


class Decoding(ProtocolHandler):  # type: ignore[misc]
    """Decodes answers for one session (``session.client_protocol_handler``)."""

    message_types_by_opcode: dict[int, Any] = ProtocolHandler.message_types_by_opcode | {
        ResultMessage.opcode: _Result
    }
