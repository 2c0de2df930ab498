"""The declared parameter space: `sweeps/*.yaml`."""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from orchestrator.config.documents import Document, SettingError, Source, StrictModel, load_yaml
from orchestrator.config.sweep_values import (
    DIRECTORY,
    STORED,
    UserModule,
    consistent,
    guards_in_full,
    read_module,
    within_bounds,
)
from orchestrator.errors import did_you_mean
from runners.contract import LEGACY, Guards, Protocol
from runners.contract.catalogue import BACKENDS, WORKLOADS, OptionInfo
from runners.contract.user_module import MODULE_OPTION
from runners.statistics.allocation import LEAST_SESSIONS

OptionValue = bool | Annotated[int, Field(gt=-(2**53), lt=2**53)] | str
"""Identities take no larger integers: JSON readers differ about them."""


def _one_or_many(value: object) -> object:
    # A tuple, because strict validation of what a function returned takes nothing else for one.
    return tuple(value) if isinstance(value, list | tuple) else None if value is None else (value,)


def _none_one_or_many(value: object) -> object:
    return () if value is None else _one_or_many(value)


def _name_alone(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _targets(value: object) -> object:
    if isinstance(value, str) and value not in TARGETS:
        raise ValueError(f"expected {', '.join(TARGETS)}, or labels such as {{gpu: h100}}, not {value!r}")
    for label, wanted in value.items() if isinstance(value, dict) else ():
        if not isinstance(wanted, str):
            raise SettingError(f"a label is text, not {wanted!r}; put it in quotes", label)
    return {} if value is None else value


EACH_HOST: Final = "each-host"
EACH_GPU_MODEL: Final = "each-gpu-model"
ANY: Final = "any"
TARGETS: Final = (EACH_HOST, EACH_GPU_MODEL, ANY)
"""What a sweep's `targets` can be besides labels: all hosts; one of each model of GPU; one alone."""

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600}
_MOST_S: Final = 10**8
"""Three years."""


def seconds_of(text: str) -> float:
    """A length of time such as `90 s`, `6 min` or `1 h`.

    Raises:
        ValueError: it is none; says what is expected.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h)", text.strip())
    seconds = 0.0 if found is None else float(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= _MOST_S:
        raise ValueError(f"expected a length of time such as 90 s, 6 min or 1 h, not {text!r}")
    return seconds


def _seconds(value: object) -> object:
    return seconds_of(str(value)) if value is not None else None


def _share(value: object) -> object:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value.strip()) if isinstance(value, str) else None
    if found is None or not 0.1 <= float(found[1]) <= 100:
        raise ValueError(f"expected a share between 0.1 % and 100 %, such as 3 %, not {value!r}")
    return float(found[1]) / 100


_AS_SECONDS: Final = PlainSerializer(lambda seconds: None if seconds is None else f"{seconds} s")
_AS_SHARE: Final = PlainSerializer(lambda share: f"{100 * share:.10g} %")
Axis = BeforeValidator(_one_or_many)
Positive = Annotated[int, Field(gt=0, lt=2**31)]


def _check_option(owner: str, declared: Mapping[str, OptionInfo], name: str, value: OptionValue) -> None:
    if name not in declared:
        known = did_you_mean(name, declared) if declared else "it takes none"
        raise ValueError(f"{owner} has no option {name}; {known}")
    if not declared[name].accepts(value):
        raise ValueError(f"option {name} of {owner} must be {declared[name].expected()}, not {value}")


class WorkloadAxis(StrictModel):
    """A workload, or several that are alike, with the shapes to visit. `family` may stand in place of `name`."""

    name: Annotated[tuple[str, ...], Axis, Field(min_length=1)]
    module: Annotated[UserModule | None, BeforeValidator(read_module)] = None
    """For a model outside of the catalogue the function of a file that builds it; `name` is then a new one."""
    batch: Annotated[tuple[Positive, ...], Axis, Field(min_length=1)]
    sequence_length: Annotated[tuple[Positive, ...] | None, Axis] = None
    """Tokens; null takes the workload's default."""
    image_size: Annotated[tuple[Positive, ...] | None, Axis] = None
    """Pixels; null takes the workload's default."""
    options: dict[str, Annotated[tuple[OptionValue, ...], Axis, Field(min_length=1)]] = Field(default_factory=dict)
    """What else the workload lets one choose; each is one value or a list of values to visit."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_family(cls, said: Any) -> Any:
        """`family` stands for the names of all workloads of a family of the catalogue, or of several."""
        if not isinstance(said, dict) or "family" not in said:
            return said
        if "name" in said:
            raise SettingError("an axis has either names or families; remove one of them", "family")
        asked = said["family"] if isinstance(said["family"], list) else [said["family"]]
        known = dict.fromkeys(info.family for info in WORKLOADS.values())
        for family in asked:
            if not isinstance(family, str):
                raise SettingError(f"a family is a name, such as {next(iter(known))}", "family")
            if family not in known:
                raise SettingError(f"unknown family {family}; {did_you_mean(family, known)}", "family")
        names = [name for name, info in WORKLOADS.items() if info.family in asked]
        return {**{key: value for key, value in said.items() if key != "family"}, "name": names}

    @model_validator(mode="after")
    def _known_with_its_shape(self) -> "WorkloadAxis":
        if self.module is not None:
            _check_own(self, self.module)
            return self
        for name in dict.fromkeys(self.name):
            info = WORKLOADS.get(name)
            if info is None:
                own = "; a model of your own needs module: FILE.py:FUNCTION"
                raise ValueError(f"unknown workload {name}; {did_you_mean(name, WORKLOADS, own)}")
            for parameter in ("sequence_length", "image_size"):
                if getattr(self, parameter) is not None and getattr(info, parameter) is None:
                    raise ValueError(f"workload {name} has no {parameter}; remove the key")
            for option, values in self.options.items():
                for value in values:
                    _check_option(f"workload {name}", info.options, option, value)
        return self

    @property
    def source(self) -> str | None:
        """The text of the model's own file; null for a workload of the catalogue."""
        return None if self.module is None else self.module.source

    def default_sizes(self, name: str) -> tuple[int | None, int | None]:
        """The sequence length and the image size of one of the workloads where the axis has none."""
        if self.module is not None:
            return None, None
        return WORKLOADS[name].sequence_length, WORKLOADS[name].image_size

    def option_points(self, name: str) -> Iterator[dict[str, OptionValue]]:
        """Every combination of the options of one of the workloads, with every default written out."""
        declared = {} if self.module is not None else WORKLOADS[name].options
        axes = {**{option: (info.default,) for option, info in declared.items()}, **self.options}
        if self.module is not None:
            axes[MODULE_OPTION] = (self.module.option,)
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))


