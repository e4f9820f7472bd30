"""Keys that are duplicated in a map: Arrow can hold them; Python and Spark can't.

Spark refuses such keys by default (``spark.sql.mapKeyDedupPolicy``). As in Spark, zeros of both
signs are the same key, and so are all NaNs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from cassieq_spark.model import Range, Ranges


def key_twice(keys: Iterable[Any]) -> Any | None:
    """The first duplicated key, as Python has it; None if no key is duplicated."""
    seen = set()
    for key in keys:
        identity = _identity(key)
        if identity in seen:
            return key
        seen.add(identity)
    return None


def has_key_twice(array: pa.Array) -> bool:
    """True if a map in an array has a duplicated key, at any level; False if none has.

    Args:
        array: An array of a type that a queue may have.
    """
    type_ = array.type
    if of.is_struct(type_):
        return any(has_key_twice(part) for part in array.flatten())
    if of.is_list(type_):
        return of.is_nested(type_.value_type) and has_key_twice(array.flatten())
    if not of.is_map(type_):
        return False
    entries = as_list(array)
    lengths = pc.fill_null(pc.list_value_length(entries), 0)
    keys, items = entries.flatten().flatten()
    return are_keys_twice(lengths, keys) or has_key_twice(keys) or has_key_twice(items)


def with_last_keys(array: pa.Array) -> pa.Array:
    """Maps with the last value of each key, as Python's dicts have it; else the same array.

    Only messages of earlier releases have duplicated keys: Python showed the last value of such a
    key, and Spark the first.
    """
    if not has_key_twice(array):
        return array
    return pa.array([_with_last(each, array.type) for each in array.to_pylist()], array.type)


def _with_last(value: Any, type_: pa.DataType) -> Any:
    if value is None or not of.is_nested(type_):
        return value
    if of.is_struct(type_):
        return {part.name: _with_last(value[part.name], part.type) for part in type_}
    if of.is_list(type_):
        return [_with_last(each, type_.value_type) for each in value]
    entries = [
        (_with_last(key, type_.key_type), _with_last(each, type_.item_type)) for key, each in value
    ]
    return list({_identity(entry[0]): entry for entry in entries}.values())


def as_list(array: pa.Array) -> pa.Array:
    """A map as a list of structs of key and value, with the same buffers; else the same array."""
    if not of.is_map(array.type):
        return array
    entries = pa.StructArray.from_arrays(
        [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
    )
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        array.buffers()[:2],
        array.null_count,
        array.offset,
        [entries],
    )


def are_keys_twice(lengths: pa.Array, keys: pa.Array) -> bool:
    """True if a map has a duplicated key; False if none has.

    Args:
        lengths: How many keys each map has.
        keys: The keys of all maps.
    """
    counts = np.asarray(lengths)
    if not (counts > 1).any():
        return False
    maps = np.repeat(np.arange(len(counts)), counts)
    if of.is_nested(keys.type):
        numbers: dict[Any, int] = {}
        codes = np.array(
            [numbers.setdefault(_identity(key), len(numbers)) for key in keys.to_pylist()]
        )
    else:
        if of.is_floating(keys.type):
            keys = pc.add(keys, pa.scalar(0, keys.type))  # -0.0 becomes 0.0.
        codes = np.asarray(keys.dictionary_encode().indices)
    pairs = maps * len(keys) + codes
    return len(np.unique(pairs)) < len(pairs)


def _identity(key: Any) -> Any:
    """A hashable value that is equal for two keys if they are the same key."""
    if isinstance(key, dict):
        return tuple(_identity(each) for each in key.values())
    if isinstance(key, list | tuple):
        return tuple(_identity(each) for each in key)
    if isinstance(key, float) and math.isnan(key):
        return "NaN", float
    return key


def flattened(lists: pa.Array) -> pa.Array:
    """The elements of lists, except those of null lists.

    Arrow can't pick elements that are, or contain, dictionary entries of structs or maps. But it
    can concatenate slices of them.
    """
    try:
        return lists.flatten()
    except pa.ArrowNotImplementedError:
        if not (of.is_list(lists.type) or of.is_large_list(lists.type)):
            raise
    ends = zip(pairwise(lists.offsets.to_pylist()), lists.is_valid().to_pylist(), strict=True)
    runs = [Range(start, stop) for (start, stop), is_there in ends if is_there]
    return pa.concat_arrays(
        [lists.values.slice(0, 0)]
        + [lists.values.slice(run.start, len(run)) for run in Ranges.of(*runs)]
    )
