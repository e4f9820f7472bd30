"""Trials: long runs that break things on purpose, and judge what became of each message.

    soak              everybody uses a queue at once, and dies now and then
    chaos             three nodes and a Spark cluster are killed, stopped and given wrong clocks
    bdqs              the experiments of the BDQS paper
    attack            what strangers may try on a gateway and its tables
    poison            one message kills the worker that processes it
    competing         queries of one group are killed
    linearizability   has every history of LWTs an order?

Each is a program (``python -m trials.soak``) and a target of make. Its last line is a report as
JSON, and its exit code is 1 if anything is off. They share `environment` (arguments, a Cassandra,
the end), `processes` (programs that are killed and started again), `spark` (local Spark,
and what programs have stored) and `stores` (that die, or lose requests).
"""

from __future__ import annotations
