from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cassieq_spark import watch
from cassieq_spark.queues import create_queue
from tests.support.spark_session import QueueOnSpark

PROGRAM = Path(__file__).parent / "programs" / "watch_until_interrupted.py"
CTRL_C = b"\x03"


def test_a_query_that_reads_two_queues_is_watched_until_it_ends(
    queue: QueueOnSpark, capsys: pytest.CaptureFixture[str]
):
    definition = create_queue(queue.store, f"{queue.definition.name}.more")
    more = replace(queue, definition=definition)
    queue.publish(queue.numbers(100))
    more.publish(queue.numbers(30))
    both = queue.stream("g", maxMessagesPerTrigger="60").union(more.stream("h"))

    watch(queue.start(both, lambda batch, _: batch.collect() and None))

    last = capsys.readouterr().out.splitlines()[-1]
    assert "stopped" in last
    assert f"{queue.definition.name}, group g: backlog 0, in " in last
    assert f"{definition.name}, group h: backlog 0, in " in last


@pytest.mark.timeout(600)
def test_ctrl_c_in_the_terminal_ends_the_view_and_the_query_goes_on(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))
    terminal, its_end = os.openpty()
    program = subprocess.Popen(
        [
            sys.executable,
            str(PROGRAM),
            json.dumps(queue.options),
            str(queue.folder / "checkpoint"),
        ],
        stdin=its_end,
        stdout=its_end,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "150", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(its_end)

    try:
        said = said_until(terminal, "running")
        os.write(terminal, CTRL_C)
        said += said_until(terminal, "}")
        program.wait(timeout=90)
    finally:
        program.kill()
        program.wait()
        os.close(terminal)

    assert f"{queue.definition.name}  g" in said
    assert "not watched any more; it goes on" in said
    assert '{"active": true, "batch": 1}' in said
    assert program.returncode == 0


def said_until(terminal: int, text: str) -> str:
    """What a program prints, up to a text; waits for some minutes at most."""
    deadline = time.monotonic() + 250
    said = b""
    while text.encode() not in said:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, said
        said += os.read(terminal, 4096)
    return said.decode()
