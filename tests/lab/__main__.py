"""`python -m tests.lab up|down|status|seed`, in the root of the project: the lab that `make lab` starts."""

import argparse
import sys
from contextlib import closing
from pathlib import Path

from orchestrator.environments import Catalogue, connect, ensure_image
from orchestrator.errors import TaxmeterError
from tests.lab.host import MAX_HOSTS
from tests.lab.image import PROJECT
from tests.lab.lab import Lab


def main() -> int:
    """Runs one command and returns its exit code."""
    arguments = _parser().parse_args()
    lab = Lab()
    try:
        if arguments.command == "up":
            lab.up(arguments.hosts)
            if arguments.environments:
                seed(lab, arguments.environments)
            show(lab)
            print(f"\nmake cluster-sweep INVENTORY={_shown(lab.inventory())}")
        elif arguments.command == "seed":
            seed(lab, arguments.environments)
        elif arguments.command == "down":
            lab.down()
        else:
            show(lab)
    except TaxmeterError as error:
        print(f"lab: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


def seed(lab: Lab, environments: list[str]) -> None:
    """Gives the images of environments to all hosts; an image that this machine lacks is built.

    Raises:
        TaxmeterError: an environment is unknown, or its image cannot be had.
    """
    catalogue = Catalogue.load(PROJECT / "docker" / "images.yaml")
    with closing(connect()) as client:
        images = [ensure_image(catalogue.entry(name), client, print).reference for name in environments]
    print(f"giving {', '.join(images)} to the lab hosts")
    lab.seed(images)


def show(lab: Lab) -> None:
    """Prints how each host is."""
    hosts = lab.status()
    if not hosts:
        print("the lab is down; make lab brings it up")
    for host in hosts:
        print(f"{host.name:4} {host.address:15} {host.state:13} {host.labels}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring the lab up; nothing happens to one that is up")
    up.add_argument("--hosts", type=int, default=3, choices=range(1, MAX_HOSTS + 1), metavar="N")
    up.add_argument("environments", nargs="*", help="environments whose images all hosts get")
    commands.add_parser("seed", help="give images to all hosts").add_argument("environments", nargs="+")
    commands.add_parser("down", help="remove all of the lab")
    commands.add_parser("status", help="how each host is")
    return parser


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
