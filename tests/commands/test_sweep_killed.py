"""Sweeps as processes of their own: killed at every moment, interrupted, twice in a folder, with the real trainer."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from rnn_scaling.commands import sweep, train
from rnn_scaling.records import record
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process as processes
from tests.support.faults import (
    SMALL,
    children,
    command,
    is_alive,
    list_logged,
    make_trainer_words,
    plant,
    wait_until,
)
from tests.support.forked import CONTEXT, TINY, call
from tests.support.paths import ROOT
from tests.support.python import python
from tests.support.stand_in_forks import make_subprocess_stand_in
from tests.support.sweeping import (
    ONE,
    THREE,
    THREE_RUNS,
    TWO,
    add_one_repeat,
    check_resume,
    list_ok_labels,
    records,
    start,
)

pytestmark = pytest.mark.usefixtures("no_report")


# The sweep puts a file in place before each run: before the first one, and before the last.
@pytest.mark.parametrize("moment, number", [("before", 1), ("after", 3)])
def test_a_sweep_killed_around_a_write_resumes(moment, number, tmp_path):
    process = start(tmp_path, *THREE_RUNS, die_at=f"{moment}:{number}")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len(list_ok_labels(tmp_path)) == number - 1
    check_resume(tmp_path, *THREE_RUNS)


# At the beginning, in the middle and at the end of a run; in the first, the second and the last run of a sweep.
@pytest.mark.parametrize(
    "label, fault",
    [(ONE, "kill_sweep_first"), (TWO, "kill_sweep_middle"), (THREE, "kill_sweep_last")],
)
def test_a_sweep_killed_during_a_run_takes_the_run_with_it_and_resumes(
    label, fault, tmp_path
):
    process = start(tmp_path, *THREE_RUNS, **{label.replace("-", "_"): fault})
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    has_finished = fault == "kill_sweep_last"
    check_resume(tmp_path, *THREE_RUNS, ran_twice=[] if has_finished else [label])


# The sweep has one handler for both signals. A run gets them, too, and must be killed if
# it ignores them.
@pytest.mark.parametrize(
    "number, fault", [(signal.SIGINT, "stubborn"), (signal.SIGTERM, "hang")]
)
def test_ctrl_c_ends_the_run_keeps_the_others_and_says_how_to_go_on(
    number, fault, tmp_path
):
    process = start(tmp_path, *THREE_RUNS, cudnn_lstm_independent_2=fault)
    wait_until(
        lambda: list_logged(tmp_path / "faults", "ready") == [TWO],
        "the second run hangs",
    )
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 130 and "Traceback" not in said
    assert "interrupted: 1 of 3 runs are finished" in said
    assert f"./run.sh sweep --out={tmp_path}/out {' '.join(THREE_RUNS)}" in said
    assert records(tmp_path)[TWO].status == (
        "interrupted" if fault == "hang" else "failed"
    )
    check_resume(tmp_path, *THREE_RUNS, ran_twice=[TWO])


def test_two_sweeps_do_not_share_a_folder(tmp_path, capsys):
    first = start(tmp_path, *THREE_RUNS, cudnn_lstm_independent_1="hang")
    wait_until(
        lambda: list_logged(tmp_path / "faults", "start"), "the first sweep runs"
    )
    assert sweep.main([f"--out={tmp_path}/out", *THREE_RUNS], trainer=["false"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/out is in use by" in said and f"pid {first.pid} on " in said
    assert list_logged(tmp_path / "faults", "start") == [ONE]
    first.kill()  # the lock goes with its process
    first.communicate()
    check_resume(tmp_path, *THREE_RUNS, ran_twice=[ONE])


def test_a_terminal_has_a_bar_with_runs_batches_rate_and_time_left(tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    plant(
        tmp_path / "faults",
        cudnn_lstm_independent_1="crash",
        cudnn_lstm_independent_3="hang",
    )
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    words = command(
        tmp_path / "faults",
        "sweep",
        f"--out={tmp_path}/out",
        *add_one_repeat(THREE_RUNS),
    )
    # readline sets COLUMNS behind the back of os.environ.
    shell = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=follower, env=shell
    )
    os.close(follower)
    said = b""
    while f"{THREE} 2/5 batches" not in said.decode():
        said += os.read(leader, 65536)  # an error when the sweep ends without it
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        with contextlib.suppress(OSError):
            os.read(leader, 65536)
    os.close(leader)
    assert process.returncode == 130
    text = said.decode()
    assert "| 2/3 runs, " in text
    assert f" left, {THREE} 2/5 batches, 1 words/s, last 5.00 words/s" in text
    assert f"{ONE}: failed: ended with exit status 3" in text
    assert "the disk is on fire\r\n" in text


def test_the_parent_never_loads_tensorflow(tmp_path):
    plant(tmp_path / "faults")
    words = add_one_repeat([f"--out={tmp_path}/out", *SMALL, "--num_devices=1"])
    code = (
        "import sys; from rnn_scaling.commands import ab, sweep; from rnn_scaling.reports import report_files; "
        "report_files.report = lambda source, target: None; "
        f"status = sweep.main({words}, trainer={make_trainer_words(tmp_path / 'faults')}); "
        "assert status == 0 and 'tensorflow' not in sys.modules, status"
    )
    python(code, check=True)


def sweep_whose_trainers_are_forks(words, stderr_path):
    """Run a sweep whose trainers are forks of this process.

    This process has loaded TensorFlow, so that the trainers need not load it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(stderr_path, os.O_CREAT | os.O_WRONLY, 0o600), 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    processes.subprocess = make_subprocess_stand_in(
        train=lambda words: entry.leave(lambda: train.main(words), at_once=True)
    )
    return sweep.main(words, trainer=[sys.executable, "-m", "rnn_scaling.train"])


