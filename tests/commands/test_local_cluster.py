"""The command local-cluster: checks of flags, and processes that end together.

The rank that caused a failure is named.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from rnn_scaling.commands import local_cluster
from rnn_scaling.sweeps import ranks
from tests.support.faults import is_alive, wait_until
from tests.support.paths import ROOT

# Part of a warning on systems that cannot give a run its own network.
OPEN = "other machines may reach"
TRAINER = """
import json, os, signal, sys, time
exec(os.environ.get("FIRST", ""))
rank = os.environ["RNN_SCALING_RANK"]
folder = os.environ["FOLDER"]
with open(os.path.join(folder, rank + ".tmp"), "w") as file:
    told = {n: v for n, v in os.environ.items() if n.startswith("RNN_SCALING_")}
    json.dump({"words": sys.argv[1:], "pid": os.getpid(), "environment": told}, file)
os.rename(file.name, os.path.join(folder, rank + ".json"))
print("table of", rank)
print("progress of", rank, file=sys.stderr)
exec(os.environ.get("RANK_" + rank, ""))
"""


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """Return the command of a trainer that records its arguments and its environment.

    All ranks execute the code in the variable FIRST, and rank N also the code in RANK_N.
    """
    (tmp_path / "trainer.py").write_text(TRAINER)
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return [sys.executable, str(tmp_path / "trainer.py")]


def read_told(tmp_path):
    return [
        json.loads(path.read_text()) for path in sorted(tmp_path.glob("[0-9].json"))
    ]


def test_rank_0_speaks_for_all_and_the_others_lines_are_named(trainer, tmp_path, capfd):
    assert local_cluster.main(["--workers=3", "--", "--seed=4"], trainer=trainer) == 0
    out, err = capfd.readouterr()
    assert out == "table of 0\n"
    assert sorted(line for line in err.splitlines() if OPEN not in line) == [
        "[worker 1] progress of 1",
        "[worker 2] progress of 2",
        "progress of 0",
    ]
    words = {"--seed=4", "--num_workers=3", "--variable_update=collective_all_reduce"}
    for rank, each in enumerate(read_told(tmp_path)):
        assert {*each["words"]} == words
        assert each["environment"]["RNN_SCALING_RANK"] == str(rank)
        assert each["environment"]["RNN_SCALING_LAUNCHER"] == "local-cluster"
    assert rank == 2


def test_no_other_program_reaches_the_ports_of_the_ranks(trainer, capfd, monkeypatch):
    monkeypatch.setenv(
        "RANK_0",
        "print(*(line.split(':')[0] for line in open('/proc/net/dev') if ':' in line))",
    )
    assert local_cluster.main(["--", "--seed=4"], trainer=trainer) == 0
    out, err = capfd.readouterr()
    if OPEN in err:
        pytest.skip("no network of its own here")
    assert out.splitlines()[1].split() == ["lo"]


def test_ports_that_others_reach_are_told_of_once(
    trainer, tmp_path, capfd, monkeypatch
):
    no = tmp_path / "no.py"
    no.write_text("import sys; sys.exit('unshare: Operation not permitted')")
    monkeypatch.setattr("rnn_scaling.cluster.network_namespace.__file__", str(no))
    ranks._warn_about_open_ports.cache_clear()
    for _ in range(2):
        assert local_cluster.main(["--", "--seed=4"], trainer=trainer) == 0
    assert capfd.readouterr().err.count("(unshare: Operation not permitted)") == 1
    ranks._warn_about_open_ports.cache_clear()
    assert (
        local_cluster.main(
            ["--", "--variable_update=distributed_independent"], trainer=trainer
        )
        == 0
    )
    assert OPEN not in capfd.readouterr().err  # they exchange nothing, and open none


def test_a_rank_that_dies_ends_the_others_and_is_named(
    trainer, tmp_path, capfd, monkeypatch
):
    monkeypatch.setenv("RANK_0", "time.sleep(600)")
    monkeypatch.setenv("RANK_1", "os.kill(os.getpid(), 9)")
    monkeypatch.setattr("rnn_scaling.system.processes.process.REPORT_GRACE_S", 0.2)
    monkeypatch.setattr("rnn_scaling.system.processes.process.OTHERS_GRACE_S", 0.2)
    assert local_cluster.main(["--"], trainer=trainer) == 1
    err = capfd.readouterr().err.splitlines()
    assert err[-1].startswith("error: worker 1 (rank 1) was killed")
    assert not any(is_alive(each["pid"]) for each in read_told(tmp_path))


def test_exit_status_and_words_of_a_rank_that_fails(trainer, capfd, monkeypatch):
    monkeypatch.setenv(
        "RANK_1", "print('error: no such device', file=sys.stderr); sys.exit(2)"
    )
    assert local_cluster.main(["--"], trainer=trainer) == 2
    lines = capfd.readouterr().err.splitlines()
    assert "[worker 1] error: no such device" in lines
    assert lines[-1].startswith("error: worker 1 (rank 1): ")
    assert lines[-1].endswith("no such device")


def test_wrong_flags_are_told_once_and_nothing_starts(trainer, tmp_path, capfd):
    words = [
        "--wrokers=2",
        "--num_units=8",
        "--ps=0",
        "--",
        "--num_units=0",
        "--variable_update=replicated",
    ]
    assert local_cluster.main(words, trainer=trainer) == 2
    lines = [
        line.removeprefix("error: ") for line in capfd.readouterr().err.splitlines()
    ]
    assert lines[0].startswith("--wrokers is not a flag;")
    assert lines[1].startswith("--num_units=8 is a flag of")
    assert lines[2] == "--ps=0 must be at least 1"
    assert lines[3].startswith("--variable_update=replicated runs in")
    assert lines[4].startswith("--num_units=0 must") and len(lines) == 5
    assert local_cluster.main(["--", "--trace_batches=1"], trainer=trainer) == 2
    assert "--trace_batches=1 needs --log_dir" in capfd.readouterr().err
    assert not read_told(tmp_path)


def test_a_trainer_that_cannot_be_started_is_one_line(capfd):
    assert local_cluster.main(["--"], trainer=["/no/such/program"]) > 0
    lines = capfd.readouterr().err.splitlines()
    assert any("/no/such/program" in line for line in lines)
    assert not any("Traceback" in x for x in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(number, trainer, tmp_path):
    code = f"""
    import sys
    from rnn_scaling.system import entry
    from rnn_scaling.commands import local_cluster
    from rnn_scaling.system.processes import process
    process.SEVERAL_GRACE_S = 0.2  # these let nobody go
    entry.leave(lambda: local_cluster.main(["--workers=3", "--"], trainer={trainer!r}))
    """
    on_signal = "signal.signal(2, lambda *_: (print('interrupted by SIGINT', file=sys.stderr), os._exit(130)))"
    hang = {"FIRST": on_signal} | {
        f"RANK_{rank}": "time.sleep(600)" for rank in range(3)
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    started = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **hang}, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len(read_told(tmp_path)) == 3, "all ranks run")
        started.send_signal(number)
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
        started.wait()
    assert started.returncode == (-9 if number == signal.SIGKILL else 130)
    for each in read_told(tmp_path):
        wait_until(lambda pid=each["pid"]: not is_alive(pid), "a rank is gone")
    if number != signal.SIGKILL:
        assert err.count("interrupted by SIGINT") <= 1
        assert "error" not in err
        assert "Traceback" not in err
