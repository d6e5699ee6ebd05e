#!/bin/sh
# Prints the Python to use: $PYTHON, else that of .venv, else the newest on PATH that is at least 3.11 and really runs.
# A command that exists need not run (version managers leave shims for versions that are not active), so each is executed.
set -eu
cd "$(dirname "$0")/.."

probe='import sys; sys.exit(sys.version_info < (3, 11))'
command -v uv >/dev/null 2>&1 || probe="import ensurepip, venv; $probe"  # without uv, the environment needs a pip

fits() {
    "$1" -c "$probe" >/dev/null 2>&1 </dev/null
}

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" && echo "$PYTHON" && exit 0
    echo "PYTHON=$PYTHON is no working Python 3.11 or newer (with venv and ensurepip, or with uv on PATH)." >&2
    exit 1
fi

for candidate in .venv/bin/python python3.15 python3.14 python3.13 python3.12 python3.11 python3 python; do
    fits "$candidate" && echo "$candidate" && exit 0
done
echo "No Python 3.11 or newer was found on PATH. Install one, or name it: make PYTHON=/path/to/python3 …" >&2
echo "(Some systems ship Python without venv and ensurepip: there, install the package python3-venv, or uv.)" >&2
exit 1
