"""The service: `POST /plan`, and all that it needs."""

import os

# One thread a process (docs/decisions/0004-one-thread-a-process.md): numpy's library reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
