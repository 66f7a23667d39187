"""Processes in a private network reach each other; no other process reaches them."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

from rnn_scaling.cluster import network_namespace, ports
from tests.cluster.ranks import PATIENCE_S

LISTEN = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print('there', flush=True); s.accept()"
CONNECT = (
    "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    " print(open('/proc/net/dev').read())"
)
NOBODY = 65534
PR_SET_DUMPABLE = 4  # <linux/prctl.h>; otherwise a process that changed its user may not write /proc/self/uid_map
AS_A_USER = f"""
import ctypes, os, runpy, subprocess, sys
MODULE = runpy.run_path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    ctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 1, 0, 0, 0)
    sys.executable = "/usr/bin/python3"  # only root may be able to read this one
with MODULE["create"]() as network:
    print(network.reason)
    subprocess.run([*network.enter, "sh", "-c", "id -u; cat /proc/net/dev"], check=True)
"""


def interfaces(text):
    """Return the names in /proc/net/dev."""
    return [line.partition(":")[0].strip() for line in text.splitlines() if ":" in line]


def test_processes_in_a_network_reach_each_other_and_nobody_else_reaches_them():
    port = ports.find_free()
    with network_namespace.create() as network:
        if not network.enter:
            pytest.skip(f"no network of its own here: {network.reason}")
        listen = [*network.enter, sys.executable, "-c", LISTEN, str(port)]
        listener = subprocess.Popen(listen, stdout=subprocess.PIPE, text=True)
        try:
            assert listener.stdout.readline() == "there\n"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((ports.LOOPBACK, port), PATIENCE_S)
            connect = [*network.enter, sys.executable, "-c", CONNECT, str(port)]
            connected = subprocess.run(
                connect, capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert interfaces(connected.stdout) == ["lo"], connected.stderr
            assert listener.wait(PATIENCE_S) == 0
        finally:
            listener.kill()
            listener.communicate()
    assert not os.path.exists(f"/proc/{network.holder}/ns/net")


def test_a_user_without_rights_gets_a_network_and_keeps_its_name():
    """A process of root first becomes another user, who can read only public files."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        module = shutil.copy(network_namespace.__file__, folder)
        command = [sys.executable, "-c", AS_A_USER, module]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S
        )
    reason, user, *lines = done.stdout.splitlines()
    if reason:
        pytest.skip(f"no network for users here: {reason}")
    assert int(user) == (NOBODY if os.geteuid() == 0 else os.geteuid()), done.stderr
    assert interfaces("\n".join(lines)) == ["lo"]


def test_without_a_network_the_reason_is_returned(tmp_path, monkeypatch):
    no = tmp_path / "no.py"
    no.write_text("import sys; sys.exit('unshare: Operation not permitted')")
    monkeypatch.setattr(network_namespace, "__file__", str(no))
    with network_namespace.create() as network:
        assert network == network_namespace.PrivateNetwork(
            (), "unshare: Operation not permitted"
        )
