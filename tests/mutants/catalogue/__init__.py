"""The mutants: at least one for each invariant, and for each promise of the documents."""

from __future__ import annotations

from tests.mutants.catalogue.dead_letters import DEAD_LETTERS
from tests.mutants.catalogue.groups import GROUPS
from tests.mutants.catalogue.ledger import LEDGER
from tests.mutants.catalogue.order import ORDER
from tests.mutants.catalogue.schedules import SCHEDULES
from tests.mutants.catalogue.sqs import SQS
from tests.mutants.catalogue.surfaces import SURFACES
from tests.mutants.catalogue.upkeep import UPKEEP

MUTANTS = (*LEDGER, *GROUPS, *ORDER, *DEAD_LETTERS, *UPKEEP, *SURFACES, *SCHEDULES, *SQS)
