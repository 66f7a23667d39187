"""local-cluster over limited links; with root, ranks that meet in their own network."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rnn_scaling.commands import local_cluster
from rnn_scaling.sweeps import cluster_options
from rnn_scaling.sweeps.limited_links import network
from tests.support.faults import is_alive, wait_until
from tests.support.paths import ROOT
from tests.sweeps.test_limited_links import real

MODE = "--variable_update=collective_all_reduce"
# Ranks that meet like the trainer's ranks, using only the environment variables. Rank 0
# prints the messages it received, the launcher and the link.
FAKE_TRAINER = """
import os, socket, sys, time
rank, size = (int(os.environ["RNN_SCALING_" + name]) for name in ("RANK", "SIZE"))
host, port = os.environ["RNN_SCALING_MEETING"].split(":")
own = os.environ["RNN_SCALING_HOST"]
if rank == 0:
    heard = []
    with socket.create_server((own, int(port))) as server:
        for _ in range(size - 1):
            with server.accept()[0] as peer:
                heard.append(peer.recv(100).decode())
    print(sorted(heard), os.environ["RNN_SCALING_LAUNCHER"], os.environ["RNN_SCALING_LINK"], flush=True)
else:
    while True:
        try:
            with socket.create_connection((host, int(port)), source_address=(own, 0)) as s:
                s.send(own.encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
print(f"said by {rank}", file=sys.stderr)
if "--seed=8" in sys.argv:
    time.sleep(1000)
"""
# Without iperf3, whose three seconds no test of these needs.
AS_A_PROCESS = """
import sys
from rnn_scaling.system import entry
from rnn_scaling.commands import local_cluster
from rnn_scaling.system.processes import process
from rnn_scaling.sweeps.limited_links import network
network.PACKAGES = {"ip": "iproute2"}
network.measure = lambda nodes: network.Calibration((1.9e8,) * len(nodes), 0.0001)
fake = [[sys.executable, "-c", sys.argv[1]]] if sys.argv[1] else []
if fake:
    process.SEVERAL_GRACE_S = 0.2  # these let nobody go
entry.leave(lambda: local_cluster.main(sys.argv[2:], *fake))
"""


def start(*words, fake=FAKE_TRAINER):
    """Start local-cluster; `fake` is what its ranks run, or empty for the trainer."""
    command = [sys.executable, "-c", AS_A_PROCESS, fake, *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def list_namespaces(process):
    """Return the namespaces of the switch and of the nodes, in rank order."""
    children = (
        Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    )
    holders = [
        number
        for number in children
        if b"network_namespace.py" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]
    return [
        network.Namespace(int(number), os.readlink(f"/proc/{number}/ns/net"))
        for number in holders
    ]


@pytest.mark.parametrize("flag", ["--link_mbit=nan", "--link_latency_ms=1001.0"])
def test_a_link_that_cannot_be_made_is_refused(flag, capsys):
    assert local_cluster.main([flag, "--", MODE]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {flag} must be ")


def test_links_for_more_processes_than_addresses_are_refused(capsys):
    assert local_cluster.main(["--workers=251", "--link_mbit=1", "--", MODE]) == 2
    assert "got 251" in capsys.readouterr().err


def test_a_mode_of_one_process_needs_no_network(capsys):
    assert (
        local_cluster.main(["--link_mbit=50", "--", "--variable_update=replicated"])
        == 2
    )
    assert "--variable_update=replicated runs in" in capsys.readouterr().err


def test_flags_of_the_run_are_those_of_every_rank():
    (_, options), words, config = cluster_options.read_command_line(
        ["--workers=3", "--link_mbit=50", "--", MODE, "--seed=4"], local_cluster.GROUPS
    )
    assert {MODE, "--seed=4", "--num_workers=3"} <= set(words)
    assert options.link() == network.NetworkLink(5e7)
    assert config.num_processes == 3


@real
def test_ranks_meet_in_their_network_and_leave_nothing():
    process = start("--workers=3", "--link_mbit=200", "--", MODE)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    measured, met = out.splitlines()
    assert measured.startswith("link: 200 Mbit/s asked; 190 Mbit/s")
    assert met.startswith("['10.200.0.2', '10.200.0.3'] local-cluster 200 Mbit/s asked")
    assert {"said by 0", "[worker 1] said by 1", "[worker 2] said by 2"} <= set(
        err.splitlines()
    )


@real
@pytest.mark.parametrize(
    "number, status", [(signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_nothing_is_left_whatever_ends_it(number, status):
    """Expect that ranks and namespaces end at once after kill -9.

    The parent-death launchers of the ranks end them.
    """
    process = start("--workers=2", "--link_mbit=1000", "--", MODE, "--seed=8")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    assert process.stdout.readline(), "the ranks have met"
    switch, *nodes = list_namespaces(process)
    members = [space.list_processes() for space in (switch, *nodes)]
    assert [len(numbers) for numbers in members] == [1, 2, 2]
    os.kill(process.pid, number)
    process.wait(60)
    assert process.returncode == status
    wait_until(lambda: not any(map(is_alive, sum(members, []))), "no rank is left")
    for stream in (process.stdout, process.stderr):
        stream.close()
