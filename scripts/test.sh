#!/bin/sh
# Runs all tests, measuring coverage also in subprocesses, then the gate. Expects a ready .venv.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python

"$python" -m coverage erase
status=0
"$python" -m coverage run -m pytest "$@" || status=$?
"$python" -m coverage combine --quiet || true # nothing was measured: the report says so
[ "$status" -eq 0 ] || exit "$status"
exec "$python" -m coverage report
