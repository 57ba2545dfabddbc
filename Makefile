# One command checks everything that is fast: `make check`. CI runs it, then a sample of the slow suites.
# The environment is a virtual one in .venv; every target makes it first.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The package as users get it, compiled: the slow suites start their brokers from here.
RELEASE ?= .venv-release
RELEASE_PYTHON := $(CURDIR)/$(RELEASE)/bin/python
SOURCES := $(shell find src -name '*.py' -o -name '*.pxd' -o -name '*.pyx')

# Compiled modules are kept beside their sources, also where the caller's environment says not to: each
# process of the tests compiled the whole source otherwise, 15 seconds at each start of pytest.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group dev --group docs --group interop --group crash --group spark \
		--group tables --editable '.[spark]'
	touch $@

$(RELEASE)/.installed: pyproject.toml setup.py $(SOURCES)
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --upgrade pip
	$(RELEASE)/bin/python -m pip install --quiet --force-reinstall "$$($(RELEASE)/bin/python -m tools.release_wheel)[security,cluster]"
	touch $@

.PHONY: release
release: $(RELEASE)/.installed ## the package installed as users do, compiled

.PHONY: install
install: $(VENV)/.installed ## a virtual environment with everything the checks need

.PHONY: format
format: install ## rewrite the source in the one format
	$(BIN)/ruff format src tests tools benchmarks compat examples pipelines setup.py
	$(BIN)/ruff check --fix --quiet src tests tools benchmarks compat examples pipelines setup.py || true

FAST_TESTS = $(BIN)/python -m pytest -q -n 2 --durations 20
# Of the slow suites, SAMPLE_OF=N runs one test of N, chosen by the last commit, and all of changed files.
SAMPLE_OF ?= 1
SAMPLED = --sample-of $(SAMPLE_OF)

.PHONY: lint
lint: install ## format, lint, types, layers, generated files
	$(BIN)/ruff format --check --quiet src tests tools benchmarks compat examples pipelines setup.py
	$(BIN)/ruff check --quiet src tests tools benchmarks compat examples pipelines setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_messages.py --check
	$(BIN)/python tools/generate_reference.py --check
	$(BIN)/python tools/generate_dashboard.py --check
	$(BIN)/python tools/generate_pipeline_dashboard.py --check
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/check_commits.py

.PHONY: check
check: lint test ## everything that is fast: lint, then the fast tests

.PHONY: test
test: install ## the fast tests alone, at most 20 seconds each
	$(FAST_TESTS) --timeout 20

.PHONY: test-slow
test-slow: install ## tests of seconds each: real Delta and Iceberg tables, waits for time-outs; without Spark
	$(FAST_TESTS) $(SAMPLED) -m "slow and not spark"

# By its variable, which the processes that run the tests inherit. asyncio then checks more, and each test takes longer.
.PHONY: test-development
test-development: install ## fast and slow tests in Python's development mode, properties with 200 examples
	PYTHONDEVMODE=1 PENSTOCK_EXAMPLES=200 $(FAST_TESTS) -m "not (interop or crash or chaos or cluster_chaos or orchestrators or simulate or etcd or scale or bench or spark)"

.PHONY: test-testing
test-testing: install ## the fast tests of penstock.testing, which run on macOS too
	$(FAST_TESTS) tests/testing

$(RELEASE)/.tools-installed: $(RELEASE)/.installed
	$(RELEASE)/bin/python -m pip install --quiet --group dev --group docs --group interop --group spark --group tables
	touch $@

.PHONY: test-compiled
test-compiled: $(RELEASE)/.tools-installed ## the fast tests on the package as users get it
	$(RELEASE)/bin/python -c 'import penstock.broker.connections.session as module; assert module.__file__.endswith(".so"), "not compiled"'
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(RELEASE)/bin/python -X dev -m pytest -q \
		-m "not (uncompiled or interop or crash or chaos or cluster_chaos or orchestrators or simulate or etcd or scale or bench or spark)"

INTEROP_TESTS = PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -m interop -p no:randomly --timeout 600 \
	--durations 10 $(SAMPLED)
