from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.changes import (
    Change,
    ChangeError,
    always,
    changed,
    compare,
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    drop_term,
    insert,
    negate,
    never,
    rename,
    replace,
    replace_call,
    set_argument,
    unwrap,
    value,
)

#: The name of the change, the change, a body before and after it.
CASES = {
    "always": (always("ready"), "if task.ready: go()", "if True: go()"),
    "always, of a comprehension": (
        always("ready"),
        "return [it for it in tasks if it.ready]",
        "return [it for it in tasks if True]",
    ),
    "never": (never("ready"), "while task.ready: go()", "while False: go()"),
    "never, of an expression": (
        never("LIMIT"),
        "return 1 if n > LIMIT else 2",
        "return 1 if False else 2",
    ),
    "negate": (negate("ready"), "if task.ready: go()", "if not task.ready: go()"),
    "drop_condition": (
        drop_condition("due"),
        "return a and it.due < now and b",
        "return a and b",
    ),
    "drop_condition, of two": (drop_condition("due"), "return a or it.due", "return a"),
    "drop_condition, the innermost": (
        drop_condition("due"),
        "return a and (b or it.due)",
        "return a and b",
    ),
    "compare": (compare("<", "<="), "return a < b", "return a <= b"),
    "compare, of a name": (
        compare("<", "<=", of="due"),
        "return (a < b) + (it.due < now)",
        "return (a < b) + (it.due <= now)",
    ),
    "drop_term": (drop_term("LIMIT"), "return n - LIMIT", "return n"),
    "drop_term, the innermost": (drop_term("LIMIT"), "return n + 2 * LIMIT", "return n + 2"),
    "drop_element, of a tuple": (
        drop_element("next"),
        "return (When('next', n), When('fence', f))",
        "return (When('fence', f),)",
    ),
    "drop_element, of a dict": (
        drop_element("status"),
        "return {'a': 1, 'status': OPEN, **more}",
        "return {'a': 1, **more}",
    ),
    "replace": (replace("OPEN", "CLOSED"), "return OPEN", "return CLOSED"),
    "replace, with what was there": (
        replace("it.stop", "_ + 1"),
        "return it.stop * 2",
        "return (it.stop + 1) * 2",
    ),
    "rename, an attribute": (rename("stop", "start"), "return it.stop", "return it.start"),
    "rename, a function": (rename("min", "max"), "return min(a, b)", "return max(a, b)"),
    "value, returned": (value("True", of="due"), "return it.due < now", "return True"),
    "value, assigned": (value("[]", of="due"), "rows = it.due", "rows = []"),
    "replace_call": (
        replace_call("read", "None"),
        "x = store.read(key).rows",
        "x = None.rows",
    ),
    "unwrap": (unwrap("max"), "return max(a, b)", "return a"),
    "unwrap, the second": (unwrap("setdefault", 1), "return it.setdefault(k, v)", "return v"),
    "drop_argument, a keyword": (
        drop_argument("read", "serial"),
        "read(key, serial=True)",
        "read(key)",
    ),
    "drop_argument, by its place": (drop_argument("read", 1), "read(key, still)", "read(key)"),
    "drop_argument, by what it mentions": (
        drop_argument("read", "RAN_OUT"),
        "read(key, RAN_OUT)",
        "read(key)",
    ),
    "set_argument, a keyword": (
        set_argument("read", "serial", "False"),
        "read(key, serial=True)",
        "read(key, serial=False)",
    ),
    "set_argument, by its place": (
        set_argument("read", 0, "_ + 1"),
        "read(key, still)",
        "read(key + 1, still)",
    ),
    "drop_statement": (drop_statement("delete"), "store.delete(key)\nreturn 1", "pass\nreturn 1"),
    "drop_statement, a loop": (
        drop_statement("tasks"),
        "for it in self.tasks: go()",
        "pass",
    ),
    "insert, before a condition": (
        insert("go()", before="ready"),
        "if it.ready: copy()",
        "go()\nif it.ready: copy()",
    ),
    "insert": (
        insert("go()", before="copy"),
        "copy()",
        "go()\ncopy()",
    ),
}
#: What the bodies use, so that it is known.
_FREE = "a, b, n, f, k, v, it, key, now, self, more, task, tasks, still, store"
MODULE = dedent("""
    from x import CLOSED, LIMIT, OPEN, RAN_OUT, When, copy, go, read

    FIRST = 1

    class Slot:
        def held(self):
            return self.due

        class Kind:
            name = "slot"

    def outer(now):
        def inner():
            return now < 1
        return inner
    """)


