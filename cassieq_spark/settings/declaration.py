"""Declares settings as fields of dataclasses, and reads values by these declarations.

From one declaration follow the Spark option, the flag of ``cassieq`` and of the repair job, the
key in a configuration file, the environment variable, their errors, and the pages docs/options.md
and docs/cli.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.kinds import Kind

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")
#: Stands for an option or a flag that follows from the name of the field.
_BY_NAME = ""


#: Options with a value each, or None for any value.
Unless = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, as users see it.

    Attributes:
        kind: The kind of its values.
        meaning: What the setting does, in plain text.
        option: The Spark option, by default the name of the field in camel case; None if there is
            no Spark option.
        flag: The flag, without the dashes in front, and the key in a configuration file; by
            default the name of the field with dashes.
        without: For the docs: what applies if the setting is left out and has no default.
        see: A page of the docs with more details, with or without an anchor.
        secret: True if errors and reprs hide its value.
        unless: Other options, each with a value; None for any value. If one of these options has
            its value, the setting is optional; otherwise it is required.
        only_for: The uses of its class to which the setting applies; empty: all uses.
        of_lease: The field of a lease request that the setting sets; empty: none.
        attribute: The name of the field.
        default: The default of the field; `MISSING` if there is none.
    """

    kind: Kind[Any]
    meaning: str
    option: str | None = _BY_NAME
    flag: str = _BY_NAME
    without: str | None = None
    see: str | None = None
    secret: bool = False
    unless: Unless = ()
    only_for: tuple[str, ...] = ()
    of_lease: str = ""
    attribute: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """The environment variable that commands read."""
        return f"CASSIEQ_{self.flag}".replace("-", "_").upper()

    @property
    def uses(self) -> str:
        """The uses to which the setting applies, as words; empty: all uses."""
        *others, last = self.only_for or ("",)
        return f"{', '.join(others)} and {last}" if others else last


def setting(  # noqa: PLR0913 (the parts of a declaration)
    kind: Kind[_Value],
    default: _Default,
    meaning: str,
    *,
    option: str | None = _BY_NAME,
    flag: str = _BY_NAME,
    without: str | None = None,
    see: str | None = None,
    secret: bool = False,
    only_for: tuple[str, ...] = (),
    of_lease: str = "",
) -> _Value | _Default:
    """Declare an optional setting; see `Setting`."""
    declared = Setting(
        kind, meaning, option, flag, without, see, secret, only_for=only_for, of_lease=of_lease
    )
    return field(default=default, repr=not secret, metadata={"setting": declared})


def required(kind: Kind[Any], meaning: str, *, unless: Unless = ()) -> dict[str, Setting]:
    """The metadata of a field without a default; see `Setting`."""
    return {"setting": Setting(kind, meaning, unless=unless)}


#: What `settings_of` returns, by class.
_DECLARED: dict[type[Any], tuple[Setting, ...]] = {}


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """The settings that a class declares, in their order; cached."""
    if cls not in _DECLARED:
        _DECLARED[cls] = tuple(
            replace(
                item,
                attribute=each.name,
                default=each.default,
                option=camel_case(each.name) if item.option == _BY_NAME else item.option,
                flag=item.flag or each.name.replace("_", "-"),
            )
            for each in fields(cls)
            if (item := each.metadata.get("setting"))
        )
    return _DECLARED[cls]


def camel_case(name: str) -> str:
    """Convert a name from Python's form to the form of JSON and Spark.

    >>> camel_case("lease_seconds")
    'leaseSeconds'
    """
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def settings_by_option(*classes: type[Any]) -> dict[str, Setting]:
    """The settings of some classes that are Spark options, by option in lower case."""
    found = (each for cls in classes for each in settings_of(cls))
    return {each.option.lower(): each for each in found if each.option}


def read_values(
    known: Mapping[str, Setting], given: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """Read the texts that were given for settings.

    Args:
        known: The settings by option, as `settings_by_option` returns them.
        given: Texts by option in lower case; unknown options are ignored.
        problems: Missing and malformed options are added to this list.

    Returns:
        Values by attribute.
    """
    values = {}
    for key, item in known.items():
        text = given.get(key)
        if text is None:
            is_needed = item.default is MISSING and not any(
                given.get(other.lower(), "").lower() == value
                or (value is None and other.lower() in given)
                for other, value in item.unless
            )
            if is_needed:
                problems.append(explain_missing(str(item.option), unless=item.unless))
            continue
        name = f"option {item.option!r}"
        try:
            values[item.attribute] = parse_value(name, item.kind, text, secret=item.secret)
        except OptionError as error:
            problems.append(str(error))
    return values


def explain(kind: Kind[Any], shown: str, error: ValueError) -> str:
    """Explain why a kind refused a value, in words that follow the name of the setting."""
    if isinstance(error, OptionError):
        return f": {error}"
    return f" must be {kind.name}, not {shown}"


def parse_value(name: str, kind: Kind[_Value], text: str, *, secret: bool = False) -> _Value:
    """Read one value; the error does not show a secret value.

    Raises:
        OptionError: The value is malformed; the error names the setting and what was expected.
    """
    try:
        return kind.parse(text)
    except ValueError as error:
        shown = "what was given" if secret else repr(text)
        raise OptionError(name + explain(kind, shown, error)) from error


def explain_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Report an unknown name, with the nearest known name, or all known names if none is near.

    Args:
        what: What the name stands for, such as ``option``.
        name: The unknown name.
        known: The known names.
    """
    names = list(known)
    advice = did_you_mean(name, names, otherwise=f"known: {', '.join(names)}")
    return f"unknown {what} {name!r}; {advice}"


def explain_missing(option: str, *, unless: Unless = ()) -> str:
    """Explain how to give an option that has no default, or how to do without it."""
    others = [
        f".option({other!r}, {'...' if value is None else repr(value)})" for other, value in unless
    ]
    exception = f"; only {' or '.join(others)} does without" if others else ""
    return f"option {option!r} is missing: give it with .option({option!r}, ...){exception}"


def check_both_or_neither(pair: Mapping[str, object]) -> None:
    """Raise `OptionError` if one of two settings is given and the other one, None, is not."""
    if len({value is None for value in pair.values()}) > 1:
        given, missing = sorted(pair, key=lambda key: pair[key] is None)
        raise OptionError(f"{given} needs {missing}: give both, or neither")
