"""When two sides are compared round by round: what disturbs a whole round then cancels out."""

from collections.abc import Mapping
from typing import Any

Visit = tuple[str, str, int]
"""Campaign, host and round: a time and a place that several trials share."""


def shared_visits(*sides: Mapping[Visit, Any]) -> list[Visit]:
    """The visits that pair all of some sides, in order; none if they are too few to pair by.

    One alone has no interval, and few of many would throw most processes away.
    """
    shared = sorted(set.intersection(*(set(side) for side in sides)))
    return shared if len(shared) >= 2 and 2 * len(shared) >= min(map(len, sides)) else []
