"""`README.txt`, which tells a person at the other machine what to do with an exported directory."""

from collections.abc import Mapping

from orchestrator.campaign.exchange.manifest import Manifest
from orchestrator.campaign.exchange.script import python_variable
from orchestrator.environments import EnvironmentEntry

_TEXT = """\
Campaign {campaign}
{trials} trials in {tasks} tasks for the machine {host}, planned for its cores: {cores}.
They take about {minutes} minutes.

1. Copy this directory to the machine. It needs Linux, Python 3.8 or later and the
   environment of the next step, but no Ray, no Docker, no taxmeter and no network.

2. Make the environment. For a machine without a network, fetch the wheels elsewhere with
   pip download, bring them along and add --no-index --find-links WHEELS.

{installation}

   Another Python with the frameworks will do too. The import compares all versions with
   the lock, and takes others only when told to, under an environment name of their own.

3. Run it, while nothing else runs on the machine:

       {variables} ./run.sh

   After Ctrl-C, a kill or the loss of the node the same command goes on where it
   stopped. A finished task is not run again. `./run.sh NAME` runs one task of tasks/,
   for a scheduler that starts them one by one: all on one machine, never two at once.
   TAXMETER_MEMORY_BYTES=N limits the memory of each trial.
   A task without the script: cd code && python3 -m runners ../tasks/NAME

4. Copy the directory back (without cache/ and env-*) and run, where the results are:

       taxmeter results import DIRECTORY

   It can be imported before all is done, and again later: no row is added twice.
"""


def instructions(manifest: Manifest, entries: Mapping[str, EnvironmentEntry], estimate_s: float) -> str:
    """The text.

    Args:
        manifest: what was exported.
        entries: its environments, by name.
        estimate_s: the plan's estimate of the wall time in seconds.
    """
    pythons = {name: "PYTHON" if len(entries) == 1 else python_variable(name) for name in entries}
    return _TEXT.format(
        campaign=manifest.campaign_id,
        trials=manifest.planned_trials,
        tasks=len(manifest.tasks),
        host=manifest.host,
        cores=manifest.cores,
        minutes=max(1, round(estimate_s / 60)),
        installation="\n".join(_installation(entry) for entry in entries.values()),
        variables=" ".join(f"{variable}=./env-{name}/bin/python" for name, variable in pythons.items()),
    )


def _installation(entry: EnvironmentEntry) -> str:
    index = "" if entry.wheel_index is None else f" \\\n           --extra-index-url {entry.wheel_index.url}"
    return (
        f"       python{entry.python} -m venv env-{entry.name}\n"
        f"       env-{entry.name}/bin/pip install --require-hashes -r environments/{entry.name}.lock{index}"
    )
