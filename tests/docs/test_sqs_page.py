"""The programs of docs/sqs.md for boto3 run as they stand, with nothing but their environment.

Those for other programs of AWS are run by `tests/sqs`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from cassieq_spark.http.gateway.sqs.calls import HANDLERS
from cassieq_spark.http.sqs.operations import OPERATIONS
from tests.docs.pages import ROOT, blocks_of
from tests.support.gateway import Account, running_on_memory

PAGE = "docs/sqs.md"


def test_the_programs_run_as_they_stand(tmp_path: Path):
    of_others = blocks_of(PAGE, "Celery")
    blocks = [each for each in blocks_of(PAGE) if each not in of_others]
    program = "\n".join(each.text for each in blocks if each.language == "python")
    (tmp_path / "program.py").write_text(program)

    with running_on_memory(tmp_path / "log") as gateway:
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=gateway.account().aws,
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "an order en\nada: 5 | ben: 3\nto move: 0\n"


def test_the_page_names_the_variables_that_the_programs_get():
    account = Account("http://127.0.0.1:1", "shop", "key")
    given = {name for name in account.aws if name.startswith("AWS_")}

    assert set(re.findall(r"(AWS_\w+)=", (ROOT / PAGE).read_text())) == given


def test_every_operation_is_served():
    assert OPERATIONS.keys() == HANDLERS.keys()
