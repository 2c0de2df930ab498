"""`python3 -m runners.check OUT [--quick] [--only NAME,NAME]`; docs/gpu.md says what each check means."""

import argparse
import os
import sys

from runners.check import running
from runners.supervision.process import PRIVATE_NAMESPACE_VARIABLE
from runners.supervision.surroundings import settle

LEAST_S = 30
"""Below this hardly a check can be begun."""


def main() -> int:
    """Runs the checks; 0 if none failed, 1 if one did, 3 if all were skipped."""
    parser = argparse.ArgumentParser(prog="python3 -m runners.check", description="Checks a machine with a GPU.")
    parser.add_argument("out", help="an empty or new directory for check.jsonl, check.log and rows.tar")
    parser.add_argument("--quick", action="store_true", help="ends within two minutes, with less in each check")
    parser.add_argument("--seconds", type=int, metavar="N", help="ends within so many, 540 or with --quick 110")
    parser.add_argument("--rehearse", action="store_true", help="shrunk models: tries the way of it, measures nothing")
    parser.add_argument("--only", metavar="NAMES", help="of " + ", ".join(running.NAMES))
    given = parser.parse_args()
    names = (given.only or ",".join(running.NAMES)).split(",")
    unknown = [name for name in names if name not in running.NAMES]
    if unknown:
        parser.error("no check is called %s; there are %s" % (unknown[0], ", ".join(running.NAMES)))
    if given.seconds is not None and given.seconds < LEAST_S:
        parser.error("--seconds %d: expected %d or more" % (given.seconds, LEAST_S))
    settle(on_gpu=True)
    # A runner would end all other processes of the container: here they are the checks that started it
    os.environ.pop(PRIVATE_NAMESPACE_VARIABLE, None)
    size = running.Size(given.quick, given.rehearse)
    return running.run_all(names, given.out, size, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
