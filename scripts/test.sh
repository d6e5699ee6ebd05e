#!/bin/sh
# Runs all tests, side by side, in two parts; then the gate. Expects a ready .venv.
#
# The tracer makes everything two to three times slower, and each process 0.15 s longer. So only those tests are
# measured that alone have to reach every branch of packages/prowess-core, with the processes that they start. The
# tests of the host mostly wait for processes, hence twice as many of them at a time as there are cores.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
cores=$("$python" -c "import os; print(len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())")
measured="tests/prowess tests/contracts"
status=0

echo "test: running $measured, and measuring their coverage of packages/prowess-core, in subprocesses too"
"$python" -m coverage erase
# shellcheck disable=SC2086 # they are two folders
"$python" -m coverage run -m pytest -n "${TEST_PROCESSES:-$cores}" $measured "$@" || status=$?
"$python" scripts/coverage_files.py
"$python" -m coverage combine --quiet || true # nothing was measured: the report says so
"$python" -m coverage report || status=$?

echo "test: running all other tests"
# shellcheck disable=SC2046
"$python" -m pytest -n "${TEST_PROCESSES:-$((2 * cores))}" $(printf -- '--ignore=%s ' $measured) "$@" || status=$?
exit "$status"