def test_with_the_real_trainer_a_killed_run_is_a_row_and_a_killed_sweep_resumes(
    tmp_path,
):
    words = add_one_repeat([f"--out={tmp_path}", *SMALL, "--num_devices=1,2", *TINY])
    process = CONTEXT.Process(
        target=sweep_whose_trainers_are_forks, args=(words, tmp_path / "first")
    )
    process.start()

    def running(label):
        """Return the PID of this run if it is running and has written its own record.

        The sweep writes a record before the start, which has no environment.
        """
        try:
            held = json.loads((tmp_path / f"{label}.json").read_text())
        except (OSError, ValueError):
            return None
        pids = children(process.pid)
        is_its_own = held["environment"] and held["status"] == "failed"
        return pids[0] if pids and is_its_own else None

    wait_until(lambda: running(ONE), "the first run starts")
    os.kill(running(ONE), signal.SIGKILL)
    wait_until(lambda: running(TWO), "the second run starts")
    second = running(TWO)
    process.kill()
    process.join()
    wait_until(lambda: not is_alive(second), "the second run is gone")
    first = record.read(tmp_path / f"{ONE}.json")
    assert first.error.message.startswith("killed by SIGKILL")
    assert record.read(tmp_path / f"{TWO}.json").error.type == "Killed"
    assert call(sweep_whose_trainers_are_forks, words, tmp_path / "second") == 1
    said = (tmp_path / "second").read_text()
    assert f"error: {ONE}: killed by SIGKILL" in said
    assert record.read(tmp_path / f"{ONE}.json") == first
    result = record.read(tmp_path / f"{TWO}.json")
    assert result.status == "ok" and len(result.batches.seconds) == 5
    assert (tmp_path / "table.md").exists()
    assert "1/2" not in said
    assert f"2/2 {TWO}: " in said


def keys(value):
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items()}
    return None


def test_with_the_real_trainer_a_process_that_starts_before_its_turn_leaves_a_record_of_the_same_form(
    tmp_path,
):
    words = [*SMALL, "--num_devices=1", "--repeats=2", *TINY, "--malloc=keep"]
    assert sweep.main([f"--out={tmp_path}", *words]) == 0
    alone, ahead = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in (ONE, f"{ONE}.r2")
    )
    assert keys(ahead) == keys(alone)
    assert ahead["environment"]["variables"] == alone["environment"]["variables"]
    assert ahead["resolved"]["cpu_affinity"] == alone["resolved"]["cpu_affinity"]
