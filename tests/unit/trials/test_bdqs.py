"""The BDQS experiments in small, in memory: their faults strike, and their figures are right."""

from __future__ import annotations

import json
import sys
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import CassieqError, NotAppliedError, OutcomeUnknownError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from trials.bdqs.__main__ import Environment, main, run_cell, run_experiment
from trials.bdqs.cells import PROFILES, SMALL, Cell, Experiment
from trials.bdqs.clients import Crew
from trials.bdqs.journal import Arrival, Call, Journal, Received, body_of, figures_of, parse_body
from trials.bdqs.nodes import Outage, Wrecker, commanded_nodes, events, seconds_without
from trials.bdqs.report import LINES, PAGE, fill, of_experiment, read_lines
from trials.stores import LossyStore

SOON = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=200)
TINY = Cell(queues=2, senders=2, messages=8, body_bytes=20)


def environment_on(store: Store) -> Environment:
    return Environment(store=store, crew=Crew(store), nodes=None, about={})


def run(cell: Cell, store: Store | None = None) -> dict[str, object]:
    return run_cell(environment_on(store or MemoryStore()), cell, seed=7, repair=SOON)


def fast_store(times: int) -> Store:
    """A store whose clock runs so many times as fast."""
    began = datetime.now(UTC)
    return MemoryStore(lambda: began + times * (datetime.now(UTC) - began))


@pytest.mark.parametrize(
    "cell",
    [
        TINY,
        replace(TINY, batch=5, receivers=6),
        replace(TINY, gathered=True, batch=100),
        replace(TINY, named=True),
    ],
    ids=["one by one", "by fives", "gathered", "named"],
)
def test_without_trouble_each_message_arrives_once(cell: Cell):
    figures = run(cell)

    assert figures["sent"] == cell.count
    assert (figures["loss"], figures["duplication"]) == (0, 0)
    assert min(figures["send_per_s"], figures["receive_per_s"]) > 0
    assert (figures["repeated_calls"], figures["deaths"]) == ({}, 0)


def test_one_sender_and_one_receiver_keep_the_order():
    figures = run(replace(TINY, senders=1, receivers=1))

    assert (figures["out_of_order"], figures["displacement"]) == (0, 0)


def test_whatever_request_or_answer_is_lost_no_message_is():
    # Messages whose read is lost wait for a minute.
    cell = replace(TINY, named=True, lost=0.1, lease=60 * MOMENT)

    figures = run(cell, fast_store(60))

    assert (figures["sent"], figures["loss"]) == (TINY.count, 0)
    assert set(figures["repeated_calls"]) <= {"NotAppliedError", "OutcomeUnknownError"}
    assert sum(figures["repeated_calls"].values()) > 5


def test_receivers_that_die_are_replaced_and_what_they_had_arrives_again():
    figures = run(replace(TINY, messages=20, killed=0.5, lease=MOMENT))

    assert figures["deaths"] > 10
    assert figures["duplication"] > 0
    assert figures["loss"] == 0


def test_a_sender_that_cannot_send_voids_the_cell():
    with pytest.raises(CassieqError, match="the limit is"):
        run(replace(TINY, body_bytes=9 << 20))


def test_lost_requests_and_answers_are_as_likely_as_asked_for():
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q")
    lossy = Client.from_store(LossyStore(store, Random(3), 0.5))
    seen = set()

    for _ in range(60):
        try:
            lossy.put("q", "v")
        except (NotAppliedError, OutcomeUnknownError) as error:
            seen.add(type(error))

    assert seen == {NotAppliedError, OutcomeUnknownError}
    # All four requests of a put have to get through, or its last answer only to be lost.
    assert 0 < client.stats("q").next < 30


def test_a_body_that_was_changed_anywhere_is_damaged():
    body = body_of(70_000, b"content")

    assert parse_body(body) == Received(70_000, intact=True)
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        assert not parse_body(changed).intact
    assert not parse_body(b"").intact or parse_body(b"") != Received(70_000)


def test_the_figures_are_of_each_queue_and_then_their_mean():
    one = Journal(
        sent=[0, 1],
        puts=[Call(0.0, 1.0), Call(1.0, 4.0)],
        receives=[Call(10.0, 10.5), Call(11.0, 12.5)],
        acks=[Call(10.5, 10.6), Call(12.5, 14.0)],
        arrivals=[Arrival(12.5, 1, Received(0)), Arrival(10.5, 0, Received(1))],
    )
    other = Journal(sent=[0, 1], arrivals=[Arrival(1.0, 0, Received(0, intact=False))])

    figures = figures_of([one, other])

    assert figures["send_per_s"] == 0.5
    assert figures["receive_per_s"] == 0.5
    assert (figures["send_ms"], figures["send_p95_ms"]) == (2000, 3000)
    assert figures["loss"] == 0.5
    # Sent as 0, 1 and published as 1, 0: received as it was published.
    assert (figures["out_of_order"], figures["out_of_order_published"]) == (0.25, 0)
    assert (figures["displacement"], figures["displacement_published"]) == (0.5, 0)


def test_nodes_fail_by_themselves_after_times_of_the_given_mean():
    every = list(islice(events(3, timedelta(seconds=50), SOON, Random(1)), 3000))

    assert all(a.at <= b.at for a, b in pairwise(every))
    for node in range(3):
        mine = [event for event in every if event.node == node]
        assert all(a.fails != b.fails for a, b in pairwise(mine))
        ups = [b.at - a.at for a, b in pairwise(mine) if b.fails]
        downs = [b.at - a.at for a, b in pairwise(mine) if a.fails]
        assert 42 < sum(ups) / len(ups) < 58
        assert {round(down, 6) for down in downs} == {1.0}


