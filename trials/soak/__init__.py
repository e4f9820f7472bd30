"""`make soak`: all kinds of clients use queues for minutes, and die now and then."""

from __future__ import annotations
