"""Small changes of a syntax tree, which bugs on purpose are made of.

A change finds its nodes by what they mention: the names of attributes, functions and arguments, or
constants, which others use too. So neither layout nor comments matter, nor where in the function a
line is, and hardly the names of its variables. It must fit exactly one node of its function, or
say which one (``nth``, from 1).

A new expression is written as text. In it, ``_`` is the expression that it replaces.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

_OPERATORS = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
}
_LISTS = (ast.Tuple, ast.List, ast.Set)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Return)
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Raise, ast.Delete)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

#: What takes the place of a node, for each way in which the change fits the node.
Edits = Callable[[ast.AST], Iterator[ast.AST | list[ast.stmt]]]


class ChangeError(Exception):
    """A change does not fit: its place is gone, or it fits nothing, or several nodes."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one function.

    Attributes:
        says: The change in words.
        edits: The nodes that it fits, and what takes their place.
        nth: Which of several, from 1; None if it fits one.
    """

    says: str
    edits: Edits
    nth: int | None = None


def changed(tree: ast.Module, place: str, change: Change) -> ast.Module:
    """Change a module.

    Args:
        tree: The module, which stays as it is.
        place: The function, class or constant, by its qualified name; empty for the whole module.
        change: What to change there.

    Raises:
        ChangeError: There is no such place, the change fits none of its nodes, or several, or it
            uses a variable that is not there.
    """
    path = _path(tree, place)
    sites = [(node, new) for node in _in_order(path[-1]) for new in change.edits(node)]
    told = f"{change.says}, in {place or 'the module'}"
    if not sites:
        raise ChangeError(f"{told}: it fits nothing")
    if change.nth is None and len(sites) > 1:
        shown = "; ".join(f"{at}: {_shown(node)}" for at, (node, _) in enumerate(sites, start=1))
        raise ChangeError(f"{told}: it fits {len(sites)} nodes, say which (nth): {shown}")
    if change.nth is not None and not 1 <= change.nth <= len(sites):
        raise ChangeError(f"{told}: it fits {len(sites)} nodes, and nth is {change.nth}")
    old, new = sites[(change.nth or 1) - 1]
    if unknown := _used(new) - _known(path):
        raise ChangeError(f"{told}: there is no variable {min(unknown)!r}")
    mutated: ast.Module = _exchanged(tree, old, new)
    return mutated


# -- conditions -----------------------------------------------------------------------------------


def always(of: str, nth: int | None = None) -> Change:
    """Make a condition true: of an ``if``, ``while``, conditional expression or comprehension."""
    return _condition(f"a condition on {of} always holds", of, "True", nth)


def never(of: str, nth: int | None = None) -> Change:
    """Make a condition false."""
    return _condition(f"a condition on {of} never holds", of, "False", nth)


def negate(of: str, nth: int | None = None) -> Change:
    """Turn a condition into its opposite."""
    return _condition(f"a condition on {of} is negated", of, "not _", nth)


def _condition(says: str, of: str, by: str, nth: int | None) -> Change:
    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.If | ast.While | ast.IfExp) and _mentions(node.test, of):
            yield _with(node, "test", _expression(by, node.test))
        if isinstance(node, ast.comprehension):
            for at, test in enumerate(node.ifs):
                if _mentions(test, of):
                    yield _with_item(node, "ifs", at, _expression(by, test))

    return Change(says, edits, nth)


def drop_condition(of: str, nth: int | None = None) -> Change:
    """Leave out the innermost operand of an ``and`` or ``or`` that mentions a name."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        for at, each in enumerate(node.values if isinstance(node, ast.BoolOp) else ()):
            if _is_innermost(each, of, ast.BoolOp):
                rest = _without_item(node, "values", at)
                yield rest if len(rest.values) > 1 else rest.values[0]

    return Change(f"the condition on {of} is left out", edits, nth)


def compare(old: str, new: str, of: str = "", nth: int | None = None) -> Change:
    """Compare by another operator, such as ``<=`` in place of ``<``."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Compare) and _mentions(node, of):
            for at, operator in enumerate(node.ops):
                if isinstance(operator, _OPERATORS[old]):
                    yield _with_item(node, "ops", at, _OPERATORS[new]())

    return Change(f"{old} becomes {new}", edits, nth)


# -- expressions ----------------------------------------------------------------------------------


def drop_term(of: str, nth: int | None = None) -> Change:
    """Leave out the innermost side of a sum, a union or the like that mentions a name."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.BinOp):
            if _is_innermost(node.left, of, ast.BinOp):
                yield node.right
            if _is_innermost(node.right, of, ast.BinOp):
                yield node.left

    return Change(f"the term with {of} is left out", edits, nth)


