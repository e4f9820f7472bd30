from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.settings import SourceOptions


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("vendor, fare ", ("vendor", "fare")),
        ("`a,b`", ("a,b",)),
        (" `a,b` ,c", ("a,b", "c")),
        ("`a``,b`,`c`", ("a`,b", "c")),
        ("a`b,c d", ("a`b", "c d")),
        ("` a `", (" a ",)),
        ("````", ("`",)),
    ],
)
def test_names_of_columns_may_be_in_backquotes(text: str, names: tuple[str, ...]):
    assert SourceOptions.parse({"queue": "q", "columns": text}).columns == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,`b,c", "option 'columns': '`b,c' begins with a name in backquotes that does not end"),
        ("`a`b", "option 'columns': '`a`b' begins with a name in backquotes that does not end"),
        ("a,`` ", "option 'columns': '``' begins with a name"),
        ("a,,b", "option 'columns' must be names with commas between them; a name that has one"),
        ("a,", "not 'a,'"),
        (" ", "not ' '"),
    ],
)
def test_names_of_columns_that_end_nowhere_or_are_empty_are_refused(text: str, told: str):
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse({"queue": "q", "columns": text})

    assert told in str(caught.value)
