#!/bin/sh
# Makes an environment ready: scripts/prepare.sh run|test|check|all|lowest
set -eu
cd "$(dirname "$0")/.."
python=$(sh scripts/find-python.sh)
exec "$python" scripts/prepare.py "$@"
