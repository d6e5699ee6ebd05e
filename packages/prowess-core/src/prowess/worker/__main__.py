"""`python -m prowess.worker`: how a host starts a worker."""

from __future__ import annotations

from prowess.worker.serving import main

if __name__ == "__main__":
    main()
