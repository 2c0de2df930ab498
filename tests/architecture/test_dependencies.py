"""What is imported is declared, and what is declared is imported."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2]
OWN = {"orchestrator", "runners", "tests", "benchmarks"}
NOT_IMPORTED = {
    "pytz": "DuckDB takes it",
    "plotly": "its JavaScript goes onto the page",
    "import-linter": "a command",
    "mypy": "a command",
    "ruff": "a command",
    "pytest-timeout": "a plugin",
}


def imported(*folders: str) -> set[str]:
    """The modules of others that the code of these folders imports, by their first name."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (PROJECT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {name.partition(".")[0] for name in names}
    return found - OWN - sys.stdlib_module_names


def distributions(modules: set[str]) -> dict[str, set[str]]:
    """The distributions that have a module, by its name: several where they share a namespace, none if not installed."""
    known = packages_distributions()
    return {module: {canonicalize_name(name) for name in known.get(module, [])} for module in modules}


def declared(lock: str) -> set[str]:
    """What a `.in` file of requirements/ asks for, with the files that it includes."""
    lines = (PROJECT / "requirements" / f"{lock}.in").read_text().splitlines()
    found: set[str] = set()
    for line in (re.sub(r"#.*", "", line).strip() for line in lines):
        if line.startswith("-r "):
            found |= declared(line.removeprefix("-r ").removesuffix(".in"))
        elif line:
            found.add(canonicalize_name(Requirement(line).name))
    return found


@pytest.mark.parametrize(("lock", "folders"), [("report", ["orchestrator"]), ("dev", ["tests", "benchmarks"])])
def test_what_is_imported_is_declared(lock: str, folders: list[str]) -> None:
    found = distributions(imported(*folders))
    # tests also import frameworks, in the environments that have them
    undeclared = {name: of for name, of in found.items() if not of & declared(lock) and (of or lock == "report")}
    assert undeclared == {}


def test_what_is_declared_is_imported() -> None:
    used = set().union(*distributions(imported(*OWN)).values())
    assert declared("dev") - used == NOT_IMPORTED.keys()


def test_the_package_depends_on_what_running_needs() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert {canonicalize_name(Requirement(text).name) for text in project["dependencies"]} == declared("base")
