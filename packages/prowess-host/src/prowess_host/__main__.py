"""`python -m prowess_host`: starts the host, or a command of `prowess` that the first argument names."""

from __future__ import annotations

import sys

from prowess_host.cli.main import main

if __name__ == "__main__":
    given = sys.argv[1:]
    main(given if given and not given[0].startswith("-") else ["host", *given])
