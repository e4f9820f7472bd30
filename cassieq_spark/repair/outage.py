"""Whether queues fail because the whole cluster does."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from cassieq_spark.errors import StoreError
from cassieq_spark.store.protocol import Slice, Store, partition_of_queue

#: After so many failures one question is asked that concerns no queue.
FAILURES = 10


@dataclass(slots=True)
class Outage:
    """Counts failures, and asks now and then whether the cluster answers at all.

    Each queue waits for a budget of time before it fails. If none can be reached, to wait for
    thousands of them would take hours, and tell the same thousands of times.

    Args:
        store: Where the queues are kept.
    """

    store: Store
    _failures: int = 0
    _found: StoreError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise if it was found that the cluster does not answer: nothing more is to be begun."""
        if self._found is not None:
            raise self._found

    def count(self, queue: str, error: Exception | None) -> None:
        """Count that a queue failed. After each tenth failure of the store, one read.

        Args:
            queue: Its name.
            error: Why; None: that was logged, and is not known here.

        Raises:
            StoreError: The table of queues can't be read either.
        """
        if error is not None and not isinstance(error, StoreError):
            return
        with self._lock:
            self._failures += 1
            failures = self._failures
        if failures % FAILURES:
            return
        try:
            self.store.read_rows(partition_of_queue(queue), Slice(limit=1))
        except StoreError as found:
            self._found = StoreError(
                f"{failures} times the work on a queue has failed, and the table of queues can't "
                f"be read any more, so the repair ends here: {type(found).__name__}: {found}; see "
                "whether the cluster is well, and run it again, which goes on"
            )
            raise self._found from found
