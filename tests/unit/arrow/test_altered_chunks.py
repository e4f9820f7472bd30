"""Altered chunks, which the fuzz reads, are the same again from their seed."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.fuzz.mutations import mutant_of


def test_a_mutant_is_the_same_whatever_the_memory_holds():
    mutants = set()
    for content in (b"a", b"b"):
        for size in range(100, 8_000, 100):
            memoryview(pa.allocate_buffer(size)).cast("B")[:] = content * size
        mutants.add(mutant_of(random.Random("20261201/2276")))

    assert len(mutants) == 1
