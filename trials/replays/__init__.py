"""Kills queries at the worst moments: is each message published once, and does each query go on?

A cell is a source, a query, a moment of the kill, how often it strikes, and what becomes of the
checkpoint. Each cell runs until its query has ended by itself, and is then compared with what its
source had. `striking` is a data source that kills its own driver.
"""

from __future__ import annotations
