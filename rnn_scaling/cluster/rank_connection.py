"""The connection of a rank to the rendezvous: join, barriers, heartbeats, failures.

    connection = RankConnection(launch, hello, timeout_s=60, heartbeat_s=10)
    ranks = connection.join()
    connection.barrier("warm")
    ...
    connection.leave()

Addresses, flags, barriers, heartbeats and measurements are sent through it; gradients
never are.

Trainers use a `RankConnection`; they never talk to `Rendezvous`. Its threads call
nothing of the trainer: a failure is stored, and the next call raises it.
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
from rnn_scaling.cluster.rank_info import Hello, RankInfo, name_ranks
from rnn_scaling.cluster.rendezvous import Rendezvous

_LAST_MESSAGES_S = 2.0  # time limit for messages that are sent while a run ends
CONNECT_S = 5.0  # time limit of one attempt to reach rank 0


class RankConnection:
    """This process among the ranks of its run.

    Attributes:
      failed: Set when the run has failed, at any rank.
      failure: The failure; it is set before `failed` is.
      lost: Rank and message of each rank that was lost without ending the run.
    """

    def __init__(
        self,
        launch: Launch,
        hello: Hello,
        timeout_s: float,
        heartbeat_s: float,
        survives: Collection[str] = (),
    ) -> None:
        """Create a connection; `join` opens it.

        Args:
          launch: The rank of this process.
          hello: The facts that the rendezvous compares with rank 0.
          timeout_s: Time limit for joining and for leaving.
          heartbeat_s: Silence after which a rank is lost, once all have met.
          survives: Roles whose loss does not end the run.
        """
        self.failed = threading.Event()
        self.failure: Failure | None = None
        self.lost: tuple[tuple[int, str], ...] = ()
        self._launch = launch
        self._hello = hello
        self._survives = survives
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._silence_s = max(timeout_s, heartbeat_s)
        self._rendezvous: Rendezvous | None = None
        self._channel: wire.Channel | None = None
        self._selector = selectors.DefaultSelector()
        self._ranks: tuple[RankInfo, ...] = ()
        self._rank_0 = "rank 0"
        # The message of `abort`. If it is called before there is a channel, `join`
        # sends it.
        self._last_message = b""
        self._waits: dict[str, threading.Event] = {}
        self._passed: set[str] = set()
        self._lock = threading.Lock()  # guards the first failure
        self._is_leaving = False
        self._is_closed = threading.Event()

    def join(self) -> tuple[RankInfo, ...]:
        """Wait until all ranks have joined and agree; return them.

        Raises:
          ClusterError: If they disagree, or do not join within `timeout_s`.
        """
        deadline = time.monotonic() + self._timeout_s
        welcome = self._waits["welcome"] = threading.Event()
        if self._launch.rank == 0:
            self._rendezvous = Rendezvous(
                self._launch, self._timeout_s, self._heartbeat_s, self._survives
            )
            connection = self._send_hello(self._rendezvous.connect(), deadline)
        else:
            connection = self._connect(deadline)
        self._channel = wire.Channel(connection, self._selector)
        self._channel.max_line_bytes = wire.MAX_BYTES
        threading.Thread(
            target=self._run, args=(self._channel,), name="rank connection", daemon=True
        ).start()
        if self._last_message:
            self._send(self._last_message)
        try:
            self._wait("welcome", welcome)
        except ClusterError:
            self._close_later()
            raise
        return self._ranks

    def barrier(self, name: str, timeout_s: float = math.inf) -> None:
        """Return at all ranks at once, except for the time of a message.

        Raises:
          ClusterError: Once the run has failed.
        """
        self._wait_at_barrier(name, {"timeout_s": float(timeout_s)})

    def gather(self, name: str, value: Any) -> list[Any] | None:
        """Wait like `barrier`, and send rank 0 a value.

        Returns:
          At rank 0 the values by rank, with None for a lost rank; at other ranks None.
        """
        self._wait_at_barrier(name, {"timeout_s": math.inf, "value": value})
        return self._rendezvous.gathered.pop(name) if self._rendezvous else None

    def report(self, values: Any) -> None:
        """Send rank 0 JSON data, which it keeps even if the run fails later.

        Does not wait.
        """
        self._send(wire.encode("report", values=values))

    def reports(self) -> dict[int, list[Any]]:
        """Return the reports of each rank so far; only rank 0 has any."""
        if not self._rendezvous:
            return {}
        reports = dict(self._rendezvous.reports)
        return {rank: list(values) for rank, values in reports.items()}

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """End the run at all ranks because of an error at this rank.

        Returns when rank 0 has answered, or after two seconds. If the death of another
        rank may have caused the error, wait for `failed` first.

        Args:
          message: The cause in one line, without this rank's name.
          kind: The kind of failure.
        """
        failure = Failure(kind, self._launch.rank, f"{self._info} ended: {message}")
        self._last_message = wire.encode("abort", failure=failure.to_json())
        self._send(self._last_message)
        if self._channel is not None:
            self.failed.wait(_LAST_MESSAGES_S)
        self._fail(failure)
        self._close_later()

    def leave(self) -> None:
        """Leave the run. Rank 0 waits for all others.

        After a failure rank 0 waits only for their last reports, two seconds at most.

        Raises:
          ClusterError: If the run fails now, or does not end within `timeout_s`.
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
                delay = "rank 0 did not release this rank"
                if self._rendezvous:
                    delay = (
                        f"{name_ranks(self._rendezvous.other_ranks())} did not leave"
                    )
                self.abort(
                    f"{delay} within {self._timeout_s:g} s "
                    f"({self._launch.timeout_option})"
                )
        if self.failed.is_set():
            self._close_later()
            raise self._failure_error()
        if self._rendezvous:
            self._rendezvous.close(self._channel)

    @property
    def _info(self) -> RankInfo:
        launch = self._launch
        hello = self._hello
        return RankInfo(
            launch.rank,
            role=hello.role,
            host=launch.host,
            pid=os.getpid(),
            address=hello.address,
        )

    def _send(self, line: bytes) -> None:
        if self._channel is not None:
            self._channel.send(line)

    def _close_later(self) -> None:
        """Close after a failure, when pending messages have been sent.

        Rank 0 also waits for pending messages of the others.
        """
        deadline = time.monotonic() + _LAST_MESSAGES_S
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._rendezvous and self._channel is not None:
            self._rendezvous.close(self._channel)
        elif self._channel is not None:
            self._channel.close()

    def _is_busy(self) -> bool:
        if self._rendezvous:
            return bool(self._rendezvous.other_ranks())
        return self._channel is not None and bool(self._channel.unsent)

    # Joining.

    def _connect(self, deadline: float) -> socket.socket:
        """Connect to rank 0 and introduce this rank."""
        host, port = ports.split(self._launch.rendezvous)
        reason = "no answer"
        while time.monotonic() < deadline:
            try:
                return self._send_hello(
                    socket.create_connection((host, port), CONNECT_S), deadline
                )
            except wire.InvalidMessage:
                reason = "another program answers there"
            except OSError as e:
                reason = e.strerror or str(e) or reason
            time.sleep(max(0.0, min(RETRY_S, deadline - time.monotonic())))
        raise ClusterError(
            f"rank {self._launch.rank}: rank 0 was not reached at "
            f"{self._launch.rendezvous} within {self._timeout_s:g} s "
            f"({self._launch.timeout_option}): {reason}; see what rank 0 printed, "
            f"or {REMEDY}"
        )

    def _send_hello(self, connection: socket.socket, deadline: float) -> socket.socket:
        """Send who this rank is, and read whether rank 0 accepts it.

        Raises:
          ClusterError: If rank 0 refuses this rank.
          InvalidMessage: If another program answers.
        """
        launch = self._launch
        hello = self._hello
        try:
            connection.settimeout(CONNECT_S)
            fields = {
                **vars(self._info),
                "job": launch.job,
                "size": launch.size,
                "versions": {"Python": platform.python_version(), **hello.versions},
                "flags": dict(hello.flags),
                "nonce": secrets.token_hex(16),
            }
            connection.sendall(
                wire.encode(
                    "hello", **fields, proof=tokens.make_proof(launch.token, fields)
                )
            )
            # Wait until the deadline: rank 0 may be loading TensorFlow, and takes a
            # closed connection for a crash.
            answer = wire.receive_first(connection, deadline)
            if not tokens.is_proof(
                launch.token, answer.get("proof"), {"nonce": fields["nonce"]}
            ):
                raise wire.InvalidMessage("not rank 0 of this job")
            if answer["kind"] == "refused":
                raise ClusterError(
                    f"rank {launch.rank}: {wire.read_field(answer, 'line', str)}"
                )
            if answer["kind"] != "seen":
                raise wire.InvalidMessage(answer["kind"])
            self._rank_0 = wire.read_field(answer, "rank_0", str)
        except BaseException:
            connection.close()
            raise
        return connection

    # Rendezvous.

    def _wait_at_barrier(self, name: str, fields: dict[str, Any]) -> None:
        wait = self._waits[name] = threading.Event()
        self._send(wire.encode("come", name=name, **fields))
        self._wait(name, wait)

    def _wait(self, name: str, wait: threading.Event) -> None:
        if not self.failed.is_set():
            wait.wait()
        del self._waits[name]
        if name not in self._passed:
            raise self._failure_error()
        self._passed.remove(name)

    def _failure_error(self) -> ClusterError:
        """Return the exception that reports the failure of the run."""
        assert self.failure is not None
        return ClusterError(self.failure.message, self.failure)

    def _fail(self, failure: Failure) -> None:
        with self._lock:
            self.failure = self.failure or failure
        self.failed.set()
        for wait in list(self._waits.values()):
            wait.set()

    # The thread, which is the only one that receives.

    def _run(self, channel: wire.Channel) -> None:
        try:
            self._receive_and_beat(channel)
        except Exception as e:  # Otherwise the rank would wait for ever.
            cause = f"{type(e).__name__}: {e}"
            message = f"{self._info}: its connection to the other ranks broke: {cause}"
            self._fail(Failure(FailureKind.ERROR, self._launch.rank, message))
        finally:
            channel.close()
            self._selector.close()
            self._is_closed.set()

    def _receive_and_beat(self, channel: wire.Channel) -> None:
        """Handle messages and send heartbeats until the connection ends."""
        pulse = wire.Pulse(self._heartbeat_s)
        while channel.is_open:
            ready = self._selector.select(pulse.period_s)
            now = time.monotonic()
            if pulse.wake():
                channel.heard_at = now
            for _, events in ready:
                if events & selectors.EVENT_WRITE:
                    channel.flush()
                if events & selectors.EVENT_READ and not self._receive(channel):
                    return
            if (
                now - channel.heard_at > self._silence_s
                and not self._rendezvous
                and not self.failed.is_set()
            ):
                silence = f"has not answered for {self._silence_s:g} s"
                text = f"{self._rank_0} {silence}: it is frozen, or the network to it is down"
                failure = Failure(FailureKind.LOST, 0, text)
                channel.send(wire.encode("gave_up", failure=failure.to_json()))
                self._fail(failure)
            if pulse.claim_beat():
                channel.send(wire.encode("beat"))

    def _receive(self, channel: wire.Channel) -> bool:
        """Read the messages that have come; return whether the connection is open."""
        try:
            messages = channel.receive()
            for message in messages or ():
                self._handle(message)
        except wire.InvalidMessage as e:
            text = f"{self._rank_0} sent an invalid message ({e})"
            self._fail(Failure(FailureKind.LOST, 0, text))
            return False
        if messages is None and not self._is_leaving:
            text = f"{self._rank_0} ended: killed or crashed"
            self._fail(Failure(FailureKind.LOST, 0, text))
        return messages is not None

    def _handle(self, message: wire.Message) -> None:
        """Act on one message of the rendezvous."""
        kind = message["kind"]
        if kind == "welcome":
            ranks = wire.read_field(message, "peers", list)
            self._ranks = tuple(map(RankInfo.from_message, ranks))
            self._open_barrier("welcome")
        elif kind == "pass":
            self._silence_s = self._heartbeat_s
            self._open_barrier(wire.read_field(message, "name", str))
        elif kind == "lost":
            self.lost = (
                *self.lost,
                (
                    wire.read_field(message, "rank", int),
                    wire.read_field(message, "line", str),
                ),
            )
        elif kind == "failed":
            self._fail(wire.decode_failure(message))
        elif kind != "beat":
            raise wire.InvalidMessage(kind)

    def _open_barrier(self, name: str) -> None:
        if name in self._waits:
            self._passed.add(name)
            self._waits[name].set()
