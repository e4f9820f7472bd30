"""The store that Cassandra is; the only part of this package that imports its driver.

statements.cql  every statement's text     statements.py  operations -> text and values (pure)
schema.cql      every table                schema.py      creates them, or what they lack
layout.py       which tables there are     upgrade.py     compares them with these (pure)
session.py      one session per process    requests.py    one request, repeated while that is safe
writing.py      chunks out, pipelined      reading.py     chunks in, read ahead
mapping.py      driver errors -> our errors               store.py  all of it as a `Store`
"""

from __future__ import annotations
