"""Putting messages, for the sink, the client and the gateway.

    NewMessage -> check -> Arrow batches -> blocks of chunks -> publish (1 LWT): visible

| module | |
|---|---|
| `new_message` | what a program gives: checked, and as Arrow batches |
| `blocks` | writes messages as blocks, one for each time of delivery |
| `publisher` | writes and publishes a batch, once if it has a name |
| `producer` | collects the puts of many threads into batches |
"""

from __future__ import annotations
