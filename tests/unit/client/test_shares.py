from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.client.shares import Shares

MOST = 2
#: What happens to the thing that is asked for next, or to one that is under way.
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["ask", "end", "cancel"]), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_no_caller_has_more_than_its_share_or_waits_without_need(
    steps: list[tuple[str, str, int]],
):
    asyncio.run(played(steps))


async def played(steps: list[tuple[str, str, int]]) -> None:
    shares = Shares(MOST)
    busy: Counter[str] = Counter()
    served: list[int] = []
    under_way: list[tuple[str, int, asyncio.Event, asyncio.Task[None]]] = []

    async def thing(caller: str, number: int, end: asyncio.Event) -> None:
        async with shares.held(caller):
            served.append(number)
            busy[caller] += 1
            try:
                await end.wait()
            finally:
                busy[caller] -= 1

    for number, (caller, what, which) in enumerate(steps):
        if what == "ask":
            end = asyncio.Event()
            under_way.append(
                (caller, number, end, asyncio.create_task(thing(caller, number, end)))
            )
        elif under_way:
            _, _, end, task = under_way[which % len(under_way)]
            if what == "end":
                end.set()
            else:
                task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        under_way = [each for each in under_way if not each[3].done()]
        for name in "ab":
            asked = sum(1 for each in under_way if each[0] == name)
            assert busy[name] == min(MOST, asked)
    for name in "ab":
        own = [number for number in served if steps[number][0] == name]
        assert own == sorted(own), "in the order in which it asked"
    for *_, task in under_way:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert not shares._callers, "who asks for nothing takes no memory"


def test_who_is_nobody_in_particular_never_waits():
    async def program() -> None:
        shares = Shares(1)
        for _ in range(3):
            await shares.take(None)

    asyncio.run(asyncio.wait_for(program(), 5))


def test_what_is_cancelled_while_it_waits_takes_no_share():
    async def program() -> None:
        shares = Shares(1)
        await shares.take("a")
        waiting = asyncio.create_task(shares.take("a"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        shares.give("a")
        await asyncio.wait_for(shares.take("a"), 5)

    asyncio.run(program())
