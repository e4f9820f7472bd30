"""The store that Cassandra is; the only part of this package that imports its driver.

statements.cql  every statement's text     statements.py  operations -> text and values (pure)
schema.py       creates what is missing    upgrade.py     compares tables with these (pure)
session.py      one session per process    inspection.py  which tables and settings there are
requests.py     requests, repeated while that is safe; chunks, pipelined
mapping.py      driver errors -> our errors               store.py  all of it as a `Store`
"""

from __future__ import annotations
