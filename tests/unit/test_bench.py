from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial

import pytest

from benchmarks.bench import names
from benchmarks.bench.cases import FULL, QUICK, titles
from benchmarks.bench.contest import Budget, Contest, Figure, find, hold
from benchmarks.bench.goals import Goal, earlier_goals, goals, judge
from benchmarks.bench.pages import PAGES, TABLES, missing_in, renewed
from benchmarks.bench.payloads import FLIGHTS, RANDOM
from benchmarks.bench.progress import BATCH_MS, TO_TASKS
from benchmarks.bench.report import (
    bars_of,
    figures_table,
    from_json,
    goals_table,
    parts_table,
    processor_table,
    summarise,
    to_json,
)
from benchmarks.bench.systems import APPEND, CASSIEQ, KAFKA, KAFKA_LZ4, KAFKA_TUNED, KAFKA_ZSTD


def figure(system: str, *values: float, case: str = "write", measure: str = names.RATE) -> Figure:
    return Figure(case, RANDOM, system, measure, values)


def test_trials_with_an_order_of_their_own_keep_it_in_every_round():
    order: list[str] = []
    trials = {name: partial(_call, order, name) for name in "cab"}

    hold(
        Contest("rest", "", trials, is_shuffled=False),
        rounds=9,
        chance=random.Random(1),
        settle=lambda: None,
    )

    assert "".join(order) == "cab" * 9


def _call(order: list[str], name: str) -> dict[str, float]:
    order.append(name)
    return {"ms": 1.0}


