"""Mutants of what users touch: schemas, client, HTTP, Spark, console, commands, processes."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    never,
    replace,
    replace_call,
    value,
)
from tests.mutants.mutant import Mutant

_EXCHANGED = ("property/test_client_machine.py",)
_TYPED = ("unit/fetch/test_decoder.py", "unit/client/test_typed.py")
_MAP_KEYS = ("unit/schemas/test_map_keys.py",)
_PROCESSES = ("unit/test_processes.py",)
_SCOPES = ("unit/http/gateway/test_scopes.py",)
_AUTHORIZATION = ("unit/http/gateway/test_authorization.py",)
_RECORDS = ("unit/http/accounts/test_records.py",)
_COALESCER = ("unit/http/gateway/test_coalescer.py",)
_EXCHANGE = ("unit/client/test_exchange.py",)

SURFACES = (
    # -- queues with a schema -----------------------------------------------------------------
    Mutant(
        "any change of a schema is safe",
        "schema",
        "queues.definition:next_versions",
        never("check_change"),
        ("unit/queues", "unit/client/test_typed.py"),
    ),
    Mutant(
        "a copy leaves out what a newer version wrote",
        "schema",
        "fetch.read:Decoder._schema_of",
        never("_whole"),
        _TYPED,
    ),
    Mutant(
        "a schema that is changed during a round fails it",
        "schema",
        "client.exchange:Exchange._round",
        drop_condition("SchemaChangedError"),
        _EXCHANGE,
    ),
    Mutant(
        "a gateway reads ahead by the schema that it met first",
        "schema",
        "consumer.prefetch:Prefetch.renew",
        never("_queue"),
        _EXCHANGE,
    ),
    Mutant(
        "the index of pandas is lost where it has no column",
        "schema",
        "schemas.pandas_index:_index_of",
        value("None", of="_parsed"),
        ("unit/schemas/test_pandas_index.py",),
    ),
    Mutant(
        "a name of a column may have a NUL character",
        "names",
        "queues.definition:next_versions",
        never("name"),
        ("unit/client/test_typed.py",),
    ),
    Mutant(
        "nulls of no type within other values are refused",
        "schema",
        "schemas.assign:_type_problems",
        drop_condition("is_null"),
        ("unit/schemas/test_assign.py",),
    ),
    Mutant(
        "a stream begins although it cannot show all values",
        "schema",
        "spark.source.columns:check_has_all_values",
        drop_element("WIDENED"),
        ("unit/spark/source/test_columns.py",),
    ),
    Mutant(
        "a stream takes a queue whose values it cannot show",
        "schema",
        "spark.source.selection:Selection.__call__",
        drop_statement("check_alike"),
        ("unit/spark/source/test_several_queues.py",),
    ),
    Mutant(
        "a batch of a queue that is left is repeated although the rows cannot show it",
        "several queues",
        "spark.source.queue_reader:QueueReader.tasks",
        drop_statement("_check_fits"),
        ("unit/spark/source/test_several_queues.py",),
    ),
    Mutant(
        "a query leaves a deleted queue without a word",
        "several queues",
        "spark.source.queue_reader:QueueReader._find_queues",
        never("is_leaving"),
        ("unit/spark/source/test_several_queues.py",),
    ),
    Mutant(
        "a query that goes on passes over what a new queue had",
        "several queues",
        "spark.source.queue_reader:QueueReader._begin",
        always("is_first"),
        ("unit/spark/source/test_several_queues.py",),
    ),
    Mutant(
        "what a queue has dropped is read as the type of another queue",
        "schema",
        "schemas.union:united",
        replace("(True, False)", "(True,)"),
        ("unit/spark/source/test_several_queues.py",),
    ),
    Mutant(
        "a map may have a key twice",
        "schema",
        "schemas.convert:_list_or_map",
        never("exact"),
        _MAP_KEYS,
    ),
    # -- the client ---------------------------------------------------------------------------
    Mutant(
        "a text is taken for several messages",
        "as it was",
        "producer.new_message:check_all",
        drop_statement("check_many"),
        ("property/test_bad_messages_property.py",),
    ),
    Mutant(
        "a copy of a file has no name",
        "I4",
        "client.files:import_file",
        drop_argument("write_messages", 3),
        ("unit/client/test_files.py",),
    ),
    Mutant(
        "what is read ahead exceeds its budget",
        "bounded",
        "consumer.prefetch:Prefetch._put",
        never("_taken"),
        _EXCHANGE,
    ),
    # -- HTTP ---------------------------------------------------------------------------------
    Mutant(
        "who may only put uses the idempotency keys of the account",
        "accounts",
        "http.gateway.authorization:scope_of",
        always("owner", nth=1),
        _SCOPES,
    ),
    Mutant(
        "a signed request is carried out again",
        "accounts",
        "http.gateway.authorization:Authorizer._of_signed_request",
        replace_call("is_new", "True"),
        _AUTHORIZATION,
    ),
    Mutant(
        "what a key may do can be changed in the table",
        "accounts",
        "http.accounts.records:Accounts._opened",
        drop_condition("seal", nth=1),
        _RECORDS,
    ),
    Mutant(
        "an account is put back to what it was",
        "accounts",
        "http.accounts.records:Accounts._see",
        value("True", of="newest", nth=2),
        _RECORDS,
    ),
    Mutant(
        "each account reads ahead as if it were alone",
        "limits of HTTP",
        "http.gateway.coalescer:Coalescer._ahead_of",
        drop_argument("PrefetchBudget", "within"),
        _COALESCER,
    ),
    Mutant(
        "names of deleted queues do not count",
        "limits of HTTP",
        "http.gateway.admission:StorageQuotas.check_queues",
        replace("usage.queues | usage.deleted", "usage.queues"),
        ("unit/http/gateway/test_storage_quotas.py",),
    ),
    Mutant(
        "members of JSON become objects before they are counted",
        "limits of HTTP",
        "http.members:has_more_members",
        always("may_have_members"),
        ("unit/http/gateway/test_formats.py", "unit/http/sqs/test_protocols.py"),
    ),
    Mutant(
        "an answer leaves for a client that has disconnected",
        "I8",
        "http.gateway.messages:_handed_over",
        value("True", of="has_left"),
        ("unit/http/gateway/test_receiving.py",),
    ),
    # -- Spark --------------------------------------------------------------------------------
    Mutant(
        "an idle source holds up a busy one",
        "idle",
        "spark.source.queue_reader:QueueReader._wait_until_due",
        never("_BUSY_SECONDS"),
        ("unit/spark/source/test_idle.py",),
    ),
    Mutant(
        "what is there at its start is left behind what a query with availableNow finds dead",
        "liveness",
        "spark.source.partition_reader:PartitionReader.lease",
        never("_goes_past_dead"),
        ("unit/spark/source/test_available_now.py",),
    ),
    Mutant(
        "nobody is told that a group was given more than the checkpoint knows",
        "a loss is told",
        "spark.source.partition_reader:PartitionReader._compare",
        never("begins"),
        ("unit/spark/source/test_reader.py",),
    ),
    # -- the same everywhere ------------------------------------------------------------------
    Mutant(
        "what is parked is told as due",
        "the same everywhere",
        "queues.stats:_backlog",
        drop_condition("is_parked"),
        ("unit/client/test_lanes.py",),
    ),
    Mutant(
        "a queue made by the console drops dead messages unless somebody names a queue",
        "the same everywhere",
        "console.settings_plans:_create",
        replace_call("flag", "not call.asked('dead_letter_queue')", nth=1),
        ("unit/console/test_changes.py",),
    ),
    # -- forks, and other processes -----------------------------------------------------------
    Mutant(
        "a fork does not wait for the locks of other threads",
        "forks",
        "processes:lock_across_forks",
        drop_statement("add"),
        _PROCESSES,
    ),
    Mutant(
        "a child uses the connections of its parent to a gateway",
        "forks",
        "http.client.queue:HttpQueue._http",
        replace_call("getpid", "0"),
        _PROCESSES,
    ),
    Mutant(
        "a child waits for threads that it does not have",
        "forks",
        "client.async_client:Threads.run",
        never("getpid"),
        _PROCESSES,
    ),
    Mutant(
        "a client that is sent to another process has lost its name",
        "forks",
        "client.client:Client.__reduce__",
        replace("self._name", "None"),
        ("unit/client/test_names.py",),
    ),
)
