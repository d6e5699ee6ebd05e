"""`python -m prowess.worker`: how a host starts a worker."""

from __future__ import annotations

import gc

gc.disable()  # imports make many objects and drop hardly any: searching for garbage would take a tenth of the start

from prowess.worker.serving import main  # noqa: E402 - see above

gc.enable()
gc.freeze()

if __name__ == "__main__":
    main()
