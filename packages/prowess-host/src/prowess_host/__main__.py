"""`python -m prowess_host`: starts the host."""

from __future__ import annotations

from prowess_host.cli.main import main

if __name__ == "__main__":
    main(["host", *__import__("sys").argv[1:]])
