"""Real mpirun and srun: ranks find each other, and one rank's failure ends the job."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from rnn_scaling.records import record
from tests.support import slurm
from tests.support.faults import is_alive, wait_until
from tests.support.forked import TINY
from tests.support.paths import ROOT

TOKEN = {
    "RNN_SCALING_JOB_TOKEN": "of all ranks or none"
}  # as docs/cluster.md has it for each launcher
MPIRUN = ["mpirun", "--oversubscribe", "-x", *TOKEN]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SRUN = ["srun", "--kill-on-bad-exit", "--overcommit"]
HERE = {"mpirun": "-n 3", "srun": "-N 1 -n 3"}


@pytest.fixture(scope="module")
def mpirun():
    """Return the command and its environment."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not here (Debian: openmpi-bin)")
    return MPIRUN, {**os.environ, **AS_ROOT, **TOKEN}


@pytest.fixture(scope="module")
def srun(tmp_path_factory):
    """Start a Slurm cluster for this file's tests; yield command and environment."""
    if lacking := slurm.find_missing():
        pytest.skip(f"Slurm needs {lacking}")
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield SRUN, {**environment, **TOKEN}


@pytest.fixture(params=["mpirun", "srun"])
def launcher(request):
    return request.getfixturevalue(request.param)


def start(launcher, placing, *words, module="tests.support.one_rank"):
    """Run a Python module under a launcher to its end.

    `placing` has the launcher's flags for the number of processes and their nodes.
    """
    prefix, environment = launcher
    return subprocess.run(
        [*prefix, *placing.split(), sys.executable, "-m", module, *map(str, words)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )


def is_nothing_running(folder):
    pids = [int(path.read_text()) for path in folder.glob("*.pid")]
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")
    return len(pids)


def test_ranks_find_each_other_on_one_host(launcher, tmp_path):
    done = start(launcher, HERE[launcher[0][0]], tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["size"] == 3
    assert told["peers"] == 3
    assert {known[0] for known in told["known"]} == {launcher[0][0]}
    assert [known[1] for known in told["known"]] == [0, 1, 2]
    assert is_nothing_running(tmp_path) == 3


def test_ranks_find_each_other_on_two_nodes(srun, tmp_path):
    done = start(srun, "-N 2 -n 3", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [known[1:] for known in json.loads(done.stdout)["known"]] == [
        [0, 0, 2],
        [1, 1, 2],
        [2, 0, 1],
    ]


def test_the_trainer_trains_with_as_many_workers_as_were_started(launcher, tmp_path):
    words = [
        "--variable_update=collective_all_reduce",
        f"--result_file={tmp_path}/run.json",
        *TINY,
    ]
    done = start(
        launcher,
        HERE[launcher[0][0]].replace("-n 3", "-n 2"),
        *words,
        module="rnn_scaling.train",
    )
    assert done.returncode == 0, done.stderr
    result = record.read(tmp_path / "run.json")
    assert (result.status, result.config["num_workers"]) == ("ok", 2)
    assert "Processing speed" in done.stdout
    assert (result.workers.launcher, len(result.workers.ranks)) == (launcher[0][0], 2)


@pytest.mark.parametrize("fault", ["exit", "kill"])
@pytest.mark.parametrize("faulty", ["0", "1"])
def test_a_rank_that_fails_ends_the_job(launcher, fault, faulty, tmp_path):
    done = start(launcher, HERE[launcher[0][0]], tmp_path, fault, faulty)
    assert done.returncode != 0
    assert is_nothing_running(tmp_path) == 3
