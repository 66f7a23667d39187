"""Ranks for tests of the meeting: threads of this process, or processes of their own that obey lines on stdin."""

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
from rnn_scaling.cluster.member import Member
from rnn_scaling.cluster.peers import Hello
from rnn_scaling.system.processes.process import TETHER
from tests.support.paths import ROOT

PATIENCE_S = 60.0  # against hanging; nothing is measured by it
VERSIONS = {"rnn_scaling": "0.1.0", "tensorflow": "2.21.0"}


def a_launch(rank, size, meeting, **changes):
    """Rank of `size` on host "h<rank>"."""
    values = {
        "host": f"h{rank}",
        "local_rank": rank,
        "local_size": size,
        "job": "test",
    } | changes
    return Launch(rank, size, "test", meeting, **values)


def a_meeting():
    """Where nobody meets yet."""
    return ports.joined(ports.LOOPBACK, ports.free(ports.MEETING_PORTS))


def a_member(
    rank,
    size,
    meeting,
    launch=None,
    hello=None,
    survives=(),
    timeout_s=PATIENCE_S,
    heartbeat_s=PATIENCE_S,
):
    """A member whose flags, versions and role are those of all others, but for `hello`."""
    said = {"role": "worker", "flags": {"batch_size": 32}, "versions": VERSIONS} | (
        hello or {}
    )
    return Member(
        a_launch(rank, size, meeting, **(launch or {})),
        Hello(**said),
        timeout_s,
        heartbeat_s,
        survives,
    )


def members_of(size, ranks=None):
    """Return ranks of a run that has not begun.

    Args:
      size: How many ranks the run has.
      ranks: (rank, options of `a_member`) of each, or None for all ranks.
    """
    meeting = a_meeting()
    ranks = [(rank, {}) for rank in range(size)] if ranks is None else ranks
    return [a_member(rank, size, meeting, **options) for rank, options in ranks]


def joined_members(size):
    """Return all ranks of a run that has begun."""
    members = members_of(size)
    together(members, Member.join)
    return members


def in_background(member, body):
    """Return the thread in which a member does something."""
    thread = threading.Thread(target=together, args=([member], body), daemon=True)
    thread.start()
    return thread


def together(members, body):
    """body(member) of all at once, each in a thread; what each returned, or the line it failed with."""
    results = {}

    def run(number, member):
        try:
            results[number] = body(member)
        except ClusterError as e:
            results[number] = str(e)

    # Not of a pool, which would wait for those that hang.
    threads = [
        threading.Thread(target=run, args=each, daemon=True)
        for each in enumerate(members)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return [
        results.get(number, "still waits, or raised what it should not")
        for number in range(len(members))
    ]


class Process:
    """A rank in a process of its own."""

    def __init__(self, rank, size, meeting, **options):
        tether = [
            sys.executable,
            "-I",
            str(TETHER),
            str(os.getpid()),
        ]  # also a frozen one dies with the test
        command = [
            *tether,
            sys.executable,
            "-m",
            __name__,
            str(rank),
            str(size),
            meeting,
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
        """Lets it call a method."""
        self._process.stdin.write(f"{command} {value}\n")

    def hear(self):
        """The next line that it prints."""
        return self._lines.get(timeout=PATIENCE_S)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """Ends it whatever state it is in."""
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)
        self._process.stdin.close()
        self._process.stdout.close()


@contextlib.contextmanager
def processes(size, **options):
    """All ranks of a run, joined; none is left when the block ends. options: of `a_member`."""
    meeting, started = a_meeting(), []
    try:
        for rank in range(size):
            started.append(Process(rank, size, meeting, **options))
        for each in started:
            assert each.hear() == "joined"
        yield started
    finally:
        for each in started:
            each.kill()


def say(line):
    """Whole, whatever other threads print."""
    os.write(1, f"{line}\n".encode())


def main(rank, size, meeting, options):
    """Joins, says so, and does what stdin says; says when the run has failed."""
    member = a_member(int(rank), int(size), meeting, **json.loads(options))
    member.join()
    say("joined")
    threading.Thread(target=_tell_failure, args=(member,), daemon=True).start()
    for line in sys.stdin:
        command, _, value = line.strip().partition(" ")
        try:
            if command == "lost":
                say(json.dumps(member.lost))
            elif command == "reports":
                say(json.dumps(member.reports()))
            else:
                getattr(member, command)(*filter(None, [value]))
                say(f"done {command}")
        except ClusterError as e:
            say(f"error {e}")


def _tell_failure(member):
    member.failed.wait()
    say(f"failed {member.failure.message}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(*sys.argv[1:])


def connected(meeting):
    """A plain connection, once somebody listens."""
    while True:
        try:
            return socket.create_connection(ports.split(meeting), PATIENCE_S)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def received_until_closed(connection):
    content = b""
    try:
        while more := connection.recv(4096):
            content += more
    except ConnectionResetError:
        pass
    return content


def a_hello(rank, size, job="test", token=""):
    identity = {
        "rank": rank,
        "size": size,
        "pid": rank,
        "host": "h",
        "role": "worker",
        "address": "",
        "job": job,
    }
    versions = {"Python": ".".join(map(str, os.sys.version_info[:3]))} | VERSIONS
    fields = {
        **identity,
        "versions": versions,
        "flags": {"batch_size": 32},
        "nonce": "n",
    }
    return wire.encode("hello", **fields, proof=tokens.proof(token, fields))


def join_and_leave(member):
    member.join()
    member.leave()
    return "left"
