"""Messages on stderr if a process dies inside C++, and if it does not."""

import os
import signal
import subprocess
import sys

LAST = "F0000 cuda_dnn.cc:1 Check failed: offset >= 0"
PROGRAM = """
import os, sys
from rnn_scaling.training.native_log import NativeLog

log = NativeLog()
os.write(2, b"chatter\\n" * 30 + b"F0000 cuda_dnn.cc:1 Check failed: offset >= 0\\n")
print("of Python", file=sys.stderr, flush=True)
{end}
"""


def run(end, **variables):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TF_CPP")
    }
    command = [sys.executable, "-c", PROGRAM.format(end=end)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        env={**environment, **variables},
    )


def test_a_failed_check_shows_its_message_and_where_python_was():
    done = run("os.abort()")
    assert done.returncode == -signal.SIGABRT
    of_python, _, of_cpp = done.stderr.partition("TensorFlow's last messages:\n")
    assert of_python == "of Python\n"
    messages, _, stack = of_cpp.partition("\n\n")
    assert messages.splitlines() == ["chatter"] * 19 + [LAST]
    assert stack.startswith("Fatal Python error: Aborted") and "<string>" in stack


def test_a_signal_to_the_process_group_leaves_the_waiting_process_alive():
    # A crash after Ctrl-C, or after the end of a sweep, must still be reported.
    ignored = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.killpg(0, signal.SIGTERM)"
    done = run(f"{ignored}; os.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == -signal.SIGSEGV
    assert "Check failed: offset >= 0" in done.stderr
    assert "Segmentation fault" in done.stderr


def test_an_end_without_a_crash_shows_nothing_and_leaves_no_process():
    # run() returns when stderr has no writer left: the waiting process, which holds it, has ended.
    for end in ("", "os._exit(3)", "os.kill(os.getpid(), 9)"):
        assert run(end).stderr == "of Python\n", end


def test_a_user_who_sets_the_level_sees_everything():
    done = run("print(repr(log.read_tail()))", TF_CPP_MIN_LOG_LEVEL="0")
    assert done.stderr.count("chatter") == 30 and done.stdout == "''\n"