def test_time_without_a_quorum_is_when_two_of_three_are_down():
    outages = [Outage(0, 0, 10), Outage(1, 8, 12), Outage(2, 9, 11), Outage(0, 20, 30)]

    assert seconds_without(outages, 2) == 3
    assert seconds_without([], 2) == 0


def test_commands_are_run_for_the_host_of_a_node(tmp_path: Path):
    log = tmp_path / "log"
    program = f"import sys; open({str(log)!r}, 'a').write(sys.argv[1] + ' ')"
    nodes = commanded_nodes(
        ("one", "two"),
        fail=f'{sys.executable} -c "{program}" fail:{{host}}',
        repair=f'{sys.executable} -c "{program}" repair:{{host}}',
    )

    nodes.fail(1)
    nodes.repair(0)

    assert log.read_text().split() == ["fail:two", "repair:one"]


class Machines:
    """Three of them; tells when all are down."""

    count = 3

    def __init__(self) -> None:
        self.running = {0, 1, 2}
        self.all_down = threading.Event()

    def fail(self, node: int) -> None:
        self.running.remove(node)
        if not self.running:
            self.all_down.set()

    def repair(self, node: int) -> None:
        self.running.add(node)


def test_nodes_that_are_down_in_the_end_are_started_again():
    machines = Machines()

    with Wrecker(machines, timedelta(milliseconds=1), timedelta(hours=1), Random(1)) as wrecker:
        assert machines.all_down.wait(30)

    assert machines.running == {0, 1, 2}
    assert wrecker.figures()["outages"] == 3
    assert wrecker.figures()["without_quorum_s"] > 0


def test_a_command_that_fails_is_not_passed_over():
    nodes = commanded_nodes(("one",), fail="false {host}", repair="true {host}")

    with (
        pytest.raises(Exception, match="non-zero exit status"),
        Wrecker(nodes, timedelta(milliseconds=1), SOON, Random(1)) as wrecker,
    ):
        wrecker._thread.join()


@pytest.mark.parametrize("profile", PROFILES)
def test_each_experiment_changes_what_it_is_about_and_has_something_to_compare_with(profile: str):
    cells = PROFILES[profile].cells

    assert set(cells) == set(Experiment)
    assert {cell.lost for cell in cells[Experiment.NETWORK]} == {0, 1e-4, 1e-3, 1e-2, 1e-1}
    assert {cell.killed for cell in cells[Experiment.CLIENT]} == {0, 1e-4, 1e-3, 1e-2, 1e-1}
    assert None in {cell.mttf for cell in cells[Experiment.SERVER]}
    for every in cells.values():
        assert len(set(every)) == len(every) > 2


def test_a_run_is_a_line_for_each_cell_that_the_report_understands(capsys):
    cells = {
        Experiment.NETWORK: (
            replace(TINY, lost=0.0),
            replace(TINY, lost=0.01, named=True, lease=MOMENT),
        )
    }
    profile = replace(SMALL, cells=cells, warm_up=TINY)
    about = {"profile": "small", "nodes": 1, "replicas": 1, "consistency": "LOCAL_QUORUM"}
    about |= {"processes": 1, "cores": 2, "day": "2026-11-20"}
    environment = replace(environment_on(MemoryStore()), about=about)

    lines = [
        json.loads(json.dumps(line))
        for line in run_experiment(environment, Experiment.NETWORK, profile, seed=1)
    ]

    assert [line["cell"]["lost"] for line in lines] == [0.0, 0.01]
    page = fill("before <!-- bdqs: network -->old<!-- end --> after", lines)
    assert page.startswith(
        "before <!-- bdqs: network -->\n\n"
        "![Rates and consistency against the chance of losing a request]"
        "(figures/bdqs-network.svg)\n\n| p | calls repeated |"
    )
    assert "old" not in page
    assert page.endswith("2026-11-20.\n\n<!-- end --> after")
    assert capsys.readouterr().err.count("network:") == 3


def line_of(cell: Cell, rate: float) -> dict[str, object]:
    figures = figures_of([Journal()]) | {"send_per_s": rate}
    about = {"profile": "small", "nodes": 1, "replicas": 1, "consistency": "LOCAL_QUORUM"}
    about |= {"processes": 1, "cores": 2, "day": "2026-11-20", "seed": 1, "seconds": 1.0}
    return {"experiment": "throughput", "cell": cell.to_json(), "figures": figures, **about}


def test_repetitions_are_told_as_their_mean():
    lines = [line_of(replace(TINY, repetition=n), rate) for n, rate in enumerate((1.0, 3.0))]
    lines.append(line_of(replace(TINY, queues=9), 7.0))

    told = of_experiment(lines, Experiment.THROUGHPUT)

    assert [line["figures"]["send_per_s"] for line in told] == [2, 7]
    assert [line["cell"]["queues"] for line in told] == [TINY.queues, 9]


def test_a_page_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="bdqs: throughput"):
        fill("no marks", [line_of(TINY, 1.0)])


def test_the_page_has_the_figures_of_its_lines_and_nothing_was_lost():
    lines, page = read_lines(LINES), PAGE.read_text(encoding="utf-8")

    assert fill(page, lines) == page
    assert not any(line["figures"]["loss"] for line in lines)
    for experiment in {line["experiment"] for line in lines}:
        assert ET.parse(PAGE.parent / "figures" / f"bdqs-{experiment}.svg").getroot()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--profile", "paper"], "give --contact-points"),
        (["--fail", "kill {host}"], "go together"),
        (["--fail", "a", "--repair", "b"], "with --contact-points"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main(["run", *arguments])

    assert expected in capsys.readouterr().err
