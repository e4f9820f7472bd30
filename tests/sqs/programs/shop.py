"""Tasks of Celery that note what they do; the queues are those of an account of a gateway."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

#: Where tasks note what they do.
FOLDER = Path(os.environ["NOTES"])
OPTIONS: dict[str, Any] = ast.literal_eval(os.environ["TRANSPORT_OPTIONS"])

app = Celery("shop", broker="sqs://")
app.conf.update(
    broker_transport_options=OPTIONS,
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_default_queue="mail",
    task_routes={"shop.draw": {"queue": "pictures"}, "shop.hang": {"queue": "pictures"}},
    worker_prefetch_multiplier=1,
)


def note(task: str, number: int) -> None:
    """Note that it has run, in one write that no other process can divide."""
    with (FOLDER / "notes").open("a") as notes:
        notes.write(f"{task} {number} {time.time()}\n")


@app.task
def send(number: int) -> None:
    note("send", number)


@app.task
def draw(number: int) -> None:
    note("draw", number)


@app.task(bind=True, max_retries=3)
def try_again(self: Any, number: int) -> None:
    """Succeeds with its third attempt."""
    note("attempt", number)
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    note("try_again", number)


@app.task
def hang(number: int) -> None:
    """Runs until it is let go, or its worker is killed."""
    note("begin", number)
    while not (FOLDER / "let-go").exists():
        time.sleep(0.05)
    note("hang", number)


@app.task
def fail_at_first(number: int) -> None:
    """Is left to the queue, which gives it out again when kombu's backoff is over."""
    is_first = f"delivered {number} " not in (FOLDER / "notes").read_text()
    note("delivered", number)
    if is_first:
        raise ValueError(number)
    note("fail_at_first", number)
