#!/bin/sh
# Runs all tests, side by side, measuring coverage also in subprocesses; then the gate. Expects a ready .venv.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python

echo "test: running all tests; the coverage of packages/ is measured, in subprocesses too"
"$python" -m coverage erase
status=0
"$python" -m coverage run -m pytest -n "${TEST_PROCESSES:-auto}" "$@" || status=$?
"$python" scripts/coverage_files.py
"$python" -m coverage combine --quiet || true # nothing was measured: the report says so
[ "$status" -eq 0 ] || exit "$status"
exec "$python" -m coverage report