def drop_element(of: str, nth: int | None = None) -> Change:
    """Leave out the element of a tuple, list, set or dict that mentions a name."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, _LISTS):
            for at, each in enumerate(node.elts):
                if _mentions(each, of):
                    yield _without_item(node, "elts", at)
        if isinstance(node, ast.Dict):
            for at, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
                if (key is not None and _mentions(key, of)) or _mentions(value, of):
                    yield _without_item(_without_item(node, "keys", at), "values", at)

    return Change(f"the element with {of} is left out", edits, nth)


def replace(what: str, by: str, nth: int | None = None) -> Change:
    """Replace a constant, a name or another small expression."""
    wanted = ast.dump(_expression(what))

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.expr) and ast.dump(node) == wanted:
            yield _expression(by, node)

    return Change(f"{what} becomes {by}", edits, nth)


def rename(old: str, new: str, nth: int | None = None) -> Change:
    """Use another name: of a function, an attribute or an argument."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        for field in ("id", "attr", "arg"):
            if isinstance(node, ast.expr | ast.keyword) and getattr(node, field, None) == old:
                yield _with(node, field, new)

    return Change(f"{old} becomes {new}", edits, nth)


def value(by: str, of: str = "", nth: int | None = None) -> Change:
    """Assign or return something else, in the statement that mentions a name."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, _ASSIGNMENTS) and node.value is not None and _mentions(node, of):
            yield _with(node, "value", _expression(by, node.value))

    return Change(f"the value with {of or 'anything'} becomes {by}", edits, nth)


# -- calls ----------------------------------------------------------------------------------------


def replace_call(function: str, by: str, nth: int | None = None) -> Change:
    """Put an expression in the place of a call."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if _calls(node, function):
            yield _expression(by, node)

    return Change(f"the call of {function} becomes {by}", edits, nth)


def unwrap(function: str, which: int = 0, nth: int | None = None) -> Change:
    """Put an argument in the place of a call."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if _calls(node, function) and isinstance(node, ast.Call) and which < len(node.args):
            yield node.args[which]

    return Change(f"argument {which} stands for the call of {function}", edits, nth)


def drop_argument(function: str, which: str | int, nth: int | None = None) -> Change:
    """Leave out an argument of a call: by its place, its keyword, or a name that it mentions."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if _calls(node, function):
            for field, at in _arguments(node, which):
                yield _without_item(node, field, at)

    return Change(f"{function} is called without {which}", edits, nth)


def set_argument(function: str, which: str | int, by: str, nth: int | None = None) -> Change:
    """Call a function with another argument."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if _calls(node, function):
            for field, at in _arguments(node, which):
                old = getattr(node, field)[at]
                new = _expression(by, getattr(old, "value", old) if field == "keywords" else old)
                yield _with_item(
                    node, field, at, _with(old, "value", new) if field == "keywords" else new
                )

    return Change(f"{function} is called with {by} for {which}", edits, nth)


# -- statements -----------------------------------------------------------------------------------


def drop_statement(of: str, nth: int | None = None) -> Change:
    """Leave out the statement, or the loop, that mentions a name."""

    def edits(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, _SIMPLE) and _mentions(node, of):
            yield ast.Pass()
        if isinstance(node, ast.For) and _mentions(node.iter, of):
            yield ast.Pass()

    return Change(f"the statement with {of} is left out", edits, nth)


def insert(statement: str, before: str, nth: int | None = None) -> Change:
    """Do something more, before the statement that mentions a name."""
    new = ast.parse(statement).body

    def edits(node: ast.AST) -> Iterator[list[ast.stmt]]:
        if isinstance(node, (*_SIMPLE, ast.For, ast.If)) and _mentions(_header(node), before):
            yield [*new, node]

    return Change(f"{statement}, before {before}", edits, nth)


# -- trees ----------------------------------------------------------------------------------------


def _exchanged(node: ast.AST, old: ast.AST, new: ast.AST | list[ast.stmt]) -> Any:
    """The tree below a node with something in the place of ``old``; it shares all other nodes."""
    if node is old:
        return new
    for field, children in ast.iter_fields(node):
        for at, child in enumerate(children if isinstance(children, list) else [children]):
            if not isinstance(child, ast.AST):
                continue
            then = _exchanged(child, old, new)
            if then is not child and isinstance(children, list):
                items = then if isinstance(then, list) else [then]
                return _with(node, field, [*children[:at], *items, *children[at + 1 :]])
            if then is not child:
                return _with(node, field, then)
    return node


def _path(tree: ast.Module, place: str) -> list[ast.AST]:
    """The module, and each definition down to that of a qualified name."""
    path: list[ast.AST] = [tree]
    for name in place.split(".") if place else ():
        found = [each for each in _scope(path[-1]) if name in _bound(each)]
        if len(found) != 1:
            raise ChangeError(f"{place}: there are {len(found)} definitions of {name}")
        path.append(found[0])
    return path


def _scope(node: ast.AST) -> Iterator[ast.AST]:
    """Statements of a scope, without those of the definitions in it."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield each
        if not isinstance(each, _DEFINITIONS):
            yield from _scope(each)


