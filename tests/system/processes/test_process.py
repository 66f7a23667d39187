"""Every way in which children can end, without leaving processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from rnn_scaling.sweeps import failure
from rnn_scaling.sweeps.estimate import make_user_limit
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import Task
from tests.support.faults import is_alive, jump_clock, wait_until
from tests.support.paths import ROOT
from tests.support.python import python


def run(code, timeout_s=0.0, on_line=lambda line: None, is_progress=None):
    task = Task([sys.executable, "-c", code])
    return process.run_together([task], timeout_s, on_line, is_progress)


def test_exit_status_and_lines():
    heard = []
    ended = run(
        "import sys; print('out'); print('a\\rb', file=sys.stderr); print('c', file=sys.stderr, end=''); sys.exit(7)",
        on_line=heard.append,
    )
    assert (ended.returncode, ended.timed_out) == (7, False)
    assert ended.lines == ["a", "b", "c"]
    assert [line for line in heard if line] == ["a", "b", "c"]


def test_a_command_that_does_not_exist():
    ended = process.run_together([Task(["/no/such/program"])], 0.0)
    assert ended.returncode == 1
    assert ended.lines[0].startswith("error: /no/such/program: ")


def test_a_flood_without_end_of_line_is_read_and_bounded():
    heard = [0]
    code = "import os\nfor _ in range(64): os.write(2, b'x' * 65536)\nos.write(2, b'\\n' + b'y\\n' * 10000)"
    ended = run(code, on_line=lambda line: heard.append(len(line or "")))
    assert ended.returncode == 0 and sum(heard) == 64 * 65536 + 10000
    assert max(heard) <= 2 * process.MAX_LINE_BYTES
    assert len(ended.lines) == process.MAX_KEPT_LINES and ended.lines[-1] == "y"


def test_the_last_line_before_the_end_is_read(tmp_path):
    go = tmp_path / "go"

    def on_line(line):
        if line and line.isdigit():
            go.touch()
            wait_until(lambda: not is_alive(int(line)), "the child has ended")

    code = f"""