@pytest.mark.parametrize("case", CASES)
def test_a_change_changes_this_and_nothing_else(case: str):
    change, before, after = CASES[case]

    mutated = changed(_function(before), "function", change)

    assert ast.dump(mutated) == ast.dump(_function(after))


@pytest.mark.parametrize("case", CASES)
def test_a_change_leaves_the_tree_that_it_is_given(case: str):
    change, before, _ = CASES[case]
    tree = _function(before)

    changed(tree, "function", change)

    assert ast.dump(tree) == ast.dump(_function(before))


@pytest.mark.parametrize("case", CASES)
def test_a_change_that_fits_nothing_is_an_error(case: str):
    change = CASES[case][0]

    with pytest.raises(ChangeError, match="in function: it fits nothing"):
        changed(_function("yield"), "function", change)


@pytest.mark.parametrize("case", CASES)
def test_a_change_that_fits_twice_is_an_error(case: str):
    change, before, _ = CASES[case]

    with pytest.raises(ChangeError, match=r"it fits 2 nodes, say which \(nth\): 1: .*; 2: "):
        changed(_function(f"{before}\n{before}"), "function", change)


def test_the_nth_of_several_is_changed_as_they_stand_in_the_source():
    tree = _function("if a.due: go()\nx = [1 for it in b if it.due]\nreturn a if it.due else b")

    texts = [ast.unparse(changed(tree, "function", never("due", nth=nth))) for nth in (1, 2, 3)]

    assert "if False:" in texts[0]
    assert "x = [1 for it in b if False]" in texts[1]
    assert "return a if False else b" in texts[2]


@pytest.mark.parametrize("nth", [0, 3])
def test_an_nth_that_is_not_there_is_an_error(nth: int):
    tree = _function("return a < b == (n < 2)")

    with pytest.raises(ChangeError, match=f"it fits 2 nodes, and nth is {nth}"):
        changed(tree, "function", compare("<", "<=", nth=nth))


@pytest.mark.parametrize(
    ("place", "change", "after"),
    [
        ("Slot.held", replace("self.due", "None"), "return None"),
        ("Slot.Kind", value("'kind'"), "name = 'kind'"),
        ("outer.inner", compare("<", ">"), "return now > 1"),
        ("FIRST", value("2"), "FIRST = 2"),
        ("", rename("self", "this"), "return this.due"),
    ],
)
def test_a_place_is_a_qualified_name(place: str, change: Change, after: str):
    known = ast.parse(MODULE.replace("held(self)", "held(self, this=0)"))

    assert after in ast.unparse(changed(known, place, change))


@pytest.mark.parametrize("place", ["nobody", "Slot.nobody", "Slot.due", "inner"])
def test_a_place_that_is_not_there_is_an_error(place: str):
    with pytest.raises(ChangeError, match="there are 0 definitions"):
        changed(ast.parse(MODULE), place, value("1"))


def test_a_place_that_is_there_twice_is_an_error():
    with pytest.raises(ChangeError, match="there are 2 definitions of f"):
        changed(ast.parse("def f(): ...\ndef f(): ..."), "f", value("1"))


@pytest.mark.parametrize(
    "change",
    [replace("now", "later"), insert("later()", before="now"), value("[x for x in later]")],
)
def test_a_variable_that_is_not_there_is_an_error(change: Change):
    with pytest.raises(ChangeError, match="there is no variable 'later'"):
        changed(ast.parse(MODULE), "outer.inner", change)


@pytest.mark.parametrize(
    "by", ["len(LIMIT)", "[each for each in now]", "min(now, key=lambda it: it)", "FIRST"]
)
def test_names_of_the_module_and_of_python_are_there_and_those_that_are_bound(by: str):
    mutated = changed(ast.parse(MODULE), "outer.inner", value(by))

    assert f"return {by}" in ast.unparse(mutated)


def test_neither_layout_nor_comments_nor_other_lines_matter():
    written = _function("return a and it.due < now")
    moved = _function("'''Say so.'''\ngo()\n# Why.\nreturn (\n    a\n    and it.due < now\n)")

    texts = [
        ast.unparse(changed(each, "function", drop_condition("due"))) for each in (written, moved)
    ]

    assert [text.splitlines()[-1] for text in texts] == ["    return a", "    return a"]


def _function(body: str) -> ast.Module:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return ast.parse(
        f"from x import CLOSED, LIMIT, OPEN, RAN_OUT, When, copy, go, read\n"
        f"def function({_FREE}):\n{indented}\n"
    )
