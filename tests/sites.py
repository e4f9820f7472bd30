"""In how many files a setting of a queue, or a figure of a group, is spelt out.

    python -m tests.sites [COMMIT]

A fact that is said once is named by few files. Files of the package count in which the word is
there, spelt in any way: ``keep_settled``, ``keepSettled``, ``keep-settled``, ``keep settled``.
Words that mean other things, too (lease, order, due), are left out.
"""

from __future__ import annotations

import re
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from cassieq_spark.queues.stats import GROUP_FIGURES
from cassieq_spark.settings.queue import QUEUE_SETTINGS
from cassieq_spark.settings.schedule import SCHEDULE_SETTINGS

#: Other words would be found where they mean something else.
_TELLING = re.compile(r"[a-z]+_[a-z]+|unexamined")


def sites(name: str, commit: str) -> dict[str, int]:
    """How many lines of each file of the package name it, at a commit."""
    words = name.split("_")
    spelt = r"\b" + "[-_ ]?".join(words)
    ended = subprocess.run(
        ["git", "grep", "-ciP", spelt, commit, "--", "cassieq_spark"],
        capture_output=True,
        text=True,
        check=False,
    )
    counted = (line.rpartition(":") for line in ended.stdout.splitlines())
    return {path.partition(":")[2]: int(count) for path, _, count in counted}


def main(commit: str = "HEAD") -> None:
    """Print a line for each of them."""
    table = Table("of", "name", "files", "lines", title=f"Named in the package at {commit}")
    every = {"queue": QUEUE_SETTINGS, "schedule": SCHEDULE_SETTINGS, "group": GROUP_FIGURES}
    for kind, declared in every.items():
        for it in declared:
            if _TELLING.fullmatch(it.name):
                found = sites(it.name, commit)
                table.add_row(kind, it.name, str(len(found)), str(sum(found.values())))
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
