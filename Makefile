# Two commands set everything up on a machine that has Python 3.11+ and make:
#   make demo    the main job, live, in under a minute once installed
#   make test    all tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Workers for the tests: three for two cores, since real fleets and clusters wait much of the time.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((3 * (os.cpu_count() or 1) + 1) // 2)')

.PHONY: help demo test test-vllm check sim mutants fuzz bench bench-gateway fix generate wheel clean

help:
	@sed -n 's/^#\(   *make.*\)/\1/p' Makefile

$(VENV)/python-ok:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "vctl needs Python 3.11 or newer: make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "no venv module: install it (Debian: python3-venv), or use a Python that has it" >&2; exit 1; }
	@touch $@

# What `make demo` needs: vctl, the reference engine, and an etcd for machines that have none.
$(VENV)/runtime-ok: $(VENV)/python-ok pyproject.toml constraints.txt
	@echo "installing vctl with its reference engine into $(VENV) ..."
	@$(PIP) --editable '.[torch,etcd]'
	@touch $@

$(VENV)/dev-ok: $(VENV)/python-ok pyproject.toml constraints.txt
	@echo "installing vctl with its development tools into $(VENV) ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/runtime-ok

demo: $(VENV)/runtime-ok
	$(BIN)/vctl demo

test: $(VENV)/dev-ok
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

#   make test-vllm  the engine's adapter on a real vLLM on this CPU: 3.4 GB in .venv-vllm, once
VLLM := .venv-vllm
$(VLLM)/vllm-ok: tests/vllm/install.py
	@echo "installing vLLM into $(VLLM) ..."
	@$(PYTHON) tests/vllm/install.py $(VLLM)
	@touch $@

test-vllm: $(VENV)/dev-ok $(VLLM)/vllm-ok
	VCTL_VLLM=$(VLLM) $(BIN)/python -m pytest -p no:xdist -m vllm tests/engines tests/vllm

#   make check   style, types, the rooms' borders, generated files up to date
check: $(VENV)/dev-ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m vctl_cli.manpage --check
	$(BIN)/python -m vctl_cli.schemas --check
	$(BIN)/python -m vctl_plans.diagram --check

#   make sim     20,000 histories of simulated fleets; SIM='--seed 7 --histories 500' for others
SIM ?=
sim: $(VENV)/dev-ok
	$(BIN)/python -m tests.sim.run $(SIM)

#   make mutants  break the source on purpose, each way once: the simulator or a test must notice
MUTANTS ?=
mutants: $(VENV)/dev-ok
	$(BIN)/python -m tests.sim.mutations $(MUTANTS)

#   make fuzz    coverage-guided fuzzing of what reads weights, for FUZZ_S seconds
FUZZ_S ?= 60
fuzz: $(VENV)/dev-ok
	@$(BIN)/python -c 'import atheris' 2>/dev/null \
	  || $(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: 'atheris>=3,<4' \
	  || echo "no wheel of atheris for this Python and machine" >&2
	$(BIN)/python -m tests.fuzz.atheris_run $(FUZZ_S)

#   make bench   speed beside b3sum and others; BENCH='--size 2G --rounds 15' for more
BENCH ?=
bench: $(VENV)/dev-ok
	$(BIN)/python -m bench.weights $(BENCH)

#   make bench-gateway  the gateway beside a plain engine and vllm-router (in a venv of its own)
BENCH_GATEWAY ?=
bench-gateway: $(VENV)/dev-ok .venv-router/ok
	$(BIN)/python -m bench.gateway --router .venv-router/bin/python $(BENCH_GATEWAY)

.venv-router/ok:
	@$(PYTHON) -m venv .venv-router
	@.venv-router/bin/python -m pip --disable-pip-version-check install --quiet vllm-router==0.1.17
	@touch $@

#   make fix     let ruff mend what it can
fix: $(VENV)/dev-ok
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

#   make generate  write the generated files anew
generate: $(VENV)/dev-ok
	$(BIN)/python -m vctl_cli.manpage
	$(BIN)/python -m vctl_cli.schemas
	$(BIN)/python -m vctl_plans.diagram

#   make wheel   build the wheel into dist/
wheel: $(VENV)/dev-ok
	$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf $(VENV) $(VLLM) dist build
