"""`python -m runners TASK_DIR`: runs the trials of a task directory in this Python environment."""

import sys

from runners.supervision.start import run_directory

_EXIT_USAGE = 64

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m runners TASK_DIR", file=sys.stderr)
        sys.exit(_EXIT_USAGE)
    sys.exit(run_directory(sys.argv[1]))
