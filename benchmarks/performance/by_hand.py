"""One process that measures some configurations, as anybody writes it: WORKLOAD:BACKEND:BATCH each, on one thread.

It knows nothing of the runner and verifies nothing. The last line is how many seconds were in timed calls.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_loop import TOKENS, build, load

WARMUP_CALLS = 10
TIMED_CALLS = 30


def main() -> int:
    """Measures one after the other."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    timed_s = 0.0
    for wanted in sys.argv[1:]:
        workload, backend, batch = wanted.split(":")
        model, inputs = build(workload, int(batch), TOKENS)
        with torch.inference_mode():
            call = load(backend, model, inputs, 1)
            for _ in range(WARMUP_CALLS):
                call()
            for _ in range(TIMED_CALLS):
                start = time.perf_counter()
                call()
                timed_s += time.perf_counter() - start
    print(timed_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
