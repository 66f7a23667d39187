"""One child: every way it can end, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps import failure
from rnn_scaling.sweeps.estimate import user_limit
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import Task
from tests.support.faults import alive, jump, wait_until
from tests.support.paths import ROOT


def run(code, timeout_s=0.0, said=lambda line: None):
    return process.run_together([Task([sys.executable, "-c", code])], timeout_s, said)


def test_exit_status_and_lines():
    heard = []
    ended = run(
        "import sys; print('out'); print('a\\rb', file=sys.stderr); print('c', file=sys.stderr, end=''); sys.exit(7)",
        said=heard.append,
    )
    assert (ended.returncode, ended.timed_out, ended.lines) == (
        7,
        False,
        ["a", "b", "c"],
    )
    assert [line for line in heard if line] == ["a", "b", "c"]


def test_a_signal():
    ended = run("import os; os.kill(os.getpid(), 11)")
    assert ended.returncode == -signal.SIGSEGV


def test_a_command_that_does_not_exist():
    ended = process.run_together([Task(["/no/such/program"])], 0.0)
    assert ended.returncode == 1 and ended.lines[0].startswith(
        "error: /no/such/program: "
    )


def test_a_flood_without_end_of_line_is_read_and_bounded():
    heard = [0]
    code = "import os\nfor _ in range(64): os.write(2, b'x' * 65536)\nos.write(2, b'\\n' + b'y\\n' * 10000)"
    ended = run(code, said=lambda line: heard.append(len(line or "")))
    assert ended.returncode == 0 and sum(heard) == 64 * 65536 + 10000
    assert max(heard) <= 2 * process.LONGEST_LINE
    assert len(ended.lines) == process.LINES_KEPT and ended.lines[-1] == "y"


def test_what_is_said_right_before_the_end_is_read(tmp_path):
    go = tmp_path / "go"

    def said(line):
        if line and line.isdigit():
            go.touch()
            wait_until(lambda: not alive(int(line)), "the child has ended")

    code = f"""
import os, sys, time
os.write(2, b"%d\\n" % os.getpid())
while not os.path.exists({str(go)!r}): time.sleep(0.01)
os.write(2, b"the reason")
"""
    assert run(code, said=said).lines[-1] == "the reason"


def test_closed_stderr_does_not_end_the_wait():
    ended = run("import os, time; os.close(2); time.sleep(0.3); os._exit(5)")
    assert ended.returncode == 5


def test_the_limit_ends_the_whole_group_also_when_it_ignores_signals(
    tmp_path, monkeypatch
):
    jump(monkeypatch, lambda: (tmp_path / "pids").exists())
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
        wait_until(lambda pid=pid: not alive(pid), f"{pid} is gone")


def test_what_a_child_leaves_in_its_group_is_killed_and_not_waited_for(tmp_path):
    code = f"""
