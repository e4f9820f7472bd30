"""Celery with workers of its own processes: one is killed, tasks wait and are tried again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sqs.conftest import counts, output_of

SHOP = Path(__file__).parent / "programs" / "shop.py"
PATIENCE = 120
#: How long a message is hidden, in seconds: what a killed worker has held is run after that.
HIDDEN = 10
QUEUES = ("mail", "pictures")


class Shop:
    """The program of the tasks, with those who send them and those who run them."""

    def __init__(self, folder: Path, environment: dict[str, str], options: dict[str, Any]) -> None:
        shutil.copy(SHOP, folder)
        self._folder = folder
        self._notes = folder / "notes"
        self._notes.touch()
        self._environment = environment | {
            "NOTES": str(folder),
            "TRANSPORT_OPTIONS": repr(
                {"visibility_timeout": HIDDEN, "wait_time_seconds": 2, **options}
            ),
        }

    def send(self, *lines: str) -> None:
        """Run a program of these lines, in which the tasks are imported."""
        program = "\n".join(["from shop import *", *lines])
        output_of([sys.executable, "-c", program], self._folder, self._environment)

    @contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker with two processes, which is a group of processes; killed in the end."""
        command = ["celery", "-A", "shop", "worker", "-Q", ",".join(QUEUES), "-c", "2"]
        log = self._folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "-n", name],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            yield process
        except BaseException as error:
            error.add_note(log.read_text())
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(PATIENCE)

    def noted(self) -> Counter[tuple[str, int]]:
        """How often each task has run."""
        return Counter((task, number) for task, number, _ in self._lines())

    def times(self, task: str) -> dict[int, float]:
        """When a task has run, by its number."""
        return {number: at for name, number, at in self._lines() if name == task}

    def let_go(self) -> None:
        """Let all tasks end that hang."""
        (self._folder / "let-go").touch()

    def _lines(self) -> Iterator[tuple[str, int, float]]:
        for line in self._notes.read_text().splitlines():
            task, number, at = line.split()
            yield task, int(number), float(at)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def all_empty(sqs: Any) -> bool:
    urls = sqs.list_queues().get("QueueUrls", [])
    return len(urls) == len(QUEUES) and {counts(sqs, url) for url in urls} == {(0, 0, 0)}


def predefined(sqs: Any, hidden: int = HIDDEN, **more: Any) -> dict[str, Any]:
    """Options of kombu that name the queues, which are made here."""
    given = {"VisibilityTimeout": str(hidden)}
    urls = {
        name: sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"] for name in QUEUES
    }
    return {"predefined_queues": {name: {"url": url, **more} for name, url in urls.items()}}


@pytest.mark.parametrize("named", [False, True], ids=["made by Celery", "predefined"])
def test_every_task_of_two_queues_runs_once_and_not_before_its_time(
    named: bool, environment: dict[str, str], sqs: Any, tmp_path: Path
):
    shop = Shop(tmp_path, environment, predefined(sqs) if named else {})
    begun = time.time()

    shop.send(
        "for number in range(10): send.delay(number); draw.delay(number)",
        "for number in range(3): try_again.delay(number)",
        "send.apply_async([100], countdown=3)",
        "from datetime import UTC, datetime, timedelta",
        "draw.apply_async([100], eta=datetime.now(UTC) + timedelta(seconds=3))",
    )
    with shop.worker("one") as worker:
        until(lambda: shop.noted().total() >= 34 and all_empty(sqs))
        worker.terminate()
        assert worker.wait(PATIENCE) == 0

    once = [(task, number) for task in ("send", "draw") for number in (*range(10), 100)]
    tried = [("try_again", number) for number in range(3)]
    attempts = {("attempt", number): 3 for number in range(3)}
    assert shop.noted() == Counter([*once, *tried]) + Counter(attempts)
    assert min(shop.times("send")[100], shop.times("draw")[100]) >= begun + 3
    assert all_empty(sqs)


def test_what_a_killed_worker_had_is_run_by_another_one(
    environment: dict[str, str], sqs: Any, tmp_path: Path
):
    shop = Shop(tmp_path, environment, {})

    shop.send("for number in range(10): send.delay(number); draw.delay(number)")
    with shop.worker("one") as first:
        until(lambda: shop.noted().total() >= 20 and all_empty(sqs))
        shop.send("hang.delay(1)", "hang.delay(2)")
        until(lambda: len(shop.times("begin")) == 2)
        shop.send("for number in range(10, 20): send.delay(number)")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(PATIENCE)
    assert not shop.times("hang")
    shop.let_go()
    with shop.worker("two") as second:
        until(lambda: len(shop.times("hang")) == 2 and len(shop.times("send")) == 20)
        until(lambda: all_empty(sqs))
        second.terminate()
        assert second.wait(PATIENCE) == 0

    noted = shop.noted()
    before = [(task, number) for task in ("send", "draw") for number in range(10)]
    assert {noted[each] for each in before} == {1}
    assert noted["begin", 1] >= 2
    assert noted["begin", 2] >= 2
    assert all(noted["send", number] for number in range(10, 20))


def test_a_failed_task_is_given_out_again_when_the_backoff_of_kombu_is_over(
    environment: dict[str, str], sqs: Any, tmp_path: Path
):
    """kombu changes the visibility of its message, by how often the message was received."""
    backoff = {"backoff_policy": {1: 1}, "backoff_tasks": ["shop.fail_at_first"]}
    longer = 10 * PATIENCE
    shop = Shop(tmp_path, environment, predefined(sqs, longer, **backoff))

    shop.send("for number in range(3): fail_at_first.delay(number)")
    with shop.worker("one"):
        until(lambda: len(shop.times("fail_at_first")) == 3 and all_empty(sqs))

    assert shop.noted() == Counter(
        {("delivered", number): 2 for number in range(3)}
        | {("fail_at_first", number): 1 for number in range(3)}
    )
