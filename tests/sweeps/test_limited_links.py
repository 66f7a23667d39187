"""Limited links: their flags, what iperf3 measures and, with root, real namespaces."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from rnn_scaling.sweeps.limited_links import network
from rnn_scaling.sweeps.limited_links.network import NetworkLink
from rnn_scaling.sweeps.limited_links.run import LinkOptions
from rnn_scaling.system import entry
from tests.support.faults import is_alive, wait_until
from tests.support.paths import ROOT

LINK = NetworkLink(2e8)


def can_make_namespaces():
    """Return whether this process may create network namespaces.

    Root in a container often may not.
    """
    if shutil.which("ip") is None or shutil.which("tc") is None or os.geteuid() != 0:
        return False
    return (
        subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode
        == 0
    )


real = pytest.mark.skipif(
    not can_make_namespaces(),
    reason="needs root, iproute2 and the right to make namespaces",
)


@pytest.mark.parametrize(
    "mbit, latency_ms, link",
    [
        (None, None, None),
        (200.0, None, NetworkLink(2e8)),
        (0.1, 0.5, NetworkLink(1e5, 0.0005)),
        (None, 5.0, NetworkLink(1e9, 0.005)),
        (None, 0.0, NetworkLink(1e9)),
    ],
)
def test_a_link_is_limited_if_a_flag_says_so(mbit, latency_ms, link):
    assert LinkOptions(mbit, latency_ms).link() == link


def test_a_bucket_holds_8_ms_and_a_packet_at_least():
    assert NetworkLink(1e9).burst_bytes == 1_000_000
    assert NetworkLink(1e6).burst_bytes == 66_000
    assert NetworkLink(1e9).queue_bytes == 1_000_000 + 6_250_000
    assert [network.format_megabits(rate) for rate in (2e8, 5e7, 1.5e6, 1e9)] == [
        "200 Mbit/s",
        "50 Mbit/s",
        "1.5 Mbit/s",
        "1000 Mbit/s",
    ]


def test_what_iperf3_says_is_read():
    streams = [{"sender": {"min_rtt": 250}}]
    text = json.dumps(
        {"end": {"sum_received": {"bits_per_second": 1.9e8}, "streams": streams}}
    )
    assert network.parse_iperf3(text) == (1.9e8, 0.00025)
    with pytest.raises(network.CallFailed, match="unable to connect"):
        network.parse_iperf3('{"error": "unable to connect"}')
    for broken in ("", "[]", "{}", '{"end": {}}'):
        with pytest.raises(network.CallFailed, match="no result"):
            network.parse_iperf3(broken)


def test_the_measured_rate_stands_beside_the_one_that_was_asked_for():
    found = network.Calibration((1.91e8, 1.9e8), 0.0003)
    line = network.describe(LINK, found)
    assert line.startswith("200 Mbit/s asked; 190 Mbit/s to 191")
    assert line.endswith("0.3 ms")
    same = network.Calibration((1.9e8, 1.9e8), 0.0003)
    assert " 190 Mbit/s of payload" in network.describe(LINK, same)
    assert network.find_warnings(LINK, found) == []
    [slow] = network.find_warnings(LINK, network.Calibration((1.91e8, 1.2e8), 0.0))
    assert slow.startswith("--link_mbit=200: a link carries only 120 Mbit/s; ")


def test_programs_that_do_not_exist_are_named_with_their_package(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    root, packages = network.find_refusals(False)
    assert "root" in root
    assert packages.endswith("; apt install iperf3 iproute2 util-linux")


@pytest.mark.parametrize(
    "said, missing",
    [
        ("Error: Specified qdisc kind is unknown.", "the token bucket"),
        ("RTNETLINK answers: Operation not permitted", "CAP_SYS_ADMIN"),
    ],
)
def test_a_kernel_that_lacks_a_feature_and_a_process_without_rights(said, missing):
    command = ("sh", "-c", f"echo {said!r} >&2; exit 2")
    with pytest.raises(entry.Refusal) as refused:
        network._require_feature("the token bucket filter (tbf)", "sch_tbf", *command)
    [line] = refused.value.lines
    assert line.startswith(f"--link_mbit and --link_latency_ms need {missing}")
    assert said in line


def list_members(nodes):
    """Return the numbers of the processes in some namespaces.

    A later namespace may get the identity of one that ended.
    """
    return [number for node in nodes for number in node.list_processes()]


@real
def test_nodes_reach_each_other_through_limited_links_and_nothing_is_left():
    with network.open_network(["worker0", "worker1", "ps0"], LINK) as nodes:
        assert [(node.name, node.address) for node in nodes] == [
            ("worker0", "10.200.0.1"),
            ("worker1", "10.200.0.2"),
            ("ps0", "10.200.0.3"),
        ]
        server = "import socket; s = socket.create_server(('', 7)); print('up', flush=True); s.accept()"
        listener = subprocess.Popen(
            nodes[2].wrap_command([sys.executable, "-c", server]),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert listener.stdout is not None and listener.stdout.readline() == "up\n"
        client = (
            f"import socket; socket.create_connection(({nodes[2].address!r}, 7), 10)"
        )
        for node in (nodes[0], nodes[2]):  # another node, and itself
            assert (
                subprocess.run(
                    node.wrap_command([sys.executable, "-c", client])
                ).returncode
                == 0
                or node == nodes[2]
            )
        for node in nodes:
            shown = network.call(
                *node.wrap_command(["tc", "qdisc", "show", "dev", network.DEVICE])
            )
            assert "tbf" in shown and "rate 200Mbit" in shown
        # A process that still runs at the end is ended with its node, in any session.
        sleeper = subprocess.Popen(nodes[1].wrap_command(["setsid", "sleep", "1000"]))
        wait_until(
            lambda: len(nodes[1].list_processes()) == 2,
            "the sleeper is in its namespace",
        )
        members = list_members(nodes)
    assert not any(map(is_alive, members))
    assert sleeper.wait(10) == -signal.SIGKILL
    listener.wait(10)
    listener.stdout.close()


@real
def test_nothing_of_a_killed_run_is_left():
    code = (
        "import time\nfrom rnn_scaling.sweeps.limited_links import network\n"
        "with network.open_network(['worker0', 'worker1'], network.NetworkLink(1e8)) as nodes:\n"
        "    with network.keep_running(nodes[0].wrap_command(['sleep', '1000'])):\n"
        "        while len(nodes[0].list_processes()) < 2: time.sleep(0.01)\n"
        "        print(*(f'{node.holder} {node.identity}' for node in nodes), flush=True); time.sleep(1000)"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout is not None
    words = killed.stdout.readline().split()
    nodes = [
        network.Namespace(int(holder), identity)
        for holder, identity in zip(words[::2], words[1::2])
    ]
    members = list_members(nodes)
    assert len(members) == 3
    killed.kill()
    killed.wait()
    wait_until(lambda: not any(map(is_alive, members)), "the processes ended")
    killed.stdout.close()


@real
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_the_links_carry_what_was_asked_for(delay_s, monkeypatch):
    """Expect at most the requested rate, and at least the requested delay.

    The distance from both depends on the machine.
    """
    monkeypatch.setattr(
        network, "RATE_ARGUMENTS", ("-t", "1")
    )  # a second; a full bucket is a tenth of what it carries
    if delay_s and shutil.which("wirefilter") is None:
        pytest.skip("needs vde2")
    with network.open_network(
        ["worker0", "worker1"], NetworkLink(5e6, delay_s)
    ) as nodes:
        found = network.measure(nodes)
        members = list_members(nodes)
    assert len(found.bits_per_s) == 2 and all(
        0 < rate < 7e6 for rate in found.bits_per_s
    ), found
    assert found.round_trip_s > 2 * delay_s * 0.9
    assert not any(map(is_alive, members))
