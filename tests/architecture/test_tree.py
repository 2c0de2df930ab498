"""Rules about the code itself that no linter checks."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.tracked import tracked

MAX_LINES = 600
"""A module is cut where the design has a joint; 400 lines are a reason to look for one."""


def test_no_module_is_too_long() -> None:
    long = {
        str(p.relative_to(PROJECT)): n for p in tracked("*.py") if (n := len(p.read_text().splitlines())) > MAX_LINES
    }
    assert long == {}


def test_no_python_file_below_docker_shadows_the_sdk() -> None:
    assert tracked("docker/*.py") == []
    assert list((PROJECT / "docker").glob("**/*.py")) == []


def test_no_package_below_tests_shadows_the_runners() -> None:
    assert list((PROJECT / "tests").glob("**/__init__.py")) == []


def test_the_runners_are_python_3_8() -> None:
    for path in tracked("runners/*.py"):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))


def test_the_contract_and_the_supervisor_import_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import runners.supervision.supervisor, runners.system;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["runners"]


@pytest.mark.parametrize("document", tracked("*.md"), ids=lambda p: str(p.relative_to(PROJECT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text()):
        if not target.startswith("http"):
            found = document.parent / target if target else document
            assert found.exists(), target
            assert not anchor or found.suffix != ".md" or anchor in headings(found), f"{target}#{anchor}"


def test_the_docs_stay_short() -> None:
    readme = (PROJECT / "README.md").read_text().splitlines()
    assert len(readme) <= 150
    assert [line for line in readme if len(line) > 120] == []
    # The bars of tables are none
    words = {
        str(page.relative_to(PROJECT)): len(re.findall(r"\S*\w\S*", page.read_text())) for page in tracked("docs/*.md")
    }
    assert {page: count for page, count in words.items() if count > 1500} == {}
    assert sum(words.values()) <= 15_000


def headings(document: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_files_that_docs_name_exist() -> None:
    text = "\n".join(p.read_text() for p in tracked("docs/*.md")) + (PROJECT / "README.md").read_text()
    named = set(re.findall(r"`((?:orchestrator|runners|sweeps|docker|docs|benchmarks)/[\w./-]+?)`", text))
    assert named
    missing = sorted(name for name in named if not (PROJECT / name).exists())
    assert missing == []


def test_of_which_kind_a_host_is_is_asked_behind_the_seam() -> None:
    asks = re.compile(r"\b(is_remote|is_by_ray|is_here)\b|\bConnection\.[A-Z]")
    paths = [path for path in tracked("orchestrator/*.py") if path.exists()]
    names = {path.relative_to(PROJECT).as_posix() for path in paths if asks.search(path.read_text())}
    outside = {name for name in names if not name.startswith(("orchestrator/hosts/", "orchestrator/config/"))}
    assert outside == set()


def test_errors_list_what_is_known_within_a_limit() -> None:
    whole = re.compile(r"known: \{', '\.join")
    assert [str(path) for path in tracked("orchestrator/*.py") if whole.search(path.read_text())] == []


NOUNS = frozenset({"pooling"})
"""Words of the field that end as what somebody does."""
TO_RENAME = frozenset({"importing", "reading", "writing", "exporting", "merging", "pushing", "sealing"})
"""Modules of the store and of `campaign/exchange`."""


def test_names_are_words_of_the_field() -> None:
    """What is looked at has a name, and is not `one`; a module is not called after what it does."""
    paths = [path for path in tracked("orchestrator/*.py") if path.exists()]
    doing = {path.stem for path in paths if path.stem.endswith("ing")}
    assert doing <= NOUNS | TO_RENAME
    named = {
        f"{path.relative_to(PROJECT)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Name, ast.arg, ast.Attribute))
        if "one" in (getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "attr", None))
    }
    assert named == set()


def test_config_and_planning_are_imported_by_their_faces() -> None:
    behind = re.compile(r"^\s*(?:from|import) orchestrator\.(?:config|planning)\.", re.MULTILINE)
    packages = (PROJECT / "orchestrator" / "config", PROJECT / "orchestrator" / "planning")
    others = [path for path in tracked("orchestrator/*.py") if not any(path.is_relative_to(own) for own in packages)]
    assert others
    assert [str(path.relative_to(PROJECT)) for path in others if behind.search(path.read_text())] == []