import subprocess
open({str(tmp_path / "pid")!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
"""
    assert run(code).returncode == 0
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid), "the grandchild is gone")


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
    assert alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(child), "the child is gone")


def test_a_child_whose_parent_died_before_it_was_tethered_does_not_start(tmp_path):
    command = [
        sys.executable,
        str(process.TETHER),
        str(os.getppid()),
        "touch",
        str(tmp_path / "ran"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "error: the sweep has ended\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("end", ["kill", "parent", "exit"])
def test_a_group_ends_with_its_program(tmp_path, end):
    """Whether the program is killed, its parent is, or it ends well: no grandchild stays."""
    pids = tmp_path / "pids"
    last = "true" if end == "exit" else "wait"
    program = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; {last}"
    code = (
        "import os, subprocess, sys; from rnn_scaling.system.processes import tether; "
        "tethered = [sys.executable, '-I', tether.__file__, str(os.getpid())]; "
        f"subprocess.run([*tethered, tether.GROUP, 'sh', '-c', {program!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(pids.exists, "the program runs")
    leader, grandchild = map(int, pids.read_text().split())
    if end != "exit":
        os.kill(leader if end == "kill" else parent.pid, signal.SIGKILL)
    parent.wait()
    for pid in (leader, grandchild):
        wait_until(lambda pid=pid: not alive(pid), f"{pid} is gone")


@pytest.mark.parametrize(
    "is_alive", [None, lambda line: line.startswith("measuring: ")]
)
def test_a_limit_that_counts_anew_from_each_sign_of_life(monkeypatch, is_alive):
    """Every line takes a hundred seconds; a child that would go on for ever after its limit is ended all the same."""
    lines: list[str] = []
    clock = types.SimpleNamespace(
        monotonic=lambda: 100.0 * len(lines), sleep=time.sleep
    )
    monkeypatch.setattr(process, "time", clock)
    then = "" if is_alive else "; time.sleep(60)"
    code = f"import time; [print('measuring:', i, file=__import__('sys').stderr) for i in range(5)]{then}"
    command = [sys.executable, "-c", code]
    ended = process.run_together(
        [Task(command)],
        150.0,
        lambda line: lines.append(line) if line else None,
        is_alive,
    )
    assert ended.timed_out == (is_alive is None) and len(lines) <= 5


def test_nothing_that_a_run_says_after_its_limit_prolongs_its_life(monkeypatch):
    beats = [0]

    def said(line):
        beats[0] += line is not None

    clock = types.SimpleNamespace(monotonic=lambda: 1.0 * beats[0], sleep=time.sleep)
    monkeypatch.setattr(process, "time", clock)
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: print('x', file=sys.stderr, flush=True); time.sleep(0.01)"
    )
    alive = iter([True] * 5)
    ended = process.run_together(
        [Task([sys.executable, "-c", code])],
        20.0,
        said,
        lambda line: next(alive, False),
    )
    assert (
        ended.timed_out and ended.returncode == -signal.SIGKILL and 20 <= beats[0] < 500
    )


AT = "measuring: 3/9 batches, 1 words/s, loss 1, 5 s left"


@pytest.mark.parametrize(
    "returncode,timed_out,lines,kind,message",
    [
        (
            -9,
            False,
            [AT],
            "Signal",
            "killed by SIGKILL: often the kernel's out-of-memory killer; see dmesg",
        ),
        (
            -11,
            False,
            ["Fatal Python error: Segmentation fault", "Extension modules: x"],
            "Signal",
            "killed by SIGSEGV (last output: Fatal Python error: Segmentation fault)",
        ),
        (
            -15,
            True,
            ["x", AT],
            "Timeout",
            "killed after 60 s, the limit of --run_timeout (last output: measuring: 3/9 batches)",
        ),
        (
            2,
            False,
            ["error: --x", "y", AT],
            "NoRecord",
            "ended with exit status 2 and no result: --x",
        ),
        (
            130,
            False,
            [],
            "Interrupted",
            "interrupted from outside the sweep (SIGINT or SIGTERM)",
        ),
    ],
)
def test_reasons(returncode, timed_out, lines, kind, message):
    assert failure.explain_end(
        returncode, timed_out, lines, user_limit(60.0)
    ) == RunError(type=kind, message=message)


@pytest.mark.parametrize("name", ["models", "rnn_scaling", "numpy", "types", "runpy"])
@pytest.mark.parametrize("on_path", [False, True])
def test_a_child_is_of_this_package_whatever_folder_the_caller_stands_in(
    tmp_path, monkeypatch, name, on_path
):
    if on_path and name in ("types", "runpy"):
        pytest.skip(
            "no Python starts, or runs a module, with such a file on PYTHONPATH"
        )
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the caller')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) if on_path else "")
    ended = process.run_together(
        [Task([*process.our_module("rnn_scaling.train"), "--batch_size=0"])], 60.0
    )
    assert (ended.returncode, len(ended.lines)) == (2, 1) and ended.lines[0].startswith(
        "error: --batch_size=0 "
    )


def task(code, **how):
    return process.Task(
        [sys.executable, "-c", f"import os, signal, sys, time\n{code}"], **how
    )


@pytest.fixture
def short_graces(monkeypatch):
    for name in ("FOLLOWING_GRACE_S", "TIMEOUT_GRACE_S", "SEVERAL_GRACE_S"):
        monkeypatch.setattr(process, name, 0.2)


def test_the_first_of_several_that_fails_is_told_and_the_others_end(
    tmp_path, short_graces
):
    killed, told = tmp_path / "killed", tmp_path / "told"
    heard = []
    ended = process.run_together(
        [
            task(
                f"while not os.path.exists({str(killed)!r}): time.sleep(0.01)\n"
                f"time.sleep(0.2); open({str(told)!r}, 'w'); print('error: lost', file=sys.stderr); sys.exit(1)"
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
    assert told.exists()  # the first has the time to say why
    assert (
        set(ended.lines)
        == {"[w 1] a", "error: lost"}
        == {line for line in heard if line}
    )


def test_one_of_several_that_stands_still_is_not_waited_for(short_graces, monkeypatch):
    monkeypatch.setattr(process, "TELLING_GRACE_S", 1e9)
    ended = process.run_together(
        [
            task("os.kill(os.getpid(), signal.SIGSTOP)"),
            task("time.sleep(0.2); sys.exit(3)"),
        ],
        0.0,
    )
    assert (ended.task, ended.returncode, ended.returncodes) == (1, 3, (-9, 3))


def test_one_that_may_fail_ends_nothing_and_one_that_fails_at_the_end_is_told():
    go_on = task("time.sleep(0.5)")
    assert (
        process.run_together(
            [go_on, task("sys.exit(3)", may_fail=True)], 0.0
        ).returncode
        == 0
    )
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
        assert not pid or not alive(pid)


def test_ctrl_c_ends_the_first_which_lets_the_others_go(tmp_path):
    let_go, ended = tmp_path / "let_go", tmp_path / "ended"
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
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("1\n[]\n", "2\n")
