"""Which columns a DataFrame needs to be published. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from cassieq_spark.errors import SchemaError

_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("map<string,string>",),
}
_EXAMPLES = {
    "value": "to_json(struct(*)) as value",
    "key": "cast(id as string) as key",
    "headers": "map('origin', 'web') as headers",
}


def validate_schema(fields: Sequence[tuple[str, str]]) -> None:
    """Accept the columns of a DataFrame, or say everything that is wrong with them.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.

    Raises:
        SchemaError: ``value`` is missing, a column is unknown, there twice, or of another type.
    """
    names = [name for name, _ in fields]
    problems = []
    if "value" not in names:
        given = ", ".join(names) or "none"
        problems.append(
            f"a column 'value' is missing (columns: {given}): add it, e.g. {_EXAMPLES['value']}"
        )
    problems += [
        f"there are {names.count(name)} columns {name!r}: keep one of them"
        for name in _TYPES
        if names.count(name) > 1
    ]
    problems += filter(None, (_problem(name, type_) for name, type_ in dict(fields).items()))
    if problems:
        raise SchemaError("cannot publish this DataFrame: " + "; ".join(problems))


def _problem(name: str, type_: str) -> str | None:
    if name not in _TYPES:
        nearest = get_close_matches(name.lower(), _TYPES, n=1)
        advice = f"did you mean {nearest[0]!r}?" if nearest else "put it into 'value', or drop it"
        return f"unknown column {name!r}; {advice}"
    # What is left out: a collation, or the length of a varchar or char; Arrow has plain strings.
    plain = "string" if type_.startswith(("string collate ", "varchar(", "char(")) else type_
    if plain in _TYPES[name]:
        return None
    expected = " or ".join(_TYPES[name])
    return f"column {name!r} is {type_}, expected {expected}: cast it, e.g. {_EXAMPLES[name]}"
