"""A fact of the host becomes a column in two places, as docs/architecture.md says: done in a copy of the code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import PROJECT

PLACES = {
    "runners/system/identity.py": (
        '        "cpu_model": fingerprint.cpu.model_name,\n',
        '        "cpu_governor": fingerprint.cpu.governor,\n',
    ),
    "orchestrator/store/schema/columns.py": (
        '        Column("cpu_model", TEXT),\n',
        '        Column("cpu_governor", TEXT),\n',
    ),
}
USE = """
import dataclasses, json, sys
from pathlib import Path
from orchestrator.store import Store, open_store
from orchestrator.store.export import ExportOrder, export
from orchestrator.store.query.view import current_view
from orchestrator.store.schema.tables import system_row
from runners.contract import encode
from runners.system import hot_columns, hw_id, system_id
from tests.results import FINGERPRINT, trial

root = Path(sys.argv[1])
found = dataclasses.replace(FINGERPRINT, cpu=dataclasses.replace(FINGERPRINT.cpu, governor="performance"))
hot = hot_columns(found)
store = Store.open(root / "results")
with store.writer() as writer:
    writer.put("systems", [system_row(system_id(found), hw_id(found), hot, encode(found))])
    writer.append([trial("a", system_id=system_id(found), hw_id=hw_id(found), **hot)])
export(current_view(store.layout), ExportOrder("parquet", root / "clean", anonymise=True))
query = "SELECT trials.cpu_governor, systems.cpu_governor FROM trials JOIN systems USING (system_id)"
print(json.dumps([open_store(root / name).sql(query).fetchall() for name in ("results", "clean")]))
"""


def test_two_lines_make_a_fact_of_the_host_a_column_of_trials_systems_and_exports(tmp_path: Path) -> None:
    for package in ("orchestrator", "runners", "tests"):
        shutil.copytree(
            PROJECT / package, tmp_path / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path, (line, added) in PLACES.items():
        text = (tmp_path / path).read_text()
        assert text.count(line) == 1
        (tmp_path / path).write_text(text.replace(line, line + added))
    command = [sys.executable, "-c", USE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[["performance", "performance"]]] * 2