def _bound(statement: ast.AST) -> set[str]:
    """Names that a definition, an assignment or an import binds."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _known(path: list[ast.AST]) -> set[str]:
    """Variables that a change at the end of a path can use."""
    here = path[min(1, len(path) - 1)]
    inside = {each.arg for each in ast.walk(here) if isinstance(each, ast.arg)}
    inside |= {each.id for each in ast.walk(here) if isinstance(each, ast.Name)}
    return inside.union(dir(builtins), *map(_bound, _scope(path[0])))


def _used(new: ast.AST | list[ast.stmt]) -> set[str]:
    """Variables that an expression or statements read, and do not bind."""
    nodes = [each for it in (new if isinstance(new, list) else [new]) for each in ast.walk(it)]
    names = [each for each in nodes if isinstance(each, ast.Name)]
    bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    bound |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    return {each.id for each in names} - bound


def _shown(node: ast.AST) -> str:
    """The first line of a node."""
    return ast.unparse(node).strip().partition("\n")[0]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, as they stand in the source."""
    yield node
    for each in ast.iter_child_nodes(node):
        yield from _in_order(each)


def _mentions(node: ast.AST, name: str) -> bool:
    """True if a name, an attribute, an argument or a constant within a node is called so."""
    return not name or any(name in _names(each) for each in ast.walk(node))


def _is_innermost(part: ast.expr, name: str, kind: type[ast.expr]) -> bool:
    """True if a part mentions a name, and no expression of that kind within the part does."""
    within = (each for each in ast.walk(part) if isinstance(each, kind))
    return _mentions(part, name) and not any(_mentions(each, name) for each in within)


def _names(node: ast.AST) -> tuple[object, ...]:
    return tuple(getattr(node, field, None) for field in ("id", "attr", "arg", "value", "name"))


def _calls(node: ast.AST, function: str) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return function in {getattr(called, "id", None), getattr(called, "attr", None)}


def _arguments(call: ast.AST, which: str | int) -> Iterator[tuple[str, int]]:
    """Fields and places of the arguments that are meant."""
    assert isinstance(call, ast.Call)
    if isinstance(which, int):
        yield from [("args", which)] if which < len(call.args) else []
        return
    named = [at for at, each in enumerate(call.keywords) if each.arg == which]
    yield from (("keywords", at) for at in named)
    if not named:
        yield from (("args", at) for at, it in enumerate(call.args) if _mentions(it, which))


def _header(statement: ast.stmt) -> ast.AST:
    if isinstance(statement, ast.For):
        return statement.iter
    return statement.test if isinstance(statement, ast.If) else statement


def _expression(text: str, old: ast.expr | None = None) -> ast.expr:
    """Read an expression, and put the one that it replaces where ``_`` is."""
    new = ast.parse(text, mode="eval").body
    for each in list(ast.walk(new)) if old is not None else ():
        if isinstance(each, ast.Name) and each.id == "_":
            new = _exchanged(new, each, old)
    return new


def _with(node: ast.AST, field: str, value: object) -> Any:
    new = copy(node)
    setattr(new, field, value)
    return new


def _with_item(node: ast.AST, field: str, at: int, item: object) -> Any:
    items = list(getattr(node, field))
    items[at] = item
    return _with(node, field, items)


def _without_item(node: ast.AST, field: str, at: int) -> Any:
    items = list(getattr(node, field))
    del items[at]
    return _with(node, field, items)
