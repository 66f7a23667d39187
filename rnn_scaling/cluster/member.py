"""A rank's side of the meeting: join, barriers, heartbeats, and the line that says who failed and why.

    member = Member(launch, hello, timeout_s=60, heartbeat_s=10)
    peers = member.join()
    member.barrier("warm")
    ...
    member.leave()

Addresses, flags, barriers, heartbeats and measurements go this way; gradients never do.
"""

import math
import os
import platform
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Collection
from typing import Any

from rnn_scaling.cluster import ports, tokens, wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import REMEDY, RETRY_S, Launch
from rnn_scaling.cluster.peers import Hello, Peer, ranks_text
from rnn_scaling.cluster.rendezvous import Rendezvous

LAST_WORDS_S = 2.0  # for what is said while a run ends
CONNECT_S = 5.0  # of one attempt to reach rank 0


class Member:
    """This process among the ranks of its run."""

    def __init__(
        self,
        launch: Launch,
        hello: Hello,
        timeout_s: float,
        heartbeat_s: float,
        survives: Collection[str] = (),
    ) -> None:
        self.failed = threading.Event()  # set when the run has failed, here or anywhere
        self.failure: Failure | None = None  # set before `failed` is
        self.lost: tuple[
            tuple[int, str], ...
        ] = ()  # rank and line of each whose loss the run survives
        self._launch = launch
        self._hello = hello
        self._survives = survives
        self._timeout_s, self._heartbeat_s, self._silence_s = (
            timeout_s,
            heartbeat_s,
            max(timeout_s, heartbeat_s),
        )
        self._meeting: Rendezvous | None = None
        self._channel: wire.Channel | None = None
        self._selector = selectors.DefaultSelector()
        self._peers: tuple[Peer, ...] = ()
        self._rank_0 = "rank 0"
        self._last_words = (
            b""  # what `abort` tells the others, which is kept until there is a channel
        )
        self._waits: dict[str, threading.Event] = {}
        self._passed: set[str] = set()
        self._lock = threading.Lock()  # over the first failure
        self._is_leaving, self._is_closed = False, threading.Event()

    def join(self) -> tuple[Peer, ...]:
        """Waits until all ranks are there and agree; ClusterError if they disagree, or are late by `timeout_s`."""
        deadline = time.monotonic() + self._timeout_s
        welcome = self._waits["welcome"] = threading.Event()
        if self._launch.rank == 0:
            self._meeting = Rendezvous(
                self._launch, self._timeout_s, self._heartbeat_s, self._survives
            )
            connection = self._introduced(self._meeting.connect(), deadline)
        else:
            connection = self._connected(deadline)
        self._channel = wire.Channel(connection, self._selector)
        self._channel.longest = wire.LONGEST
        threading.Thread(
            target=self._run, args=(self._channel,), name="member", daemon=True
        ).start()
        if self._last_words:
            self._send(self._last_words)
        try:
            self._wait("welcome", welcome)
        except ClusterError:
            self._close_later()
            raise
        return self._peers

    def barrier(self, name: str, timeout_s: float = math.inf) -> None:
        """Returns at all ranks at once, but for the time of a message; ClusterError once the run has failed."""
        self._meet(name, {"timeout_s": float(timeout_s)})

    def gather(self, name: str, value: Any) -> list[Any] | None:
        """Waits as `barrier`; returns the values by rank at rank 0, None for a lost one, and None elsewhere."""
        self._meet(name, {"timeout_s": math.inf, "value": value})
        return self._meeting.gathered.pop(name) if self._meeting else None

    def report(self, values: Any) -> None:
        """Sends rank 0 something that JSON holds, which it keeps even if the run fails later; waits for nothing."""
        self._send(wire.encode("report", values=values))

    def reports(self) -> dict[int, list[Any]]:
        """At rank 0: what each rank has reported so far; elsewhere nothing."""
        return (
            {rank: list(values) for rank, values in dict(self._meeting.reports).items()}
            if self._meeting
            else {}
        )

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """End the run at all ranks because of an error at this rank.

        Returns once rank 0 knows, after two seconds at most. If the death of another
        rank may have caused the error, wait for `failed` first.

        Args:
          message: The cause in one line, without this rank's name.
          kind: What went wrong.
        """
        failure = Failure(kind, self._launch.rank, f"{self._me} ended: {message}")
        self._last_words = wire.encode("abort", failure=failure.to_json())
        self._send(self._last_words)
        if self._channel is not None:
            self.failed.wait(LAST_WORDS_S)
        self._fail(failure)
        self._close_later()

    def leave(self) -> None:
        """Ends this rank's part; ClusterError if the run fails only now, or does not end within `timeout_s`.

        Rank 0 waits for the others; after a failure, at most for their last reports.
        """
        if self._channel is None or self._is_closed.is_set():
            return
        if self.failed.is_set():
            self._close_later()
            return
        self._is_leaving = True
        self._send(wire.encode("leave"))
        deadline = time.monotonic() + self._timeout_s
        while not self._is_closed.wait(0.02) and not self.failed.is_set():
            if time.monotonic() > deadline:
                late = "rank 0 did not let it go"
                if self._meeting:
                    late = f"{ranks_text(self._meeting.others())} did not leave"
                self.abort(
                    f"{late} within {self._timeout_s:g} s ({self._launch.timeout_option})"
                )
        if self.failed.is_set():
            self._close_later()
            raise self._error()
        if self._meeting:
            self._meeting.close(self._channel)

    @property
    def _me(self) -> Peer:
        launch = self._launch
        hello = self._hello
        return Peer(launch.rank, hello.role, launch.host, os.getpid(), hello.address)

    def _send(self, line: bytes) -> None:
        if self._channel is not None:
            self._channel.send(line)

    def _close_later(self) -> None:
        """After a failure: lets what was said arrive, and at rank 0 what the others still say."""
        deadline = time.monotonic() + LAST_WORDS_S
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._meeting and self._channel is not None:
            self._meeting.close(self._channel)
        elif self._channel is not None:
            self._channel.close()

    def _is_busy(self) -> bool:
        if self._meeting:
            return bool(self._meeting.others())
        return self._channel is not None and bool(self._channel.to_send)

    # Joining.

    def _connected(self, deadline: float) -> socket.socket:
        """A connection to rank 0, which has heard who this is."""
        host, port = ports.split(self._launch.meeting)
        problem = "no answer"
        while time.monotonic() < deadline:
            try:
                return self._introduced(
                    socket.create_connection((host, port), CONNECT_S), deadline
                )
            except wire.Rubbish:
                problem = "another program answers there"
            except OSError as e:
                problem = e.strerror or str(e) or problem
            time.sleep(max(0.0, min(RETRY_S, deadline - time.monotonic())))
        rule = f"was not reached at {self._launch.meeting} within {self._timeout_s:g} s ({self._launch.timeout_option})"
        remedy = f"see what rank 0 printed, or {REMEDY}"
        raise ClusterError(
            f"rank {self._launch.rank}: rank 0 {rule}: {problem}; {remedy}"
        )

    def _introduced(self, connection: socket.socket, deadline: float) -> socket.socket:
        """Says who this is and reads whether that is welcome. Raises ClusterError if it is not."""
        launch = self._launch
        hello = self._hello
        try:
            connection.settimeout(CONNECT_S)
            fields = {
                **vars(self._me),
                "job": launch.job,
                "size": launch.size,
                "versions": {"Python": platform.python_version(), **hello.versions},
                "flags": dict(hello.flags),
                "nonce": secrets.token_hex(16),
            }
            connection.sendall(
                wire.encode("hello", **fields, proof=tokens.proof(launch.token, fields))
            )
            # However long it takes: rank 0 may be loading TensorFlow, and takes who goes away for one that has crashed.
            answer = wire.first(connection, deadline)
            if not tokens.proves(
                launch.token, answer.get("proof"), {"nonce": fields["nonce"]}
            ):
                raise wire.Rubbish("no rank 0 of this job")
            if answer["kind"] == "refused":
                raise ClusterError(
                    f"rank {launch.rank}: {wire.field(answer, 'line', str)}"
                )
            if answer["kind"] != "seen":
                raise wire.Rubbish(answer["kind"])
            self._rank_0 = wire.field(answer, "rank_0", str)
        except BaseException:
            connection.close()
            raise
        return connection

    # Rendezvous.

    def _meet(self, name: str, brought: dict[str, Any]) -> None:
        wait = self._waits[name] = threading.Event()
        self._send(wire.encode("come", name=name, **brought))
        self._wait(name, wait)

    def _wait(self, name: str, wait: threading.Event) -> None:
        if not self.failed.is_set():
            wait.wait()
        del self._waits[name]
        if name not in self._passed:
            raise self._error()
        self._passed.remove(name)

    def _error(self) -> ClusterError:
        """Return the exception that reports the failure of the run."""
        assert self.failure is not None
        return ClusterError(self.failure.message, self.failure)

    def _fail(self, failure: Failure) -> None:
        with self._lock:
            self.failure = self.failure or failure
        self.failed.set()
        for wait in list(self._waits.values()):
            wait.set()

    # The thread, which alone receives.

    def _run(self, channel: wire.Channel) -> None:
        try:
            self._talk(channel)
        except Exception as e:  # no fault of this thread may leave its rank waiting
            message = (
                f"its connection to the other ranks broke: {type(e).__name__}: {e}"
            )
            self._fail(
                Failure(FailureKind.ERROR, self._launch.rank, f"{self._me}: {message}")
            )
        finally:
            channel.close()
            self._selector.close()
            self._is_closed.set()

    def _talk(self, channel: wire.Channel) -> None:
        pulse = wire.Pulse(self._heartbeat_s)
        while channel.is_open:
            ready = self._selector.select(pulse.period_s)
            now = time.monotonic()
            if pulse.wake():
                channel.heard_at = now
            for _, events in ready:
                if events & selectors.EVENT_WRITE:
                    channel.flush()
                if events & selectors.EVENT_READ and not self._hear(channel):
                    return
            if (
                now - channel.heard_at > self._silence_s
                and not self._meeting
                and not self.failed.is_set()
            ):
                silence = f"has not answered for {self._silence_s:g} s"
                text = f"{self._rank_0} {silence}: it is frozen, or the network to it is down"
                failure = Failure(FailureKind.LOST, 0, text)
                channel.send(wire.encode("gave_up", failure=failure.to_json()))
                self._fail(failure)
            if pulse.is_due():
                channel.send(wire.encode("beat"))

    def _hear(self, channel: wire.Channel) -> bool:
        """Reads what has come; False: the connection is closed."""
        try:
            messages = channel.receive()
            for message in messages or ():
                self._take(message)
        except wire.Rubbish as e:
            text = f"{self._rank_0} sent an invalid message ({e})"
            self._fail(Failure(FailureKind.LOST, 0, text))
            return False
        if messages is None and not self._is_leaving:
            text = f"{self._rank_0} ended: killed or crashed"
            self._fail(Failure(FailureKind.LOST, 0, text))
        return messages is not None

    def _take(self, message: wire.Message) -> None:
        kind = message["kind"]
        if kind == "welcome":
            peers = wire.field(message, "peers", list)
            self._peers = tuple(map(Peer.from_message, peers))
            self._pass("welcome")
        elif kind == "pass":
            self._silence_s = self._heartbeat_s
            self._pass(wire.field(message, "name", str))
        elif kind == "lost":
            self.lost = (
                *self.lost,
                (wire.field(message, "rank", int), wire.field(message, "line", str)),
            )
        elif kind == "failed":
            self._fail(wire.failure(message))
        elif kind != "beat":
            raise wire.Rubbish(kind)

    def _pass(self, name: str) -> None:
        if name in self._waits:
            self._passed.add(name)
            self._waits[name].set()
