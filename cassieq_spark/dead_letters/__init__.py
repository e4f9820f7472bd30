"""Dead letters: messages that a group could not process, in a queue of their own.

dead_letter.py  copies dead messages to the dead-letter queue, once, and then settles them (I9)
survey.py       lists dead letters, and reads single ones
stopped.py      finds and resumes groups that have stopped at a dead message
redrive.py      publishes dead letters where they came from, once, and then settles them
purge.py        settles dead letters for good
claims.py       reserves dead letters for one run of redrive or purge
copies.py       turns messages of one queue into those of another (pure)
letters.py      the headers of a dead letter, filters and groups of dead letters (pure)
"""

from __future__ import annotations
