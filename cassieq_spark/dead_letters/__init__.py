"""Dead letters: what could not be processed, in a queue of its own, and back again.

First the copy is published, once, then the original is let go of (I9).
"""

from __future__ import annotations
