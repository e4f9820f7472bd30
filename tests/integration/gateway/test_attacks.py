"""The short form of ``make attack``: what needs neither Cassandra nor minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import running_on_memory
from trials.attack import access, bodies, floods
from trials.attack.__main__ import attack_all
from trials.attack.target import Attack, Target
from trials.attack.verdicts import Verdict

ATTACKS = (
    access.rights_that_a_putter_lacks,
    access.keys_of_others,
    access.administration_without_its_key,
    access.signed_urls_that_were_changed,
    access.paths_that_are_not_what_they_seem,
    access.hosts_that_are_paths,
    access.receipts_of_others,
    access.receipts_of_the_same_lease,
    access.names_with_an_account_in_them,
    access.redrives_into_other_accounts,
    access.requests_sent_again,
    access.secrets_in_the_log,
    bodies.arrow_dictionary,
    bodies.arrow_views,
    bodies.arrow_headers_without_bytes,
    bodies.json_of_many_fields,
    bodies.json_of_many_headers,
    bodies.receipts_of_many_fields,
    bodies.arrow_rows_without_bytes,
    bodies.rows_dictionary,
    bodies.rows_of_lists_without_bytes,
    bodies.rows_mutants,
    bodies.schemas_without_end,
    bodies.lines_of_nothing,
    bodies.deep_json,
    bodies.numbers_without_end,
    bodies.receipts_without_end,
    bodies.answers_of_control_characters,
    floods.invented_receipts,
    floods.invented_receipts_of_batches,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    log: Path = tmp_path_factory.mktemp("gateway") / "log"
    with running_on_memory(log) as gateway:
        yield Target(gateway)
        assert gateway.stop() == 0


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused_or_does_no_harm(target: Target, attack: Attack):
    (seen,), *_ = attack_all(target, [attack])

    assert seen.verdict is not Verdict.OPEN, seen.told
