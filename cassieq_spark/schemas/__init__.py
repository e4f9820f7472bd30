"""Schemas of queues: what columns their messages have, and how columns become others.

| module            | what it decides                                                           |
|-------------------|---------------------------------------------------------------------------|
| `canonical.py`    | which Arrow types a column may have, and which one stands for which other |
| `ddl.py`          | schemas as text: Spark's DDL, and the stored versions of a queue's schema |
| `files.py`        | schemas in the files of others: Spark's JSON, Avro, Parquet               |
| `evolution.py`    | which changes of a schema are safe, and how a version is read as another  |
| `assign.py`       | an Arrow table of a writer as the columns of a queue: names and types     |
| `pandas_index.py` | the index of a pandas DataFrame, which Arrow has as metadata, as columns  |
| `convert.py`      | Arrow columns of one type as columns of another; which value does not fit |
| `from_rows.py`    | Python dicts and JSON objects as columns                                  |
| `to_rows.py`      | columns as Python dicts and JSON objects                                  |

| what is wrong                                                    | error           |
|------------------------------------------------------------------|-----------------|
| the text or file of a schema; a type that no column can have     | `OptionError`   |
| a change of a schema; columns of a writer, whatever their values | `SchemaError`   |
| a value                                                          | `MessageError`  |
| a stored list of versions                                        | `InvariantError`|
"""

from __future__ import annotations
