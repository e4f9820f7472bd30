"""Trials: long runs that break things on purpose, and account for each message.

    soak              all kinds of clients use queues at the same time, and die now and then
    chaos             three nodes and a Spark cluster are killed, paused and given wrong clocks
    bdqs              the experiments of the BDQS paper
    attack            attacks of strangers on a gateway and its tables
    poison            one message kills each worker that processes it
    competing         queries of one group are killed; clients of one group compete
    sharing           readers of a group divide partitions, while some hang and die
    linearizability   does every history of LWTs have an order?

Each is a program (``python -m trials.soak``) and a target of make. Its last line is a report as
JSON, and its exit code is 1 if anything is wrong. They share `environment` (arguments, Cassandra,
report), `processes` (programs that are killed and started again), `spark` (local Spark, results of
programs), `stores` (stores that die, or lose requests) and `figures`.
"""

from __future__ import annotations
