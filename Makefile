# Needs make, git, Python 3.11 or later with venv, and Java 17; everything else goes into .venv.

PYTHON_BASE ?= python3
JAVA_MAJOR := 17
# What AWS's SDK for JavaScript needs.
NODE_MAJOR := 20
VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
STAMP := $(VENV)/.complete
SPARK_42 := .venv-spark-4.2
LOWEST := .venv-lowest
SWAGGER_UI := 5.35.0
SWAGGER_UI_SHA512 := U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==
IDIOMORPH := 0.8.0
IDIOMORPH_SHA512 := R47JBL+6jHDQvcnbppIUtXXcxi5h6+wuCEEZXnRhUltsgzPFKzThL5PuHppP9ypJuy+7WawcY1TsSBD/iQbMhw==
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

PYTEST_ARGS ?=
# Each of them starts nodes and a Spark of its own, some 3 GB; they wait a lot, so more than cores.
TEST_JOBS ?= 4

# Tests start hundreds of processes, each of which would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

##@ Set-up

.PHONY: help
help: ## List what can be made
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z0-9-]*:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything that development needs

$(STAMP): pyproject.toml constraints.txt | need-python
	test -x $(PYTHON) || $(PYTHON_BASE) -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --upgrade pip
	$(PYTHON) deploy/requirements.py spark demo metrics gateway http console > $(VENV)/requirements.txt
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt \
	  --requirement $(VENV)/requirements.txt --group test --group lint
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: need-python
need-python:
	@command -v $(PYTHON_BASE) >/dev/null || { \
	  echo "python3 is missing: apt install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON_BASE) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON_BASE) is $$($(PYTHON_BASE) -V); 3.11 or later is needed:" \
	    "install one and name it, as in: make setup PYTHON_BASE=python3.12" >&2; exit 1; }
	@$(PYTHON_BASE) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON_BASE) lacks venv: apt install python3-venv" >&2; exit 1; }

.PHONY: need-java
need-java:
	@"$(JAVA)" -version 2>&1 | grep -q 'version "$(JAVA_MAJOR)[."]' || { \
	  echo "$(JAVA) is not Java $(JAVA_MAJOR), which Spark and Cassandra need:" \
	    "apt install openjdk-$(JAVA_MAJOR)-jre-headless, or set JAVA_HOME" >&2; exit 1; }

##@ Checks

.PHONY: format
format: $(STAMP) ## Format the code, and mend what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: lint
lint: $(STAMP) ## Format, style, layers, spelling, project file, workflows
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	PATH="$(CURDIR)/$(BIN):$$PATH" lint-imports
	$(BIN)/codespell
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --quiet --offline --min-severity medium .github/workflows

.PHONY: types
types: $(STAMP) ## Types, strictly
	$(BIN)/mypy

.PHONY: check
check: lint types ## All that needs no test to run

##@ Tests

.PHONY: test-unit
test-unit: $(STAMP) ## Unit tests, and the examples in docstrings; no services
	$(BIN)/pytest -q -n $(TEST_JOBS) -m 'not cassandra and not spark' --doctest-modules \
	  cassieq_spark tests/unit tests/conformance $(PYTEST_ARGS)

.PHONY: test-property
test-property: $(STAMP) ## State machines, and what Hypothesis looks for; no services
	$(BIN)/pytest -q -n $(TEST_JOBS) tests/property $(PYTEST_ARGS)

.PHONY: test-for
test-for: $(STAMP) ## Tests near what differs from a commit (CHANGED=origin/main)
	$(BIN)/pytest -q -n $(TEST_JOBS) $$($(PYTHON) -m tests.changed $(or $(CHANGED),origin/main)) \
	  $(PYTEST_ARGS)

.PHONY: test
test: $(STAMP) need-java ## Everything, with a real Cassandra and a local Spark (TEST_JOBS=1: one by one)
	$(BIN)/cassieq node download
	$(BIN)/cassieq node download --cassandra-version 4.1
	$(BIN)/cassieq spark compile
	$(PYTHON) -m tests.support.spark_classes
	$(BIN)/pytest -q -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --doctest-modules \
	  --ignore=tests/browser --ignore=tests/sqs cassieq_spark tests $(PYTEST_ARGS)

.PHONY: test-spark-42
test-spark-42: need-python need-java ## Tests of the source and the sink with Spark 4.2, in a venv of its own
	test -x $(SPARK_42)/bin/python || $(PYTHON_BASE) -m venv $(SPARK_42)
	$(SPARK_42)/bin/python -m pip install --quiet --upgrade pip
	sed -n 's/^\([^ ]*==[^ ]*\).*/\1/p' constraints.txt | grep -v '^pyspark==' > $(SPARK_42)/constraints.txt
	$(SPARK_42)/bin/python -m pip install --quiet --constraint $(SPARK_42)/constraints.txt \
	  --editable '.[spark,metrics,gateway,http]' 'pyspark==4.2.*' --group test
	$(SPARK_42)/bin/cassieq node download
	$(SPARK_42)/bin/pytest -q tests/integration/spark $(PYTEST_ARGS)

