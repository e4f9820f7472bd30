"""The web console: what all queues hold, and what a person on call can do about it.

    store -> watcher (reads at a pace) -> histories -> pages: overview, queue
      '----> looking (reads only)  --------------------> pages: messages, dead letters, group
      '----> queues, groups, client -------------------> changes, if they are allowed

| event | result |
|---|---|
| it was started without --allow-changes | no page offers a change, and the store refuses any
change |
| a page of another site sends a form | refused: its origin, or the token of the form, is wrong |
| a message holds markup, or codes that reorder text | it is shown as text, with the codes spelled
out |
| Cassandra is unreachable | the last figures stay, with their age and the error |
| a page is open for long | it renews itself; what is typed, chosen or unfolded stays |
"""

from __future__ import annotations

from cassieq_spark.console.app import Console
from cassieq_spark.console.server import serve

__all__ = ["Console", "serve"]
