"""Models outside of the catalogue: what their own file says in place of an entry."""

from typing import Dict, Optional, Tuple

from runners.contract.catalogue.entries import OWN, Choice, OptionInfo, WorkloadInfo
from runners.contract.spec import WorkloadSpec
from runners.contract.user_module import MODULE_OPTION, ModuleError, module_named, module_option, signature_of

TORCH = "torch"


def info(spec: WorkloadSpec) -> WorkloadInfo:
    """The entry of a workload that has its own file: it accepts what the specification gives.

    Raises:
        ModuleError: its file says nothing of the kind.
    """
    _, function = module_named(str(spec.options.get(MODULE_OPTION, "")))
    imports = signature_of(spec.source or "", function).imports
    options: Dict[str, OptionInfo] = {name: Choice((value,), value) for name, value in spec.options.items()}
    return WorkloadInfo(
        family=OWN,
        frameworks=(TORCH, *(name for name in imports if name != TORCH)),
        sequence_length=spec.sequence_length,
        image_size=spec.image_size,
        options=options,
    )


def arguments(spec: WorkloadSpec) -> Dict[str, object]:
    """What its function is called with: its options, and the sizes that the specification has."""
    sizes = {"sequence_length": spec.sequence_length, "image_size": spec.image_size}
    given = {name: value for name, value in spec.options.items() if name != MODULE_OPTION}
    return {**given, **{name: size for name, size in sizes.items() if size is not None}}


def problem(spec: WorkloadSpec, known: Tuple[str, ...]) -> Optional[str]:
    """Why a workload with its own file cannot run anywhere, in one line; None if it can.

    Args:
        spec: it has a source.
        known: names of the catalogue, which it may not have.
    """
    named = str(spec.options.get(MODULE_OPTION, ""))
    file, function = module_named(named)
    if spec.name in known:
        return "workload %s is one of the catalogue; give the model of %s another name" % (spec.name, file)
    if named != module_option(file, function, spec.source or ""):
        return "workload %s has another text than its option %s says" % (spec.name, MODULE_OPTION)
    try:
        found = signature_of(spec.source or "", function).problem(tuple(arguments(spec)))
    except ModuleError as wrong:
        return "%s%s: %s" % (file, "" if wrong.line is None else " line %d" % wrong.line, wrong)
    return None if found is None else "%s: %s %s" % (file, function, found)
