"""Dead letters: messages that a group could not process, in a queue of their own.

dead_letter.py  dead messages: copied to the dead-letter queue, once, and then settled (I9)
survey.py       which dead letters there are, and what they say
redrive.py      published where they came from, once, and then settled
purge.py        settled for good
claims.py       how redrive and purge take dead letters, so that nobody else does
letters.py      the headers of a dead letter, filters and groups of them (pure)
"""

from __future__ import annotations