# Rates and waits are measured in these, so nothing else runs beside them. Three processes run the others.
MEASURING_TESTS := $(addprefix tests/,broker/handlers/test_fetch_waits.py broker/handlers/test_throttling.py \
	interop/test_quotas.py interop/test_secured_sessions.py)

SIM_SEEDS ?= 300
.PHONY: simulate
simulate: install release ## whole clusters of production brokers from SIM_SEEDS seeds, and an edge of 1,000 sites, under faults; each removed safeguard is found
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) PENSTOCK_SIM_SEEDS=$(SIM_SEEDS) $(FAST_TESTS) -m simulate tests/cluster_sim tests/edge_sim tests/edge_rules

.PHONY: chaos-cluster
chaos-cluster: install release ## three brokers and three etcd members in network namespaces, under faults; needs root
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -s -m cluster_chaos -p no:randomly tests/chaos_cluster

.PHONY: etcd
etcd: install ## the metadata store on a real etcd of one or three members, with faults
	$(BIN)/python -m pytest -q -p no:randomly --timeout 300 -m etcd tests/contracts tests/cluster_etcd

.PHONY: interop
interop: install release ## real clients against Penstock and Apache Kafka
	$(BIN)/python -c 'from tests.oracle.kafka_broker import make_class_data_archive as make; make()'
	$(INTEROP_TESTS) $(INTEROP_OPTIONS) -n 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(MEASURING_TESTS))
	$(INTEROP_TESTS) $(INTEROP_OPTIONS) $(MEASURING_TESTS)

.PHONY: interop-live
interop-live: ## the same, also the tests that passed against Apache Kafka before with the same content
	$(MAKE) interop INTEROP_OPTIONS=--live-kafka

.PHONY: interop-record
interop-record: ## the same, and tests/oracle/kafka_runs.txt notes the tests that passed against Apache Kafka
	$(MAKE) interop INTEROP_OPTIONS=--record-kafka

# Tests in an environment of PySpark $(1) on Python $(2), which is made at its first use.
spark_run = PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m tests.oracle.spark_environments \
	--spark $(1) --python $(2) -- -m pytest -v -p no:randomly --timeout 600 --durations 5

.PHONY: spark
spark: install release ## format("penstock") and Spark's own connector: PySpark 4.2 whole, 4.3 in part
	$(call spark_run,4.2.0,3.11) -m spark tests/spark
	$(call spark_run,4.3.0,3.12) -m "spark and every_spark" tests/spark

.PHONY: spark-failover
spark-failover: install release ## Spark's sink and tables while leaders of three brokers are killed
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -s -m spark -p no:randomly --timeout 3600 tests/spark/failover

.PHONY: orchestrators
orchestrators: install release ## the examples for Airflow and Dagster, which are installed at first; both brokers
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -s -m orchestrators -p no:randomly tests/spark/orchestration

.PHONY: spark-sample
spark-sample: install release ## the part of `make spark` that every version runs, on PySpark 4.2
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -p no:randomly --timeout 600 --durations 5 \
		-n 2 --dist loadfile $(SAMPLED) -m "spark and every_spark" tests/spark

.PHONY: spark-all
spark-all: install release ## all of it on every version of PySpark and Python, an hour
	$(call spark_run,4.2.0,3.11) -m spark tests/spark
	$(call spark_run,4.2.0,3.12) -m spark tests/spark
	$(call spark_run,4.3.0,3.11) -m spark tests/spark
	$(call spark_run,4.3.0,3.12) -m spark tests/spark

MODEL_EXAMPLES ?= 2000
.PHONY: models
models: install ## the coordinators against their models, MODEL_EXAMPLES examples each
	PYTHONHASHSEED=0 PENSTOCK_MODEL_EXAMPLES=$(MODEL_EXAMPLES) $(BIN)/python -m pytest -q -m model -n 2 --timeout 1200

.PHONY: crash
crash: install release ## crash points, kill -9, power cuts: the seeded sample
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -m crash -p no:randomly -n 2 --timeout 1200 --durations 5 \
		$(SAMPLED)