import os, sys, time
os.write(2, b"%d\\n" % os.getpid())
while not os.path.exists({str(go)!r}): time.sleep(0.01)
os.write(2, b"the reason")
"""
    assert run(code, on_line=on_line).lines[-1] == "the reason"


def test_closed_stderr_does_not_end_the_wait():
    ended = run("import os, time; os.close(2); time.sleep(0.3); os._exit(5)")
    assert ended.returncode == 5


def test_the_limit_ends_the_group_even_if_it_ignores_signals(tmp_path, monkeypatch):
    jump_clock(monkeypatch, lambda: (tmp_path / "pids").exists())
    monkeypatch.setattr(process, "TIMEOUT_GRACE_S", 0.2)
    code = f"""
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"])
open({str(tmp_path / "written")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
os.rename({str(tmp_path / "written")!r}, {str(tmp_path / "pids")!r})
time.sleep(600)
"""
    ended = run(code, timeout_s=1000.0)
    assert ended.timed_out and ended.returncode == -signal.SIGKILL
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")


def test_processes_that_a_child_leaves_in_its_group_are_killed(tmp_path):
    code = f"""
import subprocess
open({str(tmp_path / "pid")!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
"""
    assert run(code).returncode == 0
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), "the grandchild is gone")


def test_a_child_dies_with_its_parent():
    code = (
        "import sys; from rnn_scaling.system.processes import process; "
        "process.run_together([process.Task([sys.executable, '-c', "
        "'import os, time; print(os.getpid(), file=__import__(\"sys\").stderr, flush=True); time.sleep(600)'])], 0, "
        "lambda line: line and print(line, flush=True))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_alive(child), "the child is gone")


def test_a_child_whose_parent_died_before_its_launch_does_not_start(tmp_path):
    command = [
        sys.executable,
        str(process.PARENT_DEATH_LAUNCHER),
        str(os.getppid()),
        "touch",
        str(tmp_path / "ran"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "error: the sweep has ended\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("end", ["kill", "parent", "exit"])
def test_a_group_ends_with_its_program(tmp_path, end):
    """Leave no grandchild after the program ends, or it or its parent is killed."""
    pids = tmp_path / "pids"
    last = "true" if end == "exit" else "wait"
    program = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; {last}"
    code = (
        "import os, subprocess, sys; from rnn_scaling.system.processes import parent_death_launcher; "
        "launched = [sys.executable, '-I', parent_death_launcher.__file__, str(os.getpid())]; "
        f"subprocess.run([*launched, parent_death_launcher.GROUP, 'sh', '-c', {program!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(pids.exists, "the program runs")
    leader, grandchild = map(int, pids.read_text().split())
    if end != "exit":
        os.kill(leader if end == "kill" else parent.pid, signal.SIGKILL)
    parent.wait()
    for pid in (leader, grandchild):
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")


@pytest.mark.parametrize(
    "is_progress", [None, lambda line: line.startswith("measuring: ")]
)
def test_each_sign_of_life_restarts_the_limit(monkeypatch, is_progress):
    """Every line takes a hundred seconds; without signs of life the child is ended."""
    lines: list[str] = []
    clock = types.SimpleNamespace(
        monotonic=lambda: 100.0 * len(lines), sleep=time.sleep
    )
    monkeypatch.setattr(process, "time", clock)
    then = "" if is_progress else "; time.sleep(60)"
    code = f"import time; [print('measuring:', i, file=__import__('sys').stderr) for i in range(5)]{then}"
    ended = run(
        code, 150.0, lambda line: lines.append(line) if line else None, is_progress
    )
    assert ended.timed_out == (is_progress is None) and len(lines) <= 5


def test_no_line_after_the_limit_extends_it(monkeypatch):
    beats = [0]

    def on_line(line):
        beats[0] += line is not None

    clock = types.SimpleNamespace(monotonic=lambda: 1.0 * beats[0], sleep=time.sleep)
    monkeypatch.setattr(process, "time", clock)
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: print('x', file=sys.stderr, flush=True); time.sleep(0.01)"
    )
    alive = iter([True] * 5)
    ended = run(code, 20.0, on_line, lambda line: next(alive, False))
    assert (ended.timed_out, ended.returncode) == (True, -signal.SIGKILL)
    assert 20 <= beats[0] < 500


AT = "measuring: 3/9 batches, 1 words/s, loss 1, 5 s left"


@pytest.mark.parametrize(
    "returncode, timed_out, lines, kind, part",
    [
        (-9, False, [AT], "Signal", "out-of-memory killer"),
        (
            -11,
            False,
            ["Fatal Python error: a", "Extension modules: x"],
            "Signal",
            "error: a",
        ),
        (-15, True, ["x", AT], "Timeout", "60 s"),
        (2, False, ["error: --x", "y", AT], "NoRecord", "--x"),
        (130, False, [], "Interrupted", "SIGINT"),
    ],
)
def test_the_end_of_a_run_is_explained(returncode, timed_out, lines, kind, part):
    error = failure.explain_end(returncode, timed_out, lines, make_user_limit(60.0))
    assert error.type == kind and part in error.message


@pytest.mark.parametrize(
    "name, on_path", [("models", True), ("rnn_scaling", True), ("types", False)]
)
def test_modules_in_the_folder_of_the_caller_are_not_imported(
    tmp_path, monkeypatch, name, on_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the caller')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) if on_path else "")
    ended = process.run_together(
        [Task([*process.make_module_command("rnn_scaling.train"), "--batch_size=0"])],
        60.0,
    )
    assert (ended.returncode, len(ended.lines)) == (2, 1)
    assert ended.lines[0].startswith("error: --batch_size=0 ")


def task(code, **fields):
    return process.Task(
        [sys.executable, "-c", f"import os, signal, sys, time\n{code}"], **fields
    )


@pytest.fixture
def short_graces(monkeypatch):
    for name in ("OTHERS_GRACE_S", "TIMEOUT_GRACE_S", "SEVERAL_GRACE_S"):
        monkeypatch.setattr(process, name, 0.2)


def test_the_first_child_that_fails_is_reported_and_the_others_end(
    tmp_path, short_graces
):
    killed = tmp_path / "killed"
    reported = tmp_path / "reported"
    heard = []
    ended = process.run_together(
        [
            task(
                f"while not os.path.exists({str(killed)!r}): time.sleep(0.01)\n"
                f"time.sleep(0.2); open({str(reported)!r}, 'w'); print('error: lost', file=sys.stderr); sys.exit(1)"
            ),
            task(
                f"print('a', file=sys.stderr); open({str(killed)!r}, 'w'); os.kill(os.getpid(), 9)",
                prefix="[w 1] ",
            ),
            task("signal.signal(15, signal.SIG_IGN); time.sleep(600)", prefix="[w 2] "),
        ],
        0.0,
        heard.append,
    )
    assert (ended.task, ended.returncode, ended.returncodes) == (1, -9, (1, -9, -9))
    assert reported.exists()  # The first has time to report the cause.
    assert set(ended.lines) == set(filter(None, heard)) == {"[w 1] a", "error: lost"}


def test_a_stopped_child_is_not_waited_for(short_graces, monkeypatch):
    monkeypatch.setattr(process, "REPORT_GRACE_S", 1e9)
    ended = process.run_together(
        [
            task("os.kill(os.getpid(), signal.SIGSTOP)"),
            task("time.sleep(0.2); sys.exit(3)"),
        ],
        0.0,
    )
    assert (ended.task, ended.returncode, ended.returncodes) == (1, 3, (-9, 3))


def test_a_child_that_may_fail_ends_no_other_and_a_late_failure_is_reported():
    tasks = [task("time.sleep(0.5)"), task("sys.exit(3)", may_fail=True)]
    assert process.run_together(tasks, 0.0).returncode == 0
    ended = process.run_together([task(""), task("time.sleep(0.3); sys.exit(3)")], 0.0)
    assert (ended.task, ended.returncode) == (1, 3)


def test_all_end_when_the_last_cannot_be_started(tmp_path):
    class Unstartable(process.Task):
        @property
        def command(self):
            raise OSError("no more processes")

    started = task(
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    last = object.__new__(Unstartable)
    with pytest.raises(OSError, match="no more processes"):
        process.run_together([started, started, last], 0.0)
    if (tmp_path / "pid").exists():
        pid = int((tmp_path / "pid").read_text() or 0)
        assert not pid or not is_alive(pid)


def test_ctrl_c_ends_the_first_child_before_the_others(tmp_path):
    let_go = tmp_path / "let_go"
    ended = tmp_path / "ended"
    first = f"""
signal.signal(2, lambda *_: (open({str(let_go)!r}, "w"), os._exit(130)))
print("ready", file=sys.stderr, flush=True)
time.sleep(600)
"""
    second = f"""
signal.signal(2, lambda *_: os._exit(1))
print("ready", file=sys.stderr, flush=True)
while not os.path.exists({str(let_go)!r}): time.sleep(0.001)
open({str(ended)!r}, "w")
"""
    heard = []

    def said(line):
        heard.extend([line] if line else [])
        if heard == ["ready"] * 2:
            heard.append("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run_together([task(first), task(second)], 0.0, said)
    assert let_go.exists() and ended.exists()


def test_the_first_of_several_can_have_the_streams_of_this_process():
    code = (
        "from rnn_scaling.system.processes import process; import sys; "
        "says = 'import sys; print(1); print(2, file=sys.stderr)'; "
        "one = process.Task([sys.executable, '-c', says], has_streams=True); "
        "two = process.Task([sys.executable, '-c', 'import os; print(os.environ[\"A\"])'], {'A': 'b'}); "
        "print(process.run_together([one, two], 0.0).lines)"
    )
    done = python(code)
    assert (done.stdout, done.stderr) == ("1\n[]\n", "2\n")