.PHONY: test-lowest
test-lowest: need-python need-java ## Tests with the oldest packages that pyproject.toml allows, in a venv of its own
	test -x $(LOWEST)/bin/python || $(PYTHON_BASE) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python \
	  --extra spark --extra metrics --extra gateway --extra http --extra console \
	  --output-file $(LOWEST)/lowest.txt pyproject.toml
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python \
	  --constraint $(LOWEST)/lowest.txt --editable '.[spark,metrics,gateway,http,console]' --group test
	$(LOWEST)/bin/cassieq node download
	$(LOWEST)/bin/pytest -q tests/unit tests/conformance/test_memory.py tests/integration/gateway \
	  tests/integration/spark/test_source.py $(PYTEST_ARGS)

.PHONY: test-wheel
test-wheel: build need-java ## Each extra in an empty environment; publish and consume; tests of the source archive
	$(PYTHON) -m tests.wheel dist

.PHONY: need-chromium
need-chromium:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium > /dev/null; \
	  else echo "chromium is missing: apt install chromium" >&2; exit 1; fi; }

.PHONY: test-browser
test-browser: $(STAMP) need-chromium need-java ## The console in a real browser: every page and change, by keyboard, for everybody
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt \
	  --group browser --group docs
	$(BIN)/cassieq node download
	$(BIN)/pytest -q -n 2 tests/browser $(PYTEST_ARGS)

.PHONY: need-java-compiler
need-java-compiler: need-java
	@"$(JAVA)" --list-modules 2>/dev/null | grep -q '^jdk\.compiler@' || { \
	  echo "$(JAVA) has no compiler: apt install openjdk-$(JAVA_MAJOR)-jdk-headless, or set JAVA_HOME" >&2; \
	  exit 1; }

.PHONY: need-node
need-node:
	@command -v npm >/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq npm > /dev/null; \
	  else echo "npm is missing: apt install npm" >&2; exit 1; fi; }
	@node -e 'process.exit(process.versions.node.split(".")[0] < $(NODE_MAJOR) ? 1 : 0)' || { \
	  echo "node is $$(node --version); $(NODE_MAJOR) or later is needed" >&2; exit 1; }

.PHONY: test-sqs
test-sqs: $(STAMP) need-java-compiler need-node ## Programs of Amazon SQS, unchanged: AWS CLI, Celery, kombu, Java, sqs-consumer; and moto beside it
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group sqs
	$(PYTHON) -m tests.sqs.jars
	$(BIN)/pytest -q -n 2 tests/sqs $(PYTEST_ARGS)

##@ Long runs

.PHONY: fuzz
fuzz: $(STAMP) ## All property tests with many examples, two hours on two cores, from a seed of their own (SEED=... repeats one)
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); \
	  echo "to repeat it: make fuzz SEED=$$seed"; \
	  HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -v -n auto -p no:randomly -o timeout=7200 \
	  --hypothesis-seed=$$seed tests/property $(PYTEST_ARGS) && \
	  $(PYTHON) -m tests.fuzz.chunks --mutants 200000 --seed $$seed && \
	  $(PYTHON) -m tests.fuzz.chunks --typed --mutants 200000 --seed $$seed

