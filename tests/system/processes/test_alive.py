"""A process is found again by number and start: the next one with its number is another."""

import os
import subprocess
import sys

from rnn_scaling.system.processes import alive


def test_a_process_is_alive_until_it_ends():
    assert alive.is_alive(alive.identify_this_process())
    code = "from rnn_scaling.system.processes import alive; print(alive.identify_this_process(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process = child.stdout.readline().strip()
        assert process.startswith(f"{child.pid} ") and alive.is_alive(process)
        child.communicate("\n", timeout=30)
    finally:
        child.kill()
        child.wait()
    assert not alive.is_alive(process)


def test_another_process_of_that_number_or_boot_is_not_it(tmp_path):
    number, start, boot = alive.identify_this_process().split()
    assert not alive.is_alive(f"{number} {int(start) + 1} {boot}")
    assert not alive.is_alive(f"{number} {start} other")
    assert not any(map(alive.is_alive, (None, "", "x", "../1 2 3", "9" * 5000)))
    assert alive.identify_this_process(str(tmp_path)) is None
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b\n")
    (folder / "stat").write_text(
        f"{os.getpid()} (a) R 1) S " + " ".join(map(str, range(4, 30)))
    )
    assert alive.is_alive(f"{os.getpid()} 22 b", str(tmp_path))
