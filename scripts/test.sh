#!/bin/sh
# Runs all tests, side by side, in two parts at once; then the gates. Expects a ready .venv.
#
# The first part alone has to reach every branch of packages/prowess-core, with the processes that it starts: tests/prowess,
# but for the property tests, which try what others reach as well (`conftest.py` marks what is measured). The other part has to
# run most statements of packages/prowess-host. Its tests mostly wait for processes, hence four times as many of them at a
# time as there are cores, and the first part beside them. `tests/statements.py` measures both.
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
    STATEMENTS="$PWD/.statements/core" "$python" -m pytest -n "${TEST_PROCESSES:-$cores}" -m measured tests/prowess "$@" || failed=$?
    "$python" tests/statements.py report core || failed=$?
    return "$failed"
}

echo "test: running tests/prowess, and measuring what it runs of packages/prowess-core, in subprocesses too"
"$python" tests/statements.py begin core
"$python" tests/statements.py begin host
{
    measured "$@" >"$told" 2>&1 || true
    printf '\ntest: tests/prowess is done: %s\n' "$(grep -E '^=+ .* in [0-9.]+s' "$told" | tr -d =)"
    exit "$failed"
} &
echo "test: running all other tests beside it; what the first part has to say in full is shown at the end"
# shellcheck disable=SC2086 # they are folders and files
STATEMENTS="$PWD/.statements/host" "$python" -m pytest -n "${TEST_PROCESSES:-$((4 * cores))}" -m "not measured" $others $properties "$@" || status=$?
wait "$!" || status=$?
cat "$told"
"$python" tests/statements.py report host || status=$?
exit "$status"
