"""Ranks for tests of the rendezvous: threads of this process, or other processes.

Those processes obey lines on stdin.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading

from rnn_scaling.cluster import ports, tokens, wire
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.cluster.rank_connection import RankConnection
from rnn_scaling.cluster.rank_info import Hello
from rnn_scaling.system.processes.process import PARENT_DEATH_LAUNCHER
from tests.support.paths import ROOT

PATIENCE_S = 60.0  # against hanging; nothing is measured by it
VERSIONS = {"rnn_scaling": "0.1.0", "tensorflow": "2.21.0"}


def make_launch(rank, size, address, **changes):
    """Return the launch of a rank on host "h<rank>"."""
    values = {
        "host": f"h{rank}",
        "local_rank": rank,
        "local_size": size,
        "job_id": "test",
    } | changes
    return Launch(rank, size, "test", address, **values)


def find_free_address():
    """Return an address that no rendezvous uses yet."""
    return ports.join(ports.LOOPBACK, ports.find_free(ports.RENDEZVOUS_PORTS))


def make_connection(
    rank,
    size,
    address,
    launch=None,
    hello=None,
    survives=(),
    timeout_s=PATIENCE_S,
    heartbeat_s=PATIENCE_S,
):
    """Return a rank with the flags, versions and role of all others, except `hello`."""
    fields = {"role": "worker", "flags": {"batch_size": 32}, "versions": VERSIONS} | (
        hello or {}
    )
    return RankConnection(
        make_launch(rank, size, address, **(launch or {})),
        Hello(**fields),
        timeout_s,
        heartbeat_s,
        survives,
    )


def make_connections(size, ranks=None):
    """Return ranks of a run that has not begun.

    Args:
      size: How many ranks the run has.
      ranks: (rank, options of `a_connection`) of each, or None for all ranks.
    """
    address = find_free_address()
    ranks = [(rank, {}) for rank in range(size)] if ranks is None else ranks
    return [make_connection(rank, size, address, **options) for rank, options in ranks]


def join_connections(size):
    """Return all ranks of a run that has begun."""
    connections = make_connections(size)
    run_together(connections, RankConnection.join)
    return connections


def start_in_background(connection, body):
    """Return the thread in which a connection does something."""
    thread = threading.Thread(
        target=run_together, args=([connection], body), daemon=True
    )
    thread.start()
    return thread


def run_together(connections, body):
    """Call body(connection) in a thread per connection; return the results or errors."""
    results = {}

    def run(number, connection):
        try:
            results[number] = body(connection)
        except ClusterError as e:
            results[number] = str(e)

    # A pool would wait for threads that hang.
    threads = [
        threading.Thread(target=run, args=each, daemon=True)
        for each in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return [
        results.get(number, "still waits, or raised what it should not")
        for number in range(len(connections))
    ]


class Process:
    """A rank in another process."""

    def __init__(self, rank, size, address, **options):
        launcher = [
            sys.executable,
            "-I",
            str(PARENT_DEATH_LAUNCHER),
            str(os.getpid()),
        ]  # Even a frozen rank dies with the test.
        command = [
            *launcher,
            sys.executable,
            "-m",
            __name__,
            str(rank),
            str(size),
            address,
            json.dumps(options),
        ]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("EOF")

    def do(self, command, value=""):
        """Let the rank call a method."""
        self._process.stdin.write(f"{command} {value}\n")

    def hear(self):
        """Return the next line that the rank prints."""
        return self._lines.get(timeout=PATIENCE_S)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """End the process in any state."""
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)
        self._process.stdin.close()
        self._process.stdout.close()


@contextlib.contextmanager
def processes(size, **options):
    """Yield all ranks of a run, joined, and end them after the block."""
    address = find_free_address()
    started = []
    try:
        for rank in range(size):
            started.append(Process(rank, size, address, **options))
        for each in started:
            assert each.hear() == "joined"
        yield started
    finally:
        for each in started:
            each.kill()


def print_line(line):
    """Print a line without mixing it with lines of other threads."""
    os.write(1, f"{line}\n".encode())


def main(rank, size, address, options):
    """Join, and obey the lines of stdin; print every event and the failure of the run."""
    connection = make_connection(int(rank), int(size), address, **json.loads(options))
    connection.join()
    print_line("joined")
    threading.Thread(target=_print_failure, args=(connection,), daemon=True).start()
    for line in sys.stdin:
        command, _, value = line.strip().partition(" ")
        try:
            if command == "lost":
                print_line(json.dumps(connection.lost))
            elif command == "reports":
                print_line(json.dumps(connection.list_reports()))
            else:
                getattr(connection, command)(*filter(None, [value]))
                print_line(f"done {command}")
        except ClusterError as e:
            print_line(f"error {e}")


def _print_failure(connection):
    connection.failed.wait()
    print_line(f"failed {connection.failure.message}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(*sys.argv[1:])


def connect(address):
    """Return a plain connection, once a rendezvous listens."""
    while True:
        try:
            return socket.create_connection(ports.split(address), PATIENCE_S)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def receive_until_closed(connection):
    content = b""
    try:
        while more := connection.recv(4096):
            content += more
    except ConnectionResetError:
        pass
    return content


def make_hello(rank, size, job_id="test", token=""):
    identity = {
        "rank": rank,
        "size": size,
        "pid": rank,
        "host": "h",
        "role": "worker",
        "address": "",
        "job": job_id,
    }
    versions = {"Python": ".".join(map(str, os.sys.version_info[:3]))} | VERSIONS
    fields = {
        **identity,
        "versions": versions,
        "flags": {"batch_size": 32},
        "nonce": "n",
    }
    return wire.encode("hello", **fields, proof=tokens.make_proof(token, fields))


def meet_and_leave(connection):
    connection.barrier("still there")
    connection.leave()
    return "left"


@contextlib.contextmanager
def rank_0_joins(*connections):
    """Join and leave as rank 0 in the background, and as the other ranks at the end.

    No failure may occur.
    """
    first = start_in_background(connections[0], join_and_leave)
    yield
    assert run_together(connections[1:], join_and_leave) == ["left"] * len(
        connections[1:]
    )
    first.join(PATIENCE_S)
    assert not connections[0].failure


def join_and_leave(connection):
    connection.join()
    connection.leave()
    return "left"
