"""Schemas of queues: the columns of their messages, and how columns become other columns.

| module            | what it decides                                                           |
|-------------------|---------------------------------------------------------------------------|
| `canonical.py`    | which Arrow types a column may have, and which other types count as these |
| `ddl.py`          | schemas as text: Spark's DDL, and the stored versions of a queue's schema |
| `files.py`        | schemas in foreign formats: Spark's JSON, Avro, Parquet                   |
| `evolution.py`    | which changes of a schema are safe, and how a version is read as another  |
| `assign.py`       | an Arrow table of a writer as the columns of a queue: names and types     |
| `pandas_index.py` | the index of a pandas DataFrame, which Arrow has as metadata, as columns  |
| `convert.py`      | Arrow columns of one type as columns of another; which values do not fit  |
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
