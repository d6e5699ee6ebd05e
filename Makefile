# Every path here is relative, so that a checkout whose path has a space in it works like any other.
# Choose an interpreter with `make PYTHON=python3.12 …`; without that, the newest one that runs is taken.

PYTHON ?=
ARGS ?=
export PYTHON
# Each of some thousand processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test prepare docs reference screens pytest property test-lowest cov check format lint types fix wheels conformance programs catalog soak simulate load bench clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

run: ## set up, and show the product doing its main job
	@sh scripts/prepare.sh run
	@$(PY) scripts/show.py

prepare: ## install everything that the other targets need
	@sh scripts/prepare.sh all

docs: ## build the documentation site into site/, and check its links
	@sh scripts/prepare.sh docs
	@.venv-docs/bin/python scripts/docs.py

reference: ## rewrite the generated parts of the documentation: tables, schemas/prowess.toml.schema.json, llms.txt
	@sh scripts/prepare.sh test
	@$(PY) scripts/reference.py

screens: ## update the pictures of the command line in the documentation
	@sh scripts/prepare.sh test
	@$(PY) scripts/screens.py

test: ## set up, and run all the tests with the coverage gates
	@sh scripts/prepare.sh test
	@sh scripts/test.sh

pytest: ## run some tests, without the gates: make pytest ARGS="-k O-12"
	@sh scripts/prepare.sh test
	@$(PY) -m pytest $(ARGS)

property: ## run each property test for a minute
	@sh scripts/prepare.sh test
	@HYPOTHESIS_PROFILE=thorough $(PY) -m pytest -m hypothesis -n auto $(ARGS)

test-lowest: ## run the tests on the lowest supported versions of the dependencies
	@sh scripts/prepare.sh lowest
	@.venv-lowest/bin/python -m pytest $(ARGS)

cov: ## show what the last `make test` did not run of the core and of the host
	@$(PY) tests/statements.py report core --all; $(PY) tests/statements.py report host --all

check: format lint types ## all static checks: format, lint, types

format:
	@sh scripts/prepare.sh check
	@$(PY) -m ruff format --check .

lint:
	@sh scripts/prepare.sh check
	@$(PY) -m ruff check .

types:
	@sh scripts/prepare.sh check
	@$(PY) -m pyright

fix: ## format, and apply the fixes of the linter
	@sh scripts/prepare.sh check
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

wheels: ## build each wheel, install it alone in a fresh environment, and import it
	@sh scripts/prepare.sh check
	@$(PY) scripts/wheels.py

conformance: ## run the official conformance suite on the host, over stdio and over HTTP
	@sh scripts/prepare.sh check
	@$(PY) tests/conformance/run.py $(ARGS)

programs: ## let the clients' own programs list the servers that `prowess connect` wrote (downloads 1.3 GB from npm)
	@sh scripts/prepare.sh test
	@npm install --prefix .cache/programs --no-audit --no-fund --ignore-scripts --no-save @openai/codex @anthropic-ai/claude-code @google/gemini-cli @github/copilot opencode-ai
	@npm rebuild --prefix .cache/programs --loglevel=error @anthropic-ai/claude-code opencode-ai # puts their programs in place
	@CLIENT_PROGRAMS=.cache/programs/node_modules/.bin $(PY) -m pytest -q tests/clients/test_programs.py $(ARGS)

catalog: ## check that schemas/catalog.json is up to date, and that no caller is broken
	@sh scripts/prepare.sh run
	@.venv/bin/prowess build --check
	@.venv/bin/prowess check

soak: ## chaos test of the host, ten minutes or longer: make soak ARGS="--minutes 30 --seed 7"
	@sh scripts/prepare.sh test
	@PYTHONPATH=tests $(PY) tests/soak/soak.py $(ARGS)

simulate: ## simulate thousands of hosts in virtual time: make simulate ARGS=5 for five seeds
	@sh scripts/prepare.sh test
	@PYTHONPATH=tests/simulation $(PY) tests/simulation/fleet.py $(ARGS)

load: ## load test: 200 clients over HTTP while workers die
	@sh scripts/prepare.sh test
	@LOAD_CLIENTS=200 LOAD_CALLS=50 $(PY) -m pytest -n 0 -q tests/prowess_host/http/test_serve.py -k under_load $(ARGS)

bench: ## benchmark Prowess beside other servers, and print the tables
	@sh scripts/prepare.sh test
	@$(PY) benchmarks/run.py $(ARGS)

clean: ## remove everything that make has built
	@rm -rf tests/conformance/node_modules tests/clients/node_modules .venv .venv-docs .venv-lowest build dist site .cache .statements .pytest_cache .ruff_cache .hypothesis
