from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.console import charts
from cassieq_spark.model import Range, Ranges
from cassieq_spark.queues.stats import Backlog

NONE = Ranges()


def backlog(stop: int, **kinds: str) -> Backlog:
    given = dict.fromkeys(("leased", "due", "waiting", "dead", "fresh"), NONE)
    given |= {name: Ranges.parse(text) for name, text in kinds.items()}
    return Backlog(**given, stop=stop)


def kinds_of(strip: charts.Strip) -> set[str]:
    return {piece.kind for piece in strip.pieces}


def test_a_small_line_has_a_run_for_each_part_that_is_known():
    drawn = charts.spark([0.0, 2.0, None, 1.0], width=30, height=10)

    assert drawn.lines == ("0,10 10,0", "30,5 31,5")
    assert drawn.areas[0] == "0,10 0,10 10,0 10,10"


def test_nothing_is_drawn_of_nothing():
    assert charts.spark([None, None], width=30, height=10).lines == ()
    drawn = charts.plot({}, [0.0, 60.0], width=100, height=50)
    assert drawn.lines == {}
    assert drawn.up[0].text == "0.0"


def test_axes_have_round_figures():
    edges = [float(at) for at in range(0, 901, 10)]
    drawn = charts.plot({"in": [3700.0] * 90}, edges, width=100, height=50, read_from=450.0)

    assert [tick.text for tick in drawn.up] == ["0", "1k", "2k", "3k", "4k"]
    assert [tick.text for tick in drawn.across] == ["00:00", "00:05", "00:10", "00:15"]
    assert drawn.read_from == 50.0


def test_one_message_of_a_million_can_be_seen():
    drawn = charts.strip(
        backlog(1_000_000, dead="500000-500001", fresh="900000-1000000"),
        stored_from=0,
        floor=500_000,
        pointer=900_000,
    )

    dead = [piece for piece in drawn.pieces if piece.kind == "dead"]
    assert kinds_of(drawn) == {"settled", "dead", "fresh"}
    assert all(piece.height >= 4 and piece.width >= 3 for piece in dead)
    assert [tick.text for tick in drawn.ticks] == ["500,000", "900,000"]


def test_a_queue_of_which_all_is_settled_and_deleted_has_no_strip():
    assert charts.strip(backlog(7), stored_from=7, floor=7, pointer=7).pieces == ()


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[Backlog, int, int, int]:
    sizes = [draw(st.integers(0, 500)) for _ in range(3)]
    stored_from = draw(st.integers(0, 50))
    floor, pointer = stored_from + sizes[0], stored_from + sizes[0] + sizes[1]
    stop = pointer + sizes[2]
    given: dict[str, list[Range]] = {"leased": [], "due": [], "waiting": [], "dead": []}
    for monoton in range(floor, pointer):
        kind = draw(st.sampled_from(["leased", "due", "waiting", "dead", "settled"]))
        if kind in given:
            given[kind].append(Range(monoton, monoton + 1))
    ranges = {kind: Ranges.of(*parts) for kind, parts in given.items()}
    return (
        Backlog(**ranges, fresh=Ranges.of(Range(pointer, stop)), stop=stop),
        stored_from,
        floor,
        pointer,
    )


@given(backlogs())
def test_a_strip_shows_all_that_there_is_and_no_more(
    case: tuple[Backlog, int, int, int],
):
    where, stored_from, floor, pointer = case
    drawn = charts.strip(where, stored_from=stored_from, floor=floor, pointer=pointer)

    kinds = {
        kind for kind in ("leased", "due", "waiting", "dead", "fresh") if getattr(where, kind)
    }
    area = sum(piece.width * piece.height for piece in drawn.pieces)
    assert kinds_of(drawn) - {"settled"} == kinds
    full = 1000 * charts.STRIP_HEIGHT if where.stop > stored_from else 0
    assert abs(area - full) < 30
    for piece in drawn.pieces:
        assert -0.01 <= piece.x <= piece.x + piece.width <= 1000.01
        assert -0.1 <= piece.y <= piece.y + piece.height <= charts.STRIP_HEIGHT + 0.1
