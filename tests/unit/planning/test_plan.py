"""The capacity model, with coefficients that make sums easy, and with those of the package."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import OptionError
from cassieq_spark.model import Order
from cassieq_spark.planning.coefficients import MEANINGS, Coefficients, read_coefficients
from cassieq_spark.planning.plan import MEASURED, PAPER, CapacityPlan, Load

GIB = 2.0**30


def coefficients(**values: float) -> Coefficients:
    """All coefficients are 0 but these; a dot in a name is ``__``."""
    known = dict.fromkeys(MEANINGS, 0.0)
    known |= {"disk.garbage": 1.0, "disk.flushed": 0.5}
    known |= {name.replace("__", "."): value for name, value in values.items()}
    return Coefficients(known, {})


def texts(plan: CapacityPlan) -> dict[tuple[str, str], str]:
    return {(each.part, each.name): each.text for each in plan.lines()}


#: A second of the peak has 2000 messages of 500 bytes as stored, and a tenth of a micro-batch.
LOAD = Load(rate=1000, size=1000, compression=2, groups=2, keep=timedelta(days=1), replicas=3)


def test_processor_time_of_cassandra_is_that_of_each_replica_that_takes_part():
    known = coefficients(
        publish__cassandra__message=1e-3,
        publish__replica__byte=1e-6,
        read__cassandra__block=1.0,
        read__replica__batch=2.0,
        idle__node=0.01,
    )

    plan = CapacityPlan(LOAD, known)

    # 2000 x 1 ms, and 2 further replicas x 1 MB x 1 µs.
    assert plan.publish_cores == pytest.approx(2.0 + 2.0)
    # 2 groups x (0.1 blocks x 1 s + 1 further replica x 0.1 LWTs x 2 s).
    assert plan.read_cores == pytest.approx(2 * (0.1 + 0.2))
    assert plan.cores(3) == pytest.approx(4.0 + 0.6 + 0.03)


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_where_there_is_an_order_a_group_also_reads_each_partition_serially(order: Order):
    known = coefficients(read__cassandra__batch=3.0, publish__cassandra__batch=1.0)

    plan = CapacityPlan(replace(LOAD, order=order), known)

    # A serial read is a third of an LWT.
    assert plan.read_cores == pytest.approx(2 * 0.1 * plan.partitions * 3.0 * 4 / 3)
    assert plan.publish_cores == pytest.approx(0.1 * plan.partitions * 1.0)


def test_files_on_disk_are_all_replicas_of_what_is_kept_with_garbage_log_and_free_space():
    known = coefficients(disk__byte=1.1, disk__message=10.0, disk__garbage=3.0)

    plan = CapacityPlan(LOAD, known)

    assert plan.kept_bytes == pytest.approx(1000 * 86_400 * (10 + 1.1 * 500) * 3)
    assert plan.disk(4) == pytest.approx((plan.kept_bytes / 4 * 3 + 8 * GIB) / 0.8)


def test_compaction_writes_each_byte_once_for_each_level_of_four_files():
    known = coefficients(disk__byte=1.0, disk__level=1.0, compaction__byte=1e-6, flush__byte=3e-6)
    load = replace(LOAD, keep=timedelta(seconds=16 * GIB / (1000 * 500)), heap=8 * GIB)

    plan = CapacityPlan(load, known)

    # A third of 48 GiB is 16 new files of half of a quarter of the heap.
    assert plan.rewrites(3) == pytest.approx(2.0)
    assert plan.storing_cores(3) == pytest.approx(2000 * 500 * 3 * (3e-6 + 2 * 1e-6))
    assert plan.written(3) == pytest.approx(2000 * 500 * (1 + 2))


def test_the_network_of_a_node_is_its_share_of_the_busier_direction_and_of_what_nodes_exchange():
    known = coefficients(
        wire__publish__byte=1.0,
        wire__read__byte=1.0,
        wire__publish__nodes__byte=1.0,
        wire__read__nodes__message=5.0,
    )

    plan = CapacityPlan(LOAD, known)

    # Two groups read 1 MB each, more than is published; 2 MB of replicas; digests of 2 groups.
    assert plan.network(4) == pytest.approx((2e6 + 2e6 + 2 * 2000 * 5) / 4)


def test_there_are_as_many_nodes_as_the_scarcest_resource_asks_for():
    few = coefficients()
    busy = coefficients(publish__cassandra__message=0.04)
    full = coefficients(disk__byte=1000.0)
    loud = coefficients(wire__read__byte=3000.0)

    assert (CapacityPlan(LOAD, few).nodes, CapacityPlan(LOAD, few).limit) == (3, "replicas")
    # 80 cores, of which a node gives 16 x 60 %.
    assert (CapacityPlan(LOAD, busy).nodes, CapacityPlan(LOAD, busy).limit) == (9, "cores")
    # 129.6 TB in 3.2 TB of each node, but for 8 GiB of log.
    assert (CapacityPlan(LOAD, full).nodes, CapacityPlan(LOAD, full).limit) == (41, "disks")
    # 6 GB/s, of which a node gives 1.25 x 60 %.
    assert (CapacityPlan(LOAD, loud).nodes, CapacityPlan(LOAD, loud).limit) == (8, "network")


def test_with_one_node_down_the_others_have_its_work():
    busy = coefficients(publish__cassandra__message=0.014)

    shown = texts(CapacityPlan(LOAD, busy))

    assert shown["node", "cores busy"] == "58.3%"
    assert shown["node", "cores busy, one node down"] == "87.5%"


@pytest.mark.parametrize("replicas", [1, 2])
def test_if_a_quorum_is_all_replicas_no_node_may_be_down(replicas: int):
    busy = coefficients(publish__cassandra__message=0.014)

    plan = CapacityPlan(replace(LOAD, replicas=replicas), busy)

    assert plan.nodes == 3  # further nodes do not help: some messages have their replicas there
    lines = {each.name: each for each in plan.lines()}
    assert "cores busy, one node down" not in lines
    assert lines["nodes that may be down"].value == 0
    assert "--rf 3" in lines["nodes that may be down"].follows


@pytest.mark.parametrize("replicas", [3, 4, 5])
def test_if_a_quorum_does_without_a_node_its_work_is_planned(replicas: int):
    shown = texts(CapacityPlan(replace(LOAD, replicas=replicas), coefficients()))

    assert ("node", "cores busy, one node down") in shown
    assert ("node", "nodes that may be down") not in shown


def test_executors_are_those_of_each_query_upwards():
    known = coefficients(publish__client__byte=1e-6, read__client__message=2e-3, idle__query=0.1)

    plan = CapacityPlan(LOAD, known)

    assert plan.writer_cores == pytest.approx(2.1)
    assert plan.reader_cores == pytest.approx(4.1)
    shown = texts(plan)
    assert shown["spark", "executors, writer"] == "1"
    assert shown["spark", "executors, each group"] == "2"
    assert shown["spark", "cores, all queries"] == "20"


@pytest.mark.parametrize("order", Order)
def test_publishes_of_a_partition_without_replicas_do_not_limit_a_plan_with_three(order: Order):
    slow = coefficients(lwt__partition=5.0)
    often = replace(LOAD, order=order, interval=timedelta(milliseconds=100), replicas=3)

    assert texts(CapacityPlan(often, slow))["queue", "partitions"] == "1"


def test_the_lwts_of_a_plan_are_called_the_least_that_they_are():
    line = next(
        each for each in CapacityPlan(LOAD, coefficients()).lines() if each.name == "LWTs/s"
    )

    assert line.value == pytest.approx(0.3)  # a publish and two groups each 10 s
    assert "at the least" in line.follows


def test_what_was_measured_of_lwts_without_replicas_says_so():
    alone = [name for name in MEANINGS if name.startswith("lwt.")]

    assert len(alone) == 3
    assert all("one replica" in MEANINGS[name][1] for name in alone)


def test_micro_batches_that_come_faster_than_spark_runs_them_are_refused():
    shortest = replace(LOAD, interval=timedelta(milliseconds=100))

    assert texts(CapacityPlan(shortest, coefficients()))["queue", "LWTs/s"] == "30"
    assert texts(CapacityPlan(replace(LOAD, batch=200), coefficients()))["queue", "LWTs/s"] == "30"
    with pytest.raises(OptionError, match=r"--interval gives .* each 99 ms.* at least 100ms"):
        CapacityPlan(replace(LOAD, interval=timedelta(milliseconds=99)), coefficients()).lines()
    with pytest.raises(OptionError, match=r"--batch gives .* each 0.5 ms.* at least 200"):
        CapacityPlan(replace(LOAD, batch=1), coefficients()).lines()


@pytest.mark.parametrize("order", [Order.NONE, Order.STRICT])
def test_a_queue_that_is_not_in_order_by_key_has_one_partition(order: Order):
    busy = coefficients(read__client__message=2e-3)

    assert CapacityPlan(replace(LOAD, order=order), busy).partitions == 1


def test_the_line_of_partitions_says_why_there_are_so_many():
    why = {}
    for order in Order:
        lines = CapacityPlan(replace(LOAD, order=order), coefficients()).lines()
        why[order] = next(each.follows for each in lines if each.name == "partitions")

    assert "many writers" in why[Order.NONE]
    assert "cores of a group" in why[Order.KEY]
    assert "strict order" in why[Order.STRICT]


def test_in_order_by_key_a_queue_has_a_partition_for_each_core_of_a_group():
    known = coefficients(read__client__message=2e-3)
    by_key = replace(LOAD, order=Order.KEY)

    assert CapacityPlan(by_key, known).partitions == 7  # 4 / 60 %
    assert CapacityPlan(by_key, known).published.lwt == pytest.approx(0.7)


def test_each_task_of_the_writer_makes_a_block_for_each_partition_and_groups_read_these():
    known = coefficients(read__client__message=1e-5, publish__cassandra__block=1.0)
    by_key = replace(LOAD, order=Order.KEY, rate=1e5)

    plan = CapacityPlan(by_key, known)

    # 2,000,000 messages of a micro-batch are 20 tasks; 2 cores / 60 % are 4 partitions.
    assert (plan.tasks, plan.partitions) == (20, 4)
    assert plan.published.block == plan.read.block == pytest.approx(20 * 4 / 10)
    assert plan.publish_cores == pytest.approx(8.0)


def test_in_order_by_key_a_group_has_a_task_for_each_partition_however_many_its_messages_are():
    known = coefficients(read__client__message=1e-5, read__client__task=1.0)
    by_key = replace(LOAD, order=Order.KEY, rate=1e5)

    plan = CapacityPlan(by_key, known)

    # 2 cores, and a core gives 60 % less a task of 1 s each 10 s: 4 partitions, not 20 tasks.
    assert (plan.partitions, plan.reader_tasks, plan.tasks) == (4, 4, 20)
    assert plan.reader_cores == pytest.approx(2 + 4 / 10)
    lines = {each.name: each for each in plan.lines()}
    assert lines["tasks of a micro-batch, each group"].value == 4
    assert "one core for each of 4 partition(s)" in lines["executors, each group"].follows


def test_in_order_by_key_there_are_so_many_partitions_that_their_tasks_keep_up():
    known = coefficients(read__client__message=1e-5, read__client__task=1.0)
    by_key = replace(LOAD, order=Order.KEY, rate=1e5, interval=timedelta(seconds=4))

    plan = CapacityPlan(by_key, known)

    assert plan.partitions == 6  # 2 cores / (60 % - 1 s each 4 s)
    assert plan.reader_cores <= plan.partitions * 0.6


def test_partitions_that_would_share_a_task_have_a_setting_that_keeps_them_apart():
    def tasks(rate: float) -> str:
        known = coefficients(read__client__message=1 / rate)  # 2 cores: 4 partitions
        lines = CapacityPlan(replace(LOAD, order=Order.KEY, rate=rate), known).lines()
        return next(each.follows for each in lines if each.name.endswith("each group"))

    assert "messagesPerTask = 5000" in tasks(1000)
    assert "messagesPerTask" not in tasks(1e5)


@pytest.mark.parametrize("task", [0.5, 6.0])
def test_a_load_in_order_by_key_that_the_most_partitions_cannot_carry_is_refused(task: float):
    known = coefficients(read__client__message=0.08, read__client__task=task)

    with pytest.raises(OptionError, match=r"256 partitions, .* do not keep up .* --interval"):
        CapacityPlan(replace(LOAD, order=Order.KEY), known).lines()


def test_the_messages_of_a_micro_batch_say_how_often_it_comes():
    plan = CapacityPlan(replace(LOAD, batch=500), coefficients())

    assert plan.seconds == 0.25
    assert texts(plan)["load", "between micro-batches"] == "250 ms"


def test_what_is_like_the_trials_is_measured_and_all_else_is_paper():
    bases = {each.name: each.basis for each in CapacityPlan(LOAD, coefficients()).lines()}
    large = {
        each.name: each.basis
        for each in CapacityPlan(replace(LOAD, size=1e6), coefficients()).lines()
    }

    assert bases["cores, publish"] == bases["cores, writer"] == MEASURED
    assert bases["disk"] == bases["nodes"] == PAPER
    assert large["cores, publish"] == PAPER


@pytest.mark.parametrize("replicas", [2, 5])
def test_other_numbers_of_replicas_than_one_and_three_are_paper(replicas: int):
    lines = CapacityPlan(replace(LOAD, replicas=replicas), coefficients()).lines()

    assert {each.basis for each in lines if each.part in {"cassandra", "node"}} == {PAPER}


def test_every_line_says_what_it_follows_from():
    assert all(each.follows and each.text for each in CapacityPlan(LOAD, coefficients()).lines())


def test_a_message_that_is_too_large_is_refused():
    with pytest.raises(
        OptionError, match=r"--size 9 MB is larger than the largest message, 8 MiB"
    ):
        replace(LOAD, size=9e6).check()


def test_a_load_for_which_no_cluster_is_large_enough_is_refused():
    with pytest.raises(OptionError, match="2,000 nodes are not enough"):
        CapacityPlan(LOAD, coefficients(disk__byte=1e6)).lines()


LOADS = st.builds(
    Load,
    rate=st.floats(1, 1e5),
    size=st.floats(50, 1e4),
    groups=st.integers(0, 5),
    keep=st.floats(3600, 1e6).map(lambda seconds: timedelta(seconds=seconds)),
    replicas=st.integers(1, 5),
    interval=st.floats(1, 60).map(lambda seconds: timedelta(seconds=seconds)),
    order=st.sampled_from(Order),
    disk=st.just(1e14),
)


def nodes_of(plan: CapacityPlan) -> float:
    try:
        return plan.nodes
    except OptionError:
        return float("inf")


def needs(load: Load) -> tuple[float, ...]:
    """What a plan asks for; more of it is more."""
    plan = CapacityPlan(load, read_coefficients())
    at = 10
    return (
        plan.cores(at),
        plan.disk(at),
        plan.network(at),
        plan.written(at),
        nodes_of(plan),
        plan.partitions,
        plan.writer_cores,
        plan.reader_cores,
    )


@given(LOADS, st.sampled_from(["rate", "size", "groups", "keep", "replicas"]), st.integers(2, 4))
def test_more_of_a_load_never_needs_less(load: Load, what: str, times: int):
    more = replace(load, **{what: getattr(load, what) * times})

    for less, after in zip(needs(load), needs(more), strict=True):
        assert after >= less * (1 - 1e-9)


def test_the_coefficients_of_the_package_are_those_that_the_model_knows():
    known = read_coefficients()

    assert set(known.values) == set(MEANINGS)
    assert min(known.values.values()) >= 0
    assert Coefficients.of_text(known.text(), "here") == known


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"measured": {}, "values": {"idle.node": "much"}}']
)
def test_another_file_is_no_file_of_coefficients(text: str):
    with pytest.raises(OptionError, match="here is not a file of coefficients"):
        Coefficients.of_text(text, "here")
