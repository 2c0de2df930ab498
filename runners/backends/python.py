"""Calls a workload that is plain Python."""

from typing import Any, Optional, cast

from runners.backends.base import Backend
from runners.workloads.base import Call


class Python(Backend):
    """No framework at all."""

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        return cast(Call, model)
