"""DAGs for Airflow 3: the repair, and a query that empties a queue by the hour.

In Airflow 2.9 or later, import from ``airflow.decorators``. The workers need the command
``cassieq`` and ``spark-submit``, and CASSIEQ_CONFIG has to name a
file like conf/cassieq.toml.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
#: Another repair run has the lock, or this one was stopped half way: the next try continues.
TRY_AGAIN = {"retries": 3, "retry_delay": timedelta(minutes=10)}


@dag(schedule="17 3 * * *", start_date=BEGINS, catchup=False, max_active_runs=1, tags=["cassieq"])
def cassieq_repair() -> None:
    """Delete what every group has settled, and audit the rest, once a night."""

    @task.bash(execution_timeout=timedelta(hours=6), **TRY_AGAIN)
    def repair() -> str:
        return "cassieq repair run --json -"

    repair()


@dag(schedule="@hourly", start_date=BEGINS, catchup=False, max_active_runs=1, tags=["cassieq"])
def billing() -> None:
    """Process what is in the queue, then end: the query has the trigger availableNow."""

    @task.bash(execution_timeout=timedelta(hours=1), retries=3)
    def drain() -> str:
        return "spark-submit /opt/jobs/billing.py"

    drain()


cassieq_repair()
billing()