.PHONY: fuzz-chunks
fuzz-chunks: $(STAMP) ## 200,000 altered chunks: does one crash a reader? (FUZZ_ARGS='--typed --seed S --first N --mutants 1')
	$(PYTHON) -m tests.fuzz.chunks --mutants 200000 $(FUZZ_ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Bugs on purpose: which test finds which? (MUTANTS_ARGS=--machine: without unit tests)
	$(PYTHON) -m tests.mutants $(MUTANTS_ARGS)

.PHONY: mutants-pure
mutants-pure: $(STAMP) ## The same with each operator and argument of pure modules; three minutes
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group mutants
	$(PYTHON) -m tests.mutants.pure $(MUTANTS_ARGS)

.PHONY: linearizability
linearizability: $(STAMP) need-java ## Has every history an order, while a node is paused? For minutes
	$(BIN)/cassieq node download
	$(PYTHON) -m trials.linearizability $(LINEARIZABILITY_ARGS)

.PHONY: bench-tools
bench-tools: $(STAMP) need-java
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group bench
	$(BIN)/cassieq spark compile
	$(BIN)/cassieq node download

.PHONY: bench
bench: bench-tools ## Beside Kafka and the Cassandra Connector: how fast is it? 40 minutes
	$(PYTHON) -m benchmarks.bench $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: bench-tools ## The same in six minutes: two kinds of messages, one round
	$(PYTHON) -m benchmarks.bench --quick $(BENCH_ARGS)

.PHONY: bench-docs
bench-docs: bench-tools ## Write the figures of the last `make bench` into the tables of the docs
	$(PYTHON) -m benchmarks.bench.pages dist/bench/figures.jsonl

.PHONY: poison
poison: bench-tools ## One message of 100,000 kills its worker, every time: who else suffers?
	$(PYTHON) -m trials.poison --figure docs/figures/poison.svg $(POISON_ARGS)

.PHONY: competing
competing: bench-tools ## Three queries share 1,000,000 messages, and are killed now and then
	$(PYTHON) -m trials.competing $(COMPETING_ARGS)

.PHONY: replays
replays: bench-tools ## Queries are killed at the worst moments, 1 to 6 times: is anything published twice?
	$(PYTHON) -m trials.replays $(REPLAYS_ARGS)

.PHONY: competing-readers
competing-readers: bench-tools ## Threads, clients and processes of one group share a queue: LWTs a receive, and seconds
	$(PYTHON) -m trials.competing.readers $(COMPETING_READERS_ARGS)

.PHONY: sharing
sharing: bench-tools ## Readers of 16 partitions come, stop, hang and are killed: are their shares even?
	$(PYTHON) -m trials.sharing --draw docs/figures/sharing.svg $(SHARING_ARGS)

.PHONY: soak
soak: bench-tools ## Everybody at once for 10 minutes, and all dies now and then: is anything off?
	$(PYTHON) -m trials.soak $(SOAK_ARGS)

.PHONY: chaos
chaos: bench-tools ## Three nodes, a Spark cluster, 10 minutes of kills and pauses: is a message lost?
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group chaos
	$(PYTHON) -m trials.chaos $(CHAOS_ARGS)

.PHONY: bdqs
bdqs: bench-tools ## The experiments of the BDQS paper, and docs/bdqs.md of what came out; 11 minutes
	$(PYTHON) -m trials.bdqs run $(BDQS_ARGS)
	$(PYTHON) -m trials.bdqs report

.PHONY: attack
attack: bench-tools ## Attacks on a gateway and its tables: is any open, and do others suffer?
	$(PYTHON) -m trials.attack $(ATTACK_ARGS)

.PHONY: gateways
gateways: bench-tools ## Two gateways, one killed every 20 s, and clients of SQS: what do they see?
	$(PYTHON) -m trials.gateways $(GATEWAYS_ARGS)

.PHONY: fuzz-gateway
fuzz-gateway: $(STAMP) ## 200,000 requests to each door that nobody would send: is any answered with a 5xx? (SEED=... repeats one)
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); \
	  echo "to repeat it: make fuzz-gateway SEED=$$seed REQUESTS=$(or $(REQUESTS),200000)"; \
	  CASSIEQ_FUZZ_REQUESTS=$(or $(REQUESTS),200000) $(BIN)/pytest -q -p no:randomly \
	  -o timeout=36000 --hypothesis-seed=$$seed tests/integration/gateway/test_description.py \
	  tests/integration/gateway/test_sqs_fuzz.py $(PYTEST_ARGS)

.PHONY: bench-gateway
bench-gateway: bench-tools ## Put, get and ack by HTTP with 1 to 128 clients: messages, LWTs and reads
	$(PYTHON) -m benchmarks.gateway $(BENCH_GATEWAY_ARGS)

.PHONY: bench-capacity
bench-capacity: bench-tools ## Measure and check the capacity model, and renew docs/capacity.md; 10 minutes
	$(PYTHON) -m benchmarks.capacity
	$(PYTHON) -m benchmarks.capacity --check

##@ Running

.PHONY: demo
demo: $(STAMP) need-java ## Watch the queue work (CONTACT_POINTS=host[:port],... for your own Cassandra)
	$(PYTHON) -m demo $(if $(CONTACT_POINTS),--contact-points $(CONTACT_POINTS))

.PHONY: node-up
node-up: $(STAMP) need-java ## Start Cassandra in the background (NODES=3 for three nodes)
	$(BIN)/cassieq node up --detach $(if $(NODES),--nodes $(NODES))

.PHONY: node-down
node-down: $(STAMP) ## Stop it
	$(BIN)/cassieq node down

##@ Documents