def _check_own(axis: WorkloadAxis, module: UserModule) -> None:
    """Refuses what its function would not take, and a name that it cannot have."""
    if len(axis.name) != 1 or not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", axis.name[0]):
        raise SettingError("a model of your own has one name, of a-z, 0-9 and ._- and at most 64 of them", "name")
    if axis.name[0] in WORKLOADS:
        raise SettingError(f"{axis.name[0]} is a workload of the catalogue; give your own another name", "name")
    if MODULE_OPTION in axis.options:
        raise SettingError(f"{MODULE_OPTION} is no option; remove it", "options", MODULE_OPTION)
    sizes = [size for size in ("sequence_length", "image_size") if getattr(axis, size) is not None]
    try:
        problem = module.signature().problem((*axis.options, *sizes))
    except ValueError as error:
        raise SettingError(str(error), "module") from None
    if problem is not None:
        raise SettingError(f"{module.file}: {module.function} {problem}", "module")


class BackendAxis(StrictModel):
    """A backend with its options."""

    name: str
    options: dict[str, OptionValue] = Field(default_factory=dict)
    environments: Annotated[tuple[str, ...], Axis] = ()
    """In which of the sweep's environments it runs; empty for all of them."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in BACKENDS:
            raise ValueError(f"unknown backend {name}; {did_you_mean(name, BACKENDS)}")
        return name

    @model_validator(mode="after")
    def _options_known(self) -> "BackendAxis":
        for key, value in self.options.items():
            _check_option(f"backend {self.name}", BACKENDS[self.name].options, key, value)
        return self

    def all_options(self) -> dict[str, OptionValue]:
        """The options with every default written out, so that a default that changes later changes the key."""
        defaults = {key: info.default for key, info in BACKENDS[self.name].options.items()}
        return defaults | self.options


class Duplicate(StrictModel):
    """Trials that run a second time in every round, as A/A pairs."""

    workload: str
    backend: str
    batch: Positive


GPU_PIPELINED_BUDGET_MS: Final = 5_000
"""For back-to-back calls on a GPU, where a sweep does not say."""


class Sweep(Document):
    """One sweep file. Every axis is crossed with every other."""

    version: int = Field(ge=1, le=1)
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    environments: Annotated[tuple[str, ...], Axis, Field(min_length=1)]
    """Names of the catalogue, or `any-suitable`: the newest that can serve the host and the device."""
    workloads: tuple[WorkloadAxis, ...] = Field(min_length=1)
    backends: tuple[Annotated[BackendAxis, BeforeValidator(_name_alone)], ...] = Field(min_length=1)
    dtypes: Annotated[tuple[Literal["float32", "float16", "bfloat16"], ...], Axis, Field(min_length=1)] = ("float32",)
    threads: Annotated[tuple[Positive | Literal["all"], ...], Axis, Field(min_length=1)] = ("all",)
    """Intra-operator threads; `all` is every core that the host gives to trials."""
    device: Literal["cpu", "cuda"] = "cpu"
    """`cuda` is the first GPU that the trial's process sees."""
    rounds: Positive = 5
    """Sessions of each group of trials, where no budget says how many."""
    budget: Annotated[float | None, BeforeValidator(_seconds), _AS_SECONDS] = None
    """In place of `rounds`: seconds for all sessions on a host. After `LEAST_SESSIONS` of each group the next always
    goes to the one whose widest interval is widest."""
    precision: Annotated[float, BeforeValidator(_share), _AS_SHARE] = 0.03
    """With a budget: it need not be spent once no interval reaches further than this from its ratio; 0.03 is 3 %."""
    duplicate: Annotated[tuple[Duplicate, ...], BeforeValidator(_none_one_or_many)] = ()
    targets: Annotated[
        dict[str, str] | Literal["each-host", "each-gpu-model", "any"], BeforeValidator(_targets), Field()
    ] = EACH_HOST
    """The hosts that take part: every one, one of each model of GPU, any one, or those that carry these labels.

    Labels are those of the inventory and `MACHINE_LABELS`; values may be patterns, such as `*A100*`.
    """
    seed: int = Field(default=0, ge=0, lt=2**31)
    timeout_s: Positive = 600
    """Wall time of one trial, preparation included."""
    protocol: Annotated[Protocol, AfterValidator(within_bounds), AfterValidator(consistent)] = Field(
        default=Protocol(), validate_default=True
    )
    """How long to measure; see docs/measurement.md. Unset keys take the defaults of the contract."""
    guards: Annotated[Guards, BeforeValidator(guards_in_full), AfterValidator(within_bounds)] = Guards()
    """What is watched around each trial. It decides nothing about what is measured, and is in no key."""

    @field_validator("protocol", mode="before")
    @classmethod
    def _back_to_back_on_a_gpu(cls, protocol: object, info: ValidationInfo) -> object:
        """On a GPU back-to-back calls are measured unless the sweep says otherwise: there they are another latency."""
        if info.data.get("device") == "cuda" and isinstance(protocol, dict):
            return {"pipelined_budget_ms": GPU_PIPELINED_BUDGET_MS, **protocol}
        is_unset = info.data.get("device") == "cuda" and protocol == Protocol()
        return Protocol(pipelined_budget_ms=GPU_PIPELINED_BUDGET_MS) if is_unset else protocol

    @model_validator(mode="after")
    def _one_text_for_each_file(self) -> "Sweep":
        first: dict[str, str] = {}
        for number, axis in enumerate(self.workloads):
            if axis.module is not None and first.setdefault(axis.module.file, axis.module.source) != axis.module.source:
                problem = f"two files are called {axis.module.file}, and rows could not tell them apart; rename one"
                raise SettingError(problem, "workloads", number, "module")
        return self

    @model_validator(mode="after")
    def _environments_of_backends_are_in_the_sweep(self) -> "Sweep":
        for number, axis in enumerate(self.backends):
            for name in set(axis.environments) - set(self.environments):
                problem = f"this sweep has no environment {name}; {did_you_mean(name, self.environments)}"
                raise SettingError(problem, "backends", number, "environments")
        return self

    @model_validator(mode="after")
    def _rounds_or_budget(self) -> "Sweep":
        if self.budget is None:
            return self
        if "rounds" in self.model_fields_set:
            raise SettingError("a sweep has either rounds or a budget; remove one of them", "rounds")
        if self.protocol.procedure == LEGACY:
            raise SettingError(f"it is spent on sessions, and procedure {LEGACY} has none; use rounds", "budget")
        return self

    @model_validator(mode="after")
    def _duplicates_are_in_the_sweep(self) -> "Sweep":
        backends = {axis.name for axis in self.backends}
        for number, pair in enumerate(self.duplicate):
            axes = [axis for axis in self.workloads if pair.workload in axis.name]
            if pair.backend in backends and any(pair.batch in axis.batch for axis in axes):
                continue
            near = (axes or self.workloads)[0]
            workload = pair.workload if axes else near.name[0]
            backend = pair.backend if pair.backend in backends else self.backends[0].name
            raise SettingError(
                f"this sweep does not run {pair.workload} × {pair.backend} × batch {pair.batch}; name one of its "
                f"trials, such as {{workload: {workload}, backend: {backend}, batch: {near.batch[0]}}}",
                "duplicate",
                number,
            )
        return self

    @property
    def planned_rounds(self) -> int:
        """Sessions of each group that are known before anything is measured."""
        return self.rounds if self.budget is None else LEAST_SESSIONS

    def is_duplicated(self, workload: str, backend: str, batch: int) -> bool:
        """Whether trials of this workload, backend and batch run twice in every round."""
        return any((pair.workload, pair.backend, pair.batch) == (workload, backend, batch) for pair in self.duplicate)


def load_sweep(path: Path | Source, stored: Mapping[str, str] | None = None) -> Sweep:
    """Reads a sweep, and the files of its models; it has its own file's path and text in `file`.

    Args:
        stored: for a sweep out of the store, the texts of its models' files by `FILE.py:FUNCTION`: none is read.

    Raises:
        ConfigurationError: a file is missing or wrong; names file, line and key.
    """
    source = Source.read(path) if isinstance(path, Path) else path
    directory = Path() if source.path is None else source.path.parent
    return load_yaml(source, Sweep, {DIRECTORY: directory} if stored is None else {STORED: stored})
