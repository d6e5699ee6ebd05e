#!/bin/sh
# Runs all tests, side by side, in two parts at once; then the gates. Expects a ready .venv.
#
# The tracer makes everything two to three times slower, and each process 0.15 s longer. So only those tests are measured
# that alone have to reach every branch of packages/prowess-core, with the processes that they start: tests/prowess, but
# for the property tests, which try what others reach as well (`conftest.py` marks what is measured). The other tests
# mostly wait for processes, hence three times as many of them at a time as there are cores, and the measured ones beside them.
# They measure the statements of packages/prowess-host, in a way that costs next to nothing (tests/statements.py).
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
cores=$("$python" -c "import os; print(len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())")
properties=$(grep -rl --include='test_*.py' '^@given' tests/prowess)
others=$(printf '%s\n' skills tests/*/ | grep -vx -e tests/prowess/ -e tests/__pycache__/)
told=$(mktemp)
trap 'rm -f "$told"' EXIT
status=0

measured() {
    failed=0
    "$python" -m coverage erase
    "$python" -m coverage run -m pytest -n "${TEST_PROCESSES:-$cores}" -m measured tests/prowess "$@" || failed=$?
    "$python" scripts/coverage_files.py
    "$python" -m coverage combine --quiet || true # nothing was measured: the report says so
    "$python" -m coverage report || failed=$?
    return "$failed"
}

echo "test: running tests/prowess, and measuring its coverage of packages/prowess-core, in subprocesses too"
{
    measured "$@" >"$told" 2>&1 || true
    printf '\ntest: tests/prowess is done: %s\n' "$(grep -E '^=+ .* in [0-9.]+s' "$told" | tr -d =)"
    exit "$failed"
} &
export STATEMENTS="$PWD/.statements"
"$python" tests/statements.py begin
echo "test: running all other tests beside it; what the first part has to say in full is shown at the end"
# shellcheck disable=SC2086 # they are folders and files
"$python" -m pytest -n "${TEST_PROCESSES:-$((3 * cores))}" -m "not measured" $others $properties "$@" || status=$?
wait "$!" || status=$?
cat "$told"
"$python" tests/statements.py report || status=$?
exit "$status"