CHAOS_TESTS = $(BIN)/python -m pytest -q -m chaos -p no:randomly --timeout 600 --durations 5 $(SAMPLED)
# Waits are measured in these, so nothing else runs beside them.
MEASURING_CHAOS_TESTS := tests/hostile/test_hostile.py tests/soak/test_soak.py
.PHONY: chaos
chaos: install ## floods and bombs; histories of clients under faults
	$(CHAOS_TESTS) -n 2 $(addprefix --ignore=,$(MEASURING_CHAOS_TESTS))
	$(CHAOS_TESTS) $(MEASURING_CHAOS_TESTS)

HOSTILE_MINUTES ?= 10
.PHONY: hostile
hostile: install release ## each attack, then HOSTILE_MINUTES of mixes, beside a measured client; both builds
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m tests.hostile --build installed --minutes $(HOSTILE_MINUTES)
	$(BIN)/python -m tests.hostile --build source --minutes $(HOSTILE_MINUTES)

SOAK_MINUTES ?= 30
.PHONY: soak
soak: install release ## a broker at its limits for SOAK_MINUTES: nothing lost, memory flat, all counted
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES)

.PHONY: compat
compat: install release ## suites of others that are quick: the Java client, franz-go (compat/README.md)
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m compat.client_check.run
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m compat.franz_go.run

.PHONY: scale
scale: install release ## ten thousand connections, four thousand partitions
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m pytest -q -s -m scale -p no:randomly --timeout 1200 $(SAMPLED)

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: install ## every decoder, for FUZZ_SECONDS in all
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

.PHONY: reference
reference: install ## write the generated files anew
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python tools/generate_dashboard.py
	$(BIN)/python tools/generate_pipeline_dashboard.py

.PHONY: docs
docs: install ## the documentation's site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Checks the files in .github/workflows; a Go program, kept in the user's cache folder.
ACTIONLINT_VERSION := 1.7.12
ACTIONLINT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock/actionlint-$(ACTIONLINT_VERSION)/actionlint

$(ACTIONLINT):
	GOBIN=$(dir $@) go install github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT_VERSION)

.PHONY: workflows-check
workflows-check: $(ACTIONLINT) ## the CI definition in .github/workflows
	$(ACTIONLINT) -shellcheck= -pyflakes=

.PHONY: source-distribution
source-distribution: install ## the source distribution in dist/
	rm -rf dist/*.tar.gz
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m build --sdist
	$(BIN)/python -m twine check --strict dist/*.tar.gz

.PHONY: wheel
wheel: install ## a wheel for this Python in dist/, with the system libraries that it needs
	rm -rf dist/*.whl build
	$(BIN)/python -m pip install --quiet --group release
	PENSTOCK_COMPILE=1 $(BIN)/python -m build --wheel
	$(BIN)/python -m twine check --strict dist/*.whl
	$(BIN)/python -m auditwheel show dist/*.whl

.PHONY: deploy-check
deploy-check: install ## the steps of the container file in bare systems, some minutes; needs root and debootstrap
	$(BIN)/python tools/container_steps.py

.PHONY: bench
bench: install release ## side by side with Apache Kafka, interleaved, medians and spread
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.side_by_side

.PHONY: bench-idle
bench-idle: install release ## CPU and memory of a broker that nobody uses, side by side
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.idle

.PHONY: bench-groups
bench-groups: install release ## groups and transactions, side by side and at scale
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.groups compare
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.groups scale

.PHONY: bench-cluster
bench-cluster: install release ## three brokers beside three of Apache Kafka: replication, latency, failures
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.cluster

.PHONY: bench-testing
bench-testing: install ## what a broker costs a test, beside Apache Kafka; writes the table
	$(BIN)/python -m benchmarks.testing_start --markdown

.PHONY: bench-spark
bench-spark: install release ## format("penstock") beside Spark's own connector, and real-time mode
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.spark_throughput
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.spark_realtime

.PHONY: bench-tables
bench-tables: install release ## topic to table beside Spark's own connector: rows per second, formats, and freshness
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.tables_throughput
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.tables_formats
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python -m benchmarks.tables_freshness

.PHONY: proof
proof: install release ## the full counts behind docs/proofs.md
	PENSTOCK_BROKER_PYTHON=$(RELEASE_PYTHON) $(BIN)/python tools/prove.py