.PHONY: docs
docs: $(STAMP) ## Build the site into dist/site; links are checked
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.PHONY: docs-version
docs-version: $(STAMP) ## Commit the site of VERSION=... to the local branch gh-pages; stable is the newest
	@test -n "$(VERSION)" || { echo "name it, as in: make docs-version VERSION=0.1.0" >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group docs
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(VERSION) stable
	$(BIN)/mike set-default stable

.PHONY: test-docs
test-docs: $(STAMP) need-java ## Run every program and check every command in the documents
	$(BIN)/cassieq node download
	$(BIN)/pytest -q tests/docs $(PYTEST_ARGS)

.PHONY: figures
figures: $(STAMP) ## Draw the pictures of the documents
	for figure in architecture batch life; do $(PYTHON) -m docs.figures.$$figure docs/figures/$$figure.svg; done

.PHONY: console-pictures
console-pictures: $(STAMP) need-chromium ## Take the pictures of the console anew
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group browser
	$(PYTHON) -m docs.figures.console docs/figures/console

.PHONY: notebook
notebook: $(STAMP) need-java ## Run the notebook of examples, and write docs/notebooks.md of what it shows
	$(BIN)/cassieq node download
	mkdir -p dist
	$(PYTHON) -m docs.notebook > dist/notebooks.md
	mv dist/notebooks.md docs/notebooks.md

##@ Release

.PHONY: hashes
hashes: $(STAMP) ## Write the digests of all files of the versions in constraints.txt anew
	test -x dist/uv/bin/uv || { $(PYTHON_BASE) -m venv dist/uv && dist/uv/bin/pip install --quiet uv; }
	dist/uv/bin/uv pip compile --quiet --generate-hashes --no-deps --no-annotate --no-header \
	  --upgrade --python $(PYTHON) --output-file dist/constraints.txt constraints.txt > /dev/null
	{ sed '/==/,$$d' constraints.txt; cat dist/constraints.txt; } > dist/with-hashes.txt
	mv dist/with-hashes.txt constraints.txt


.PHONY: cassandra-jars
cassandra-jars: $(STAMP) need-java ## Write anew which jars Cassandra consists of, with their digests
	$(PYTHON) -m benchmarks.bench.jars

.PHONY: viewer
viewer: ## Get the viewer of the gateway's page anew from npm, by version and digest
	rm -rf dist/viewer && mkdir -p dist/viewer
	cd dist/viewer && npm pack --silent swagger-ui-dist@$(SWAGGER_UI)
	test "$$(openssl dgst -sha512 -binary dist/viewer/*.tgz | base64 -w0)" = $(SWAGGER_UI_SHA512)
	tar xzf dist/viewer/*.tgz -C dist/viewer --no-same-owner
	cd dist/viewer/package && install -m 644 swagger-ui-bundle.js swagger-ui-bundle.js.LICENSE.txt \
	  swagger-ui.css LICENSE NOTICE $(CURDIR)/cassieq_spark/http/gateway/viewer

.PHONY: console-script
console-script: ## Get the script anew that renews pages of the console, from npm by version and digest
	rm -rf dist/console-script && mkdir -p dist/console-script
	cd dist/console-script && npm pack --silent idiomorph@$(IDIOMORPH)
	test "$$(openssl dgst -sha512 -binary dist/console-script/*.tgz | base64 -w0)" = $(IDIOMORPH_SHA512)
	tar xzf dist/console-script/*.tgz -C dist/console-script --no-same-owner
	cd dist/console-script/package && install -m 644 dist/idiomorph.min.js \
	  $(CURDIR)/cassieq_spark/console/static
	install -m 644 dist/console-script/package/LICENSE \
	  cassieq_spark/console/static/idiomorph.LICENSE

.PHONY: release-tools
release-tools: $(STAMP)
	$(PYTHON) -m pip install --quiet --require-hashes --constraint constraints.txt --group release

.PHONY: build
build: release-tools ## Build the source archive, and the wheel from it, into dist; both are checked
	rm -f dist/cassieq_spark-*
	$(PYTHON) -m hatchling build --target sdist --directory dist
	$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist \
	  dist/cassieq_spark-*.tar.gz
	$(BIN)/twine check --strict dist/cassieq_spark-*
	$(BIN)/check-wheel-contents dist/cassieq_spark-*.whl

.PHONY: release-version
release-version: ## Is VERSION=... the version of the package, with a section in the changelog?
	@grep -qx '__version__ = "$(VERSION)"' cassieq_spark/__init__.py || { \
	  echo "cassieq_spark/__init__.py has another version than $(VERSION)" >&2; exit 1; }
	@grep -q '^## $(VERSION) ' CHANGELOG.md || { \
	  echo "CHANGELOG.md has no section '## $(VERSION) (date)'" >&2; exit 1; }

.PHONY: clean
clean: ## Remove what was made, .venv included
	rm -rf $(VENV) $(SPARK_42) $(LOWEST) dist spark-warehouse metastore_db derby.log .coverage \
	  .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find cassieq_spark pyspark_cassieq tests -name __pycache__ -type d -prune -exec rm -rf {} +
