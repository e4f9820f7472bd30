"""The repair, on a store in memory."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.protocol import Store


def delete_settled(store: Store) -> None:
    """Finalise and delete what every group has settled."""
    run_once(
        store,
        scan=DriverScan(store),
        steps=(Step.FINALISE,),
        write_timeout=timedelta(minutes=5),
    )
