"""Start the ranks of each run of a watched script, for `verify --trainer`.

A server reads jobs from stdin, one JSON line each, and prints one JSON line per result.
It imports only the standard library, so it runs in the Python of any user.

`verification.scripts.runner` is the other end of the pipe.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

RESULT = "rnn_scaling-hooks-result "
FILE_VARIABLE = "RNN_SCALING_HOOK_FILE"
PORTS_VARIABLE = "RNN_SCALING_HOOK_PORTS"  # a free port per rank
SETTINGS_VARIABLE = "RNN_SCALING_HOOK_SETTINGS"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
POLL_S = 0.02
_END_WAIT_S = 10.0  # how long a finished rank waits for the other ranks
_FAILURE_WAIT_S = 2.0  # how long the other ranks may run after one has failed
_KILL_WAIT_S = 60.0  # time until the remaining ranks are killed again

# One run of the script, as JSON data: num_ranks, num_threads (of each rank), limit_s,
# environment, folder (the working directory), words (the script and its arguments) and
# settings (for the hooks; its "folder" receives the logs and records).
Job = Mapping[str, Any]
# Runs the script of a job and writes its record to a path. It is called in a new
# process that has the environment variables of its rank.
Body = Callable[[Job, str], None]


def serve(version: str, body: Body) -> None:
    """Run jobs until stdin ends.

    Args:
      version: The version of the framework.
      body: Runs the script in a forked process.
    """
    requests = os.fdopen(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    print(RESULT + json.dumps({"version": version}), flush=True)
    for line in requests:
        result = _run_ranks(json.loads(line), body)
        print(RESULT + json.dumps(result), flush=True)


def serve_programs(package: str, words: tuple[str, ...] = ()) -> None:
    """Run jobs as new programs of this Python.

    Args:
      package: The package whose version is reported.
      words: Arguments of Python before the script, such as "-m" and a module.
    """

    def replace_process(job: Job, path: str) -> None:
        os.environ[FILE_VARIABLE] = path
        os.environ[SETTINGS_VARIABLE] = json.dumps(job["settings"])
        command = [sys.executable, *words, *job["words"]]
        os.execv(sys.executable, command)

    serve(metadata.version(package), replace_process)


def mark_end(folder: str) -> None:
    """Write a file that says that no rank needs to wait for this one."""
    rank = os.environ.get("RANK", "0")
    open(f"{folder}/done{rank}", "w").close()


def wait_for_all(folder: str) -> None:
    """Mark the end of this rank, and wait for the other ranks.

    Args:
      folder: The folder of the marks.
    """
    mark_end(folder)
    done = f"{folder}/done"
    limit = time.monotonic() + _END_WAIT_S
    for other in range(int(os.environ.get("WORLD_SIZE", "1"))):
        while not os.path.exists(f"{done}{other}") and time.monotonic() < limit:
            time.sleep(0.01)


def end_after_last_step() -> None:
    """End the process of a user's script, whose last step has been recorded.

    The rest of the script is neither needed nor safe: it could continue to train, write
    its files, or wait for a rank that has ended. The script could catch an exception,
    and an orderly exit can hang in a process group or in threads of the framework. So
    the process writes its pending output and ends without exit handlers.
    """
    _exit_now(0)


def _run_ranks(job: Job, body: Body) -> dict[str, Any]:
    """Run all ranks of a job and return its result; see `_wait_for_ranks`."""
    num_ranks = job["num_ranks"]
    ports = _free_ports(num_ranks + 1)
    address = {
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": ports[0],
        PORTS_VARIABLE: ",".join(ports[1:]),
    }
    ranks_by_pid = {}
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            variables = {**address, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            _become_rank(job, variables, body)
        ranks_by_pid[pid] = rank
    return _wait_for_ranks(ranks_by_pid, job["limit_s"])


def _wait_for_ranks(ranks_by_pid: dict[int, int], limit_s: float) -> dict[str, Any]:
    """Wait for all ranks; kill them after a failure or at the time limit.

    Args:
      ranks_by_pid: The rank of each process; the ended ones are removed.
      limit_s: The time limit of the run.

    Returns:
      The exit status of each rank, negative for a signal, and whether the ranks were
      killed because of the time limit.
    """
    statuses = [0] * len(ranks_by_pid)
    limit = time.monotonic() + limit_s
    timed_out = False
    while ranks_by_pid:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in ranks_by_pid:
            rank = ranks_by_pid.pop(pid)
            statuses[rank] = os.waitstatus_to_exitcode(status)
            if statuses[rank] > 0:
                # The others may wait for this rank forever.
                limit = min(limit, time.monotonic() + _FAILURE_WAIT_S)
        elif time.monotonic() > limit:
            timed_out = not any(statuses)
            for running_pid in ranks_by_pid:
                os.kill(running_pid, signal.SIGKILL)
            limit += _KILL_WAIT_S
        else:
            time.sleep(POLL_S)
    return {"statuses": statuses, "timed_out": timed_out}


def _become_rank(job: Job, variables: Mapping[str, str], body: Body) -> None:
    """Run the script as one rank; never returns."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.chdir(job["folder"])
        threads = str(job["num_threads"])
        os.environ.update(variables, OMP_NUM_THREADS=threads, **job["environment"])
        path = f"{job['settings']['folder']}/rank{variables['RANK']}"
        output = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        body(job, f"{path}.jsonl")
        status = 0
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        _exit_now(status)


def _exit_now(status: int) -> None:
    """Write the pending output, and end the process without exit handlers."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(str(listener.getsockname()[1]))
    return ports