def test_all_systems_take_turns_in_every_round():
    order: list[str] = []

    def trial(name: str):
        return lambda: (order.append(name), {"ms": len(order)})[1]

    contest = Contest("write", RANDOM, {name: trial(name) for name in "abc"})
    settled = Counter[str]()
    found = hold(
        contest, rounds=4, chance=random.Random(1), settle=lambda: settled.update(["settled"])
    )

    rounds = [order[start : start + 3] for start in range(0, 12, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1, "not always in the same order"
    assert settled.total() == len(order)
    assert {each.system: len(each.values) for each in found} == {"a": 4, "b": 4, "c": 4}


def test_a_budget_gives_each_contest_its_share_and_what_others_leave():
    now = 0.0
    budget = Budget(100, 3, clock=lambda: now)
    rounds = []
    for seconds in (10, 1, 50):
        is_over, held = budget.next(), 0
        while held < 8:
            now += seconds
            held += 1
            if is_over():
                break
        rounds.append(held)

    assert rounds == [3, 8, 1]


def test_a_budget_may_be_a_part_of_the_time():
    now = 0.0
    is_over = Budget(100, 1, part=0.3, clock=lambda: now).next()
    rounds = 0
    while True:
        now += 10
        rounds += 1
        if is_over():
            break

    assert rounds == 3


def test_without_a_budget_no_contest_is_cut_short():
    is_over = Budget(None, 1, clock=lambda: 0.0).next()

    assert [is_over() for _ in range(9)] == [False] * 9


def test_a_goal_may_be_a_difference():
    goal = Goal("start", "", (KAFKA,), 0.25, names.SECONDS, at_most=True, difference=True)
    measured = [
        Figure("start", "", CASSIEQ, names.SECONDS, (1.0, 1.3)),
        Figure("start", "", KAFKA, names.SECONDS, (0.9, 1.0)),
    ]

    judged = judge(goal, measured)

    assert judged is not None
    assert round(judged.ratio, 6) == 0.2
    assert goals_table([judged]).endswith("| at most 0.25 | 0.20 (0.10 to 0.30) | reached |")


def test_a_goal_of_nothing_at_all_is_shown():
    goal = Goal("idle", "", (), 0, names.IDLE_LWTS, at_most=True)
    judged = judge(goal, [Figure("idle", "", CASSIEQ, names.IDLE_LWTS, (0.0,))])

    assert judged is not None
    assert goals_table([judged]).endswith("| at most 0 | 0.00 | reached |")


def test_a_ratio_compares_what_was_done_in_the_same_round():
    ours, theirs = figure(CASSIEQ, 10, 200, 30), figure(KAFKA, 5, 100, 15)

    assert ours.ratio_to(theirs) == 2.0
    with pytest.raises(ValueError, match="shorter"):
        ours.ratio_to(figure(KAFKA, 5))


def test_a_goal_is_judged_against_the_best_of_its_peers():
    goal = Goal("write", RANDOM, (KAFKA, KAFKA_LZ4, KAFKA_ZSTD), 2.0)
    measured = [figure(CASSIEQ, 100), figure(KAFKA, 40), figure(KAFKA_LZ4, 80)]

    judged = judge(goal, measured)

    assert judged is not None
    assert (judged.peer, judged.ratio, judged.reached) == (KAFKA_LZ4, 1.25, False)
    assert judged.missing == pytest.approx(60)


def test_a_goal_for_a_time_is_reached_from_below():
    goal = Goal("write", RANDOM, (KAFKA,), 1.2, names.MS, at_most=True)
    peer = figure(KAFKA, 100, measure=names.MS)

    reached = judge(goal, [figure(CASSIEQ, 119, measure=names.MS), peer])
    missed = judge(goal, [figure(CASSIEQ, 150, measure=names.MS), peer])

    assert reached is not None
    assert reached.reached
    assert missed is not None
    assert not missed.reached
    assert "missing 20 %" in goals_table([missed])


def test_a_goal_without_peers_is_about_the_figure_itself():
    goal = Goal("write", RANDOM, (), 5, names.IDLE_READS, at_most=True)

    judged = judge(goal, [figure(CASSIEQ, 4, measure=names.IDLE_READS)])

    assert judged is not None
    assert (judged.ratio, judged.reached) == (4, True)
    assert "| write, 1 KB random, reads a second | at most 5 | 4.00 | reached |" in goals_table(
        [judged]
    )


def test_a_goal_about_what_was_not_measured_is_not_judged():
    goal = Goal("write", RANDOM, (KAFKA,), 2.0)

    assert judge(goal, [figure(CASSIEQ, 100)]) is None
    assert judge(goal, [figure(KAFKA, 100)]) is None


def test_every_goal_is_about_a_case_and_systems_that_take_part_in_it():
    systems = {
        CASSIEQ,
        KAFKA,
        KAFKA_TUNED,
        KAFKA_LZ4,
        KAFKA_ZSTD,
        names.ROWS,
        names.JSON,
        names.AVRO,
    }
    wanted = [*goals(), *earlier_goals()]
    assert {peer for goal in wanted for peer in goal.peers} <= systems
    assert {(goal.of, goal.payload) for goal in wanted} <= set(titles(FULL))
    assert len(wanted) == len(set(wanted))


def test_every_contest_has_a_short_name_of_its_own():
    found = [names.name_of(each) for each in titles(FULL)]

    assert len(found) == len(set(found)) == len(titles(FULL))
    assert set(titles(QUICK)) < set(titles(FULL))


def test_contests_are_selected_by_name_or_by_the_name_of_the_case():
    one = names.select(["typed-read-100k:flights", "rest"], titles(FULL))
    several = names.select(["read-20k"], titles(FULL))

    assert one == [(names.REST, ""), (names.TYPED_READ_100K, FLIGHTS)], "in the order of the run"
    assert several == [(names.READ_20K, RANDOM), (names.READ_20K, FLIGHTS)]
    assert names.select([], titles(FULL)) == titles(FULL)


def test_the_name_of_no_contest_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="no case is named 'read-10k'; near: read-100k"):
        names.select(["rest", "read-10k"], titles(FULL))
    with pytest.raises(ValueError, match="read-100k:orders"):
        names.select(["read-100k:orders"], titles(QUICK))


def test_the_parts_of_a_stream_are_shown_beside_the_fastest_of_the_tuned_ones():
    measured = [
        figure(system, value * times, case=names.READ_ALL, measure=measure)
        for system, times in ((CASSIEQ, 2.0), (KAFKA, 0.5), (KAFKA_TUNED, 1.0), (KAFKA_LZ4, 4.0))
        for measure, value in ((TO_TASKS, 0.4), (BATCH_MS, 50), (names.STEADY, 100_000))
    ]

    (row,) = parts_table(measured).splitlines()[2:]

    assert row == (
        f"| {names.READ_ALL}, {RANDOM} | {KAFKA_LZ4} "
        "| 0.8 | 1.6 | 0.50 | 100 | 200 | 0.50 | 200 k | 400 k | 0.50 |"
    )


def test_the_parts_of_a_stream_of_rows_are_shown_beside_each_way_to_keep_rows():
    measured = [
        figure(system, value, case=names.TYPED_READ_ALL, measure=measure)
        for system in (CASSIEQ, names.JSON, names.AVRO)
        for measure, value in ((TO_TASKS, 0.4), (BATCH_MS, 50), (names.ROW_STEADY, 100_000))
    ]
    lines = parts_table([*measured, figure(CASSIEQ, 1)]).splitlines()[2:]

    assert [line.split(" | ")[1] for line in lines] == [names.AVRO, names.JSON]


def test_the_table_says_how_many_times_each_system_the_queue_is():
    measured = [figure(CASSIEQ, 300_000), figure(KAFKA, 150_000)]

    assert figures_table(measured).splitlines()[2:] == [
        "| write | 1 KB random | cassieq-spark | 300 k messages/s | 300 k to 300 k |  |",
        "| write | 1 KB random | Kafka | 150 k messages/s | 150 k to 150 k | 2.00 times that |",
    ]


def test_the_ratio_of_several_rounds_has_its_spread():
    measured = [figure(CASSIEQ, 300, 200, 280), figure(KAFKA, 200, 100, 100)]

    assert figures_table(measured).endswith("| 2.00 (1.50 to 2.80) times that |")


def test_processor_time_is_shown_by_process_beside_the_peer_that_needs_least():
    measured = [
        figure(system, total, measure=measure)
        for system, server, total in (
            (CASSIEQ, "Cassandra", 6),
            (KAFKA, "Kafka", 5),
            (KAFKA_TUNED, "Kafka", 3),
        )
        for measure, total in (
            (names.CPU, total),
            *((f"{names.CPU}, {each}", total / 3) for each in ("Spark", "Python", server)),
        )
    ]

    (row,) = processor_table(measured).splitlines()[2:]

    assert row == (
        f"| write, 1 KB random | {names.CPU} | 6.00 | 2.00 | 2.00 | 2.00 "
        "| 3.00 (Kafka tuned) | 1.00 | 1.00 | 1.00 |"
    )
    assert len(figures_table(measured).splitlines()) == 2 + 3


def test_the_picture_has_a_bar_for_each_system_of_each_payload_the_queue_first():
    measured = [
        Figure(case, payload, system, names.RATE, (value,))
        for case in (names.WRITE_100K, names.READ_ALL)
        for payload in (RANDOM, FLIGHTS)
        for system, value in ((CASSIEQ, 3e5), (KAFKA, 1e5), (names.LIMIT, 9e5))
    ]

    for case in (names.WRITE_100K, names.READ_ALL):
        bars = {
            name: [bar.system for bar in found] for name, found in bars_of(measured, case).items()
        }
        assert bars == {RANDOM: [CASSIEQ, KAFKA], FLIGHTS: [CASSIEQ, KAFKA]}


def test_figures_are_found_by_system():
    measured = [figure(CASSIEQ, 1), figure(KAFKA, 2), figure(KAFKA, 3, case="read")]

    found = find(measured, case="write", payload=RANDOM, measure=names.RATE)

    assert {name: each.median for name, each in found.items()} == {CASSIEQ: 1, KAFKA: 2}


def test_the_summary_names_the_best_of_the_tuned_ones_and_leaves_out_what_was_not_measured():
    measured = [
        figure(CASSIEQ, 190_000, case=names.READ_ALL),
        figure(KAFKA_TUNED, 500_000, case=names.READ_ALL),
        figure(KAFKA_LZ4, 600_000, case=names.READ_ALL),
        figure(APPEND, 147_000, case=names.BATCH_WRITE),
        Figure(names.LATENCY, "", CASSIEQ, names.MS, (73.0,)),
    ]

    lines = summarise(measured).splitlines()

    assert f"| {names.READ_ALL}, {RANDOM} | 190 k |  | 600 k (lz4) |  |" in lines
    assert f"| {names.LATENCY} | 73 |  |  |" in lines
    assert f"{names.BATCH_WRITE}, {RANDOM}, with {APPEND}: 147 k." in lines
    assert not [line for line in lines if names.SMALL_READ in line]


def test_each_table_of_the_docs_is_renewed_from_a_whole_run():
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    marked = sorted(re.findall(r"<!-- bench: (\w+) -->", "".join(pages)))
    systems = (CASSIEQ, KAFKA, KAFKA_TUNED, KAFKA_LZ4, names.AVRO, names.JSON)
    measures = (
        *(names.RATE, names.INSIDE, names.STEADY, names.MS, names.CPU, names.CPU_BATCH),
        *(names.ROW_RATE, names.ROW_STEADY, names.ROW_CPU, names.STORED, TO_TASKS, BATCH_MS),
    )
    measured = [
        Figure(case, payload, system, measure, (8_765_432, 8_765_432))
        for case, payload in titles(FULL)
        for system in systems
        for measure in measures
    ]

    assert marked == sorted(TABLES)
    assert missing_in(measured) == []
    assert missing_in([each for each in measured if each.payload != FLIGHTS])[0] == "write:flights"
    for page in pages:
        new = renewed(page, [from_json(to_json(each)) for each in measured])
        for block in re.findall(r"(?s)<!-- bench: \w+ -->\n(.*?)\n<!-- end -->", new):
            assert re.search(r"8765 k|8765432.00|1\.0", block)
