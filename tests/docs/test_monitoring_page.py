"""docs/monitoring.md and the files in conf name what there is, all of it, and nothing else."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.monitoring.metrics import EXPORTED, OF_QUERIES, Family
from cassieq_spark.repair.steps import Step

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
ALERTS = json.loads((ROOT / "conf" / "prometheus-alerts.yml").read_text())
DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text())
FAMILIES = {family.name: family for family in (*EXPORTED, *OF_QUERIES)}
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [each["expr"] for each in (*RULES, *TARGETS)]
#: A constant that names an action, as in ``LEASE_LOST = "lease.lost"``.
ACTION = re.compile(r"[a-z]+\.[a-z_]+")


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the table that begins with these columns."""
    (table,) = re.findall(rf"{re.escape(heading)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def metric_rows() -> list[list[str]]:
    tables = re.findall(r"\| metric \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_metric_is_documented_as_it_is_declared():
    declared = [
        [f"`{each.name}`", each.kind, ", ".join(each.labels) or "-", each.text]
        for each in FAMILIES.values()
    ]

    assert metric_rows() == declared


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_names_follow_the_conventions_of_prometheus(family: Family):
    assert re.fullmatch(r"cassieq_[a-z]+(_[a-z]+)*", family.name)
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert family.text.endswith(".")


def test_every_metric_has_one_name():
    assert len(FAMILIES) == len(EXPORTED) + len(OF_QUERIES)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_panels_use_metrics_and_labels_that_there_are(expression: str):
    used = re.findall(r"\b(cassieq_\w+)(?:\{([^}]*)\})?", expression)

    assert used
    for name, matchers in used:
        labels = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers)
        assert set(labels) <= set(FAMILIES[name].labels), name
    assert expression.count("(") == expression.count(")")


def test_counters_are_only_used_as_rates_and_gauges_never():
    for expression in EXPRESSIONS:
        for function, name in re.findall(
            r"\b(rate|increase|delta|deriv)\((cassieq_\w+)", expression
        ):
            is_counter = FAMILIES[name].kind == "counter"
            assert is_counter == (function in {"rate", "increase"}), expression


def test_variables_of_the_dashboard_are_labels_of_metrics():
    asked = [each["query"]["query"] for each in DASHBOARD["templating"]["list"][1:]]

    found = [re.fullmatch(r"label_values\((\w+).*, (\w+)\)", query) for query in asked]

    assert [match[2] for match in found if match] == ["queue", "group"]
    assert all(match[2] in FAMILIES[match[1]].labels for match in found if match)


def test_panels_neither_overlap_nor_share_a_number():
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & places
        assert at["x"] + at["w"] <= 24
        places |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_alert_is_documented_and_says_what_to_do():
    assert [row[0].strip("`") for row in rows_below("| alert | when | what to do |")] == [
        rule["alert"] for rule in RULES
    ]
    for rule in RULES:
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert all(rule["annotations"][key] for key in ("summary", "description"))


def test_a_group_all_of_whose_messages_wait_for_their_time_does_not_count_as_stuck():
    (stuck,) = [rule["expr"] for rule in RULES if rule["alert"] == "CassieqGroupNotMoving"]

    assert stuck.endswith(" unless cassieq_group_depth_messages == cassieq_group_waiting_messages")


def test_labels_in_the_texts_of_an_alert_are_those_of_its_metric():
    for rule in RULES:
        (name, *_) = re.findall(r"cassieq_\w+", rule["expr"])
        used = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
        assert set(used) <= set(FAMILIES[name].labels), rule["alert"]


def test_constants_in_the_rules_are_those_of_the_code():
    text = json.dumps(ALERTS)

    assert set(re.findall(r'group!=\\"([^"\\]+)', text)) == {ADMIN_GROUP}
    assert set(re.findall(r'step=\\"([^"\\]+)', text)) == {Step.FINALISE, Step.AUDIT}


def actions_of(module: ast.Module) -> Iterator[str]:
    """The actions that a module defines: of loggers only, as other texts look alike."""
    if "getLogger" not in ast.dump(module):
        return
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str) and ACTION.fullmatch(value):
                yield value


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "cassieq_spark").rglob("*.py")):
        yield path, ast.parse(path.read_text())


def test_every_action_of_a_log_record_is_documented():
    found = {action for _, module in sources() for action in actions_of(module)}

    documented = [row[0].strip("`") for row in rows_below("| action | level | when |")]

    assert documented == sorted(found)


def records_of(module: ast.Module) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """The log records of a module, each with its ``extra``, also if that is a variable."""
    assigned: list[ast.Assign] = []
    for node in _in_order(module):
        if isinstance(node, ast.Assign):
            assigned.append(node)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if getattr(node.func.value, "id", "") != "logger" or node.func.attr == "isEnabledFor":
            continue
        extra = next((word.value for word in node.keywords if word.arg == "extra"), None)
        if isinstance(extra, ast.Name):
            name = extra.id
            given = [each for each in assigned if getattr(each.targets[0], "id", "") == name]
            extra = given[-1].value if given else None
        yield node, extra


def _in_order(module: ast.Module) -> list[ast.AST]:
    nodes = [each for each in ast.walk(module) if hasattr(each, "lineno")]
    return sorted(nodes, key=lambda each: (each.lineno, each.col_offset))


def action_of(extra: ast.expr | None) -> ast.expr | None:
    """What ``extra`` has as its action: an item of a dict, or the first argument of `_extra`."""
    if isinstance(extra, ast.Dict):
        keys = [getattr(key, "value", None) for key in extra.keys]
        return extra.values[keys.index("action")] if "action" in keys else None
    if isinstance(extra, ast.Call) and getattr(extra.func, "id", "") == "_extra":
        return extra.args[0]
    return None


def test_every_log_record_has_an_action_that_is_a_constant():
    for path, module in sources():
        for call, extra in records_of(module):
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            assert isinstance(action_of(extra), ast.Name), where


def test_the_program_of_the_page_is_python():
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        ast.parse(block)
