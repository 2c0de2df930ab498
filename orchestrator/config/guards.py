"""The key `guards` of a sweep: what is watched around each trial; see docs/measurement.md."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.config.documents import StrictModel
from runners.contract import (
    ClockRule,
    ClocksGuard,
    GpuProcessesGuard,
    GuardPolicy,
    Guards,
    LoadGuard,
    ThrottlingGuard,
)

Policy = Literal["off", "flag", "wait", "error"]
POLICIES: Final = tuple(policy.value for policy in GuardPolicy)
GUARDS: Final = ("gpu_processes", "load", "throttling", "clocks")

_Permille = Annotated[int, Field(ge=0, le=1000)]
_MAX_WAIT_S: Final = 86_400
_DEFAULTS: Final = Guards()


def _policy_alone(value: object) -> object:
    return {"policy": _policy(value)} if isinstance(value, str) else value


def _policy_of_all(value: object) -> object:
    return {name: _policy(value) for name in GUARDS} if isinstance(value, str) else value


def _policy(value: str) -> str:
    if value not in POLICIES:
        raise ValueError(f"unknown policy {value!r}; use one of {', '.join(POLICIES)}")
    return value


class _GuardSettings(StrictModel):
    policy: Policy = "flag"
    wait_s: int = Field(default=60, gt=0, le=_MAX_WAIT_S)
    """How long `wait` waits before a trial, in seconds."""

    @model_validator(mode="after")
    def _waits_only_if_asked_to(self) -> "_GuardSettings":
        if "wait_s" in self.model_fields_set and self.policy != "wait":
            raise ValueError(f"wait_s has no meaning with policy {self.policy}; remove it, or set policy: wait")
        return self


class GpuProcessesSettings(_GuardSettings):
    """Other users of the trial's GPUs."""

    max_memory_mib: int = Field(default=_DEFAULTS.gpu_processes.max_memory_mib, ge=0)
    max_busy_permille: _Permille = _DEFAULTS.gpu_processes.max_busy_permille


class LoadSettings(_GuardSettings):
    """Others on the trial's cores."""

    max_busy_permille: _Permille = _DEFAULTS.load.max_busy_permille
    window_ms: int = Field(default=_DEFAULTS.load.window_ms, ge=50, le=60_000)


class ThrottlingSettings(_GuardSettings):
    """Heat, power brake and quotas."""

    max_throttled_permille: _Permille = _DEFAULTS.throttling.max_throttled_permille


class ClocksSettings(_GuardSettings):
    """Settings that decide clocks."""

    require: Literal["unchanged", "fixed"] = "unchanged"


class GuardSettings(StrictModel):
    """All guards; each is a policy, or a mapping with its policy and limits. Unset ones flag."""

    gpu_processes: Annotated[GpuProcessesSettings, BeforeValidator(_policy_alone)] = GpuProcessesSettings()
    load: Annotated[LoadSettings, BeforeValidator(_policy_alone)] = LoadSettings()
    throttling: Annotated[ThrottlingSettings, BeforeValidator(_policy_alone)] = ThrottlingSettings()
    clocks: Annotated[ClocksSettings, BeforeValidator(_policy_alone)] = ClocksSettings()

    def contract(self) -> Guards:
        """The same settings as the runner reads them."""
        gpus, load, throttling, clocks = self.gpu_processes, self.load, self.throttling, self.clocks
        return Guards(
            gpu_processes=GpuProcessesGuard(
                GuardPolicy(gpus.policy), gpus.max_memory_mib, gpus.max_busy_permille, gpus.wait_s
            ),
            load=LoadGuard(GuardPolicy(load.policy), load.max_busy_permille, load.window_ms, load.wait_s),
            throttling=ThrottlingGuard(
                GuardPolicy(throttling.policy), throttling.max_throttled_permille, throttling.wait_s
            ),
            clocks=ClocksGuard(GuardPolicy(clocks.policy), ClockRule(clocks.require), clocks.wait_s),
        )


GuardsKey = Annotated[GuardSettings, BeforeValidator(_policy_of_all)]
"""As a sweep has it: a mapping, or one policy for all guards."""
