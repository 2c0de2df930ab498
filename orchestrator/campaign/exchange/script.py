"""`run.sh`, which runs exported tasks with nothing but a POSIX shell and a Python, and `README.txt` beside it."""

import shlex
from collections.abc import Mapping, Sequence

from orchestrator.campaign.exchange.manifest import Manifest
from orchestrator.environments import EnvironmentEntry

BUSY = 69
"""Exit code of a runner whose task another process runs."""


def python_variable(environment: str) -> str:
    """The variable that names the interpreter of one environment."""
    return "PYTHON_" + environment.upper().replace("-", "_")


def run_script(tasks: Sequence[tuple[str, str, int]], cores: str | None, gpu: str | None = None) -> str:
    """A POSIX shell script that runs the tasks in order.

    Args:
        tasks: of each, the name of its directory below `tasks`, the environment, and the seconds after which it ends.
        cores: a list of cores to keep to; null leaves them as they are.
        gpu: UUID of the one GPU that trials see; null takes the first, or the one that CUDA_VISIBLE_DEVICES names.
    """
    calls = [
        f'run {shlex.quote(name)} {shlex.quote(environment)} {limit_s} "${{{python_variable(environment)}:-$PYTHON}}"'
        for name, environment, limit_s in tasks
    ]
    pinned = "" if cores is None else f"taskset -c {shlex.quote(cores)} "
    return (
        _SCRIPT.replace("@PINNED@", pinned)
        .replace("@BUSY@", str(BUSY))
        .replace("@GPU@", "" if gpu is None else f"export CUDA_VISIBLE_DEVICES={gpu}")
        .replace("@NAMES@", " ".join(shlex.quote(name) for name, _, _ in tasks))
        .replace("@RUN@", "\n".join(calls))
    )


def instructions(manifest: Manifest, entries: Mapping[str, EnvironmentEntry], estimate_s: float) -> str:
    """`README.txt`, which tells a person at the other machine what to do.

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


# The lifeline is a pipe whose other end the shell alone holds: the runner ends with the shell, even with a killed one.
_SCRIPT = """\
#!/bin/sh
# Measures the tasks of this directory, one after the other; README.txt says how. Arguments name single tasks.
# A finished task is not run again, one that was interrupted goes on where it stopped.
set -u

PYTHON=${PYTHON:-python3}
from=$(pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
cd "$here/code" || exit 2

all='@NAMES@'
[ $# -gt 0 ] || all_of_them=yes
chosen=" ${*:-$all} "
for name in $chosen; do
    case " $all " in
    *" $name "*) ;;
    *) echo "no task $name here; known: $all" >&2; exit 2 ;;
    esac
done

# The runner removes what changes results; here is what has to be settled before it starts. Packages below the old home
# are still found.
unset PYTHONSAFEPATH TAXMETER_PRIVATE_PID_NAMESPACE
@GPU@
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 PYTHONUNBUFFERED=1 PYTHONUTF8=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export PYTHONUSERBASE="${PYTHONUSERBASE:-${HOME:-/nonexistent}/.local}"

own=$(mktemp -d) || exit 2
trap 'rm -rf "$own"' EXIT
mkfifo "$own/lifeline" || exit 2
exec 9<>"$own/lifeline"
pid=
stop() {
    trap '' INT TERM HUP
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null
        wait "$pid"
    fi
    echo "stopped; run it again to go on"
    exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP

end_leftovers() { # what the trials of a dead runner started outlives it
    for environ in /proc/[0-9]*/environ; do
        if tr '\\0' '\\n' 2>/dev/null <"$environ" | grep -qxF "TAXMETER_TASK_DIRECTORY=$task"; then
            process=${environ%/environ}
            kill -9 "${process#/proc/}" 2>/dev/null
        fi
    done 2>/dev/null
}

failed=0
not_ok=0
tell_failed() { # NAME; a trial that failed is a result, and its task is not run again
    cat "$task/records.jsonl" "$task"/again-*/records.jsonl 2>/dev/null | grep '"status":"' |
        grep -vE '"status":"(ok|infrastructure_error)"' >"$own/failed"
    count=$(($(wc -l <"$own/failed")))
    if [ "$count" -eq 0 ]; then
        echo "$1: done"
    else
        not_ok=$((not_ok + count))
        reason=$(grep -o '"reason":"[^"]*' "$own/failed" | head -n 1 | cut -d '"' -f 4)
        echo "$1: done, but $count trials failed, the first one: ${reason:-no reason}"
    fi
}
run() { # NAME ENVIRONMENT LIMIT_S PYTHON
    case $chosen in
    *" $1 "*) ;;
    *) return ;;
    esac
    task=$here/tasks/$1
    log=$task/supervisor.log
    if [ ! -f "$task/task.json" ]; then
        echo "$1: tasks/$1/task.json is missing; copy the directory again"
        failed=$((failed + 1))
        return
    fi
    python=$4
    case $python in
    /*) ;;
    */*) python=$from/$python ;;
    esac
    if ! python=$("$python" -c 'import sys; print(sys.executable); sys.exit(sys.version_info < (3, 8))'); then
        echo "$1: ${python:-$4} is no Python 3.8 or later; name one with PYTHON=/path/to/python $0"
        failed=$((failed + 1))
        return
    fi
    echo "$1: running with $python, progress is in tasks/$1/supervisor.log"
    # Caches that frameworks keep there must not help the next round
    mkdir "$own/scratch"
    HOME=$own/scratch TMPDIR=$own/scratch \\
        TAXMETER_CACHE=$here/cache/$2 TAXMETER_TIME_LIMIT_S=$3 TAXMETER_LIFELINE=stdin \\
        TAXMETER_TASK_DIRECTORY=$task \\
        @PINNED@"$python" -m runners "$task" <"$own/lifeline" >>"$log" 2>&1 9>&- &
    pid=$!
    wait "$pid"
    code=$?
    pid=
    rm -rf "$own/scratch"
    case $code in
    0) tell_failed "$1" ;;
    130 | 143) stop "$code" ;; # a person or a scheduler ended the runner alone
    @BUSY@)
        tail -n 1 "$log"
        exit 2
        ;;
    *)
        end_leftovers
        failed=$((failed + 1))
        echo "$1: exit code $code; its last lines are"
        tail -n 3 "$log"
        ;;
    esac
}

@RUN@

if [ "$failed" -gt 0 ]; then
    echo "$failed tasks are not finished; run it again to go on"
    exit 1
fi
[ "${all_of_them:-no}" = no ] || rm -rf "$here/cache"
echo "finished; copy the directory back and run: taxmeter results import DIRECTORY"
[ "$not_ok" -eq 0 ] || exit 1
"""

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
   TAXMETER_MEMORY_BYTES=N limits the memory of each trial. Of several GPUs trials see
   the first, or the one that CUDA_VISIBLE_DEVICES=GPU-... names, by its UUID.
   A task without the script: cd code && python3 -m runners ../tasks/NAME

4. Copy the directory back (without cache/ and env-*) and run, where the results are:

       taxmeter results import DIRECTORY

   It can be imported before all is done, and again later: no row is added twice.
"""
