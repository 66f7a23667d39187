"""The receiving side of a rank: what the rendezvous sends, and the thread that reads it.

The thread calls nothing of the trainer: it stores a failure, and the next call of the
trainer raises it.

`RankConnection` creates a `Receiver` when the rank has joined.
"""

import selectors
import socket
import threading
import time

from rnn_scaling.cluster import wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.introduction import Introduction
from rnn_scaling.cluster.rank_info import RankInfo


class RunEvents:
    """Stores what a rank has learned about the run, and wakes calls that wait for it.

    `RankConnection` creates it and waits; the `Receiver` stores.

    Attributes:
      ranks: All ranks of the run; empty until they have joined.
      lost: Rank and message of each rank that was lost without ending the run.
      failed: Set when the run has failed, at any rank.
      failure: The failure; it is set before `failed` is.
      has_passed_barrier: Whether a barrier has opened since the ranks joined.
    """

    def __init__(self) -> None:
        self.ranks: tuple[RankInfo, ...] = ()
        self.lost: tuple[tuple[int, str], ...] = ()
        self.failed = threading.Event()
        self.failure: Failure | None = None
        self.has_passed_barrier = False
        self._open_barriers: set[str] = set()
        self._changed = threading.Condition()

    def store(self, message: wire.Message) -> None:
        """Store one message of the rendezvous.

        Raises:
          InvalidMessage: If the rendezvous never sends such a message.
        """
        kind = message["kind"]
        if kind == "welcome":
            ranks = wire.read_field(message, "peers", list)
            self.ranks = tuple(map(RankInfo.from_message, ranks))
            self._open_barrier("welcome")
        elif kind == "pass":
            self.has_passed_barrier = True
            self._open_barrier(wire.read_field(message, "name", str))
        elif kind == "lost":
            rank = wire.read_field(message, "rank", int)
            line = wire.read_field(message, "line", str)
            self.lost = (*self.lost, (rank, line))
        elif kind == "failed":
            self.fail(wire.decode_failure(message))
        elif kind != "beat":
            raise wire.InvalidMessage(kind)

    def fail(self, failure: Failure) -> None:
        """Store why the run ends; only the first failure counts."""
        with self._changed:
            self.failure = self.failure or failure
            self.failed.set()
            self._changed.notify_all()

    def wait_for(self, barrier: str) -> None:
        """Return when a barrier has opened; "welcome" opens when all have joined.

        Raises:
          ClusterError: If the run fails instead.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: barrier in self._open_barriers or self.failure is not None
            )
            if barrier not in self._open_barriers:
                raise self.make_error()
            self._open_barriers.remove(barrier)

    def make_error(self) -> ClusterError:
        """Return the exception that reports the failure of the run."""
        assert self.failure is not None
        return ClusterError(self.failure.message, self.failure)

    def _open_barrier(self, name: str) -> None:
        with self._changed:
            self._open_barriers.add(name)
            self._changed.notify_all()


class Receiver:
    """Reads messages, sends heartbeats, and notices when rank 0 is lost, in a thread.

    `RankConnection` creates it when rank 0 has answered the hello.

    Attributes:
      channel: The connection to the rendezvous; any thread may send.
      is_leaving: Whether the end of the connection is expected.
      closed: Set when the connection has ended.
    """

    def __init__(
        self,
        connection: socket.socket,
        introduction: Introduction,
        events: RunEvents,
        heartbeat_s: float,
    ) -> None:
        self.is_leaving = False
        self.closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self.channel = wire.Channel(connection, self._selector)
        self.channel.max_line_bytes = wire.MAX_BYTES
        self._introduction = introduction
        self._events = events
        self._heartbeat_s = heartbeat_s

    def start(self) -> None:
        """Start the thread, which ends with the connection."""
        threading.Thread(target=self._run, name="rank connection", daemon=True).start()

    def _run(self) -> None:
        try:
            self._receive_and_beat()
        except Exception as e:  # Otherwise the rank would wait for ever.
            cause = f"{type(e).__name__}: {e}"
            info = self._introduction.info
            message = f"{info}: its connection to the other ranks broke: {cause}"
            self._events.fail(Failure(FailureKind.ERROR, info.rank, message))
        finally:
            self.channel.close()
            self._selector.close()
            self.closed.set()

    def _receive_and_beat(self) -> None:
        """Store messages and send heartbeats until the connection ends."""
        channel = self.channel
        pulse = wire.Pulse(self._heartbeat_s)
        while channel.is_open:
            ready = self._selector.select(pulse.period_s)
            now = time.monotonic()
            if pulse.wake():
                channel.heard_at = now
            for _, events in ready:
                if events & selectors.EVENT_WRITE:
                    channel.flush()
                if events & selectors.EVENT_READ and not self._receive():
                    return
            self._check_silence(now)
            if pulse.claim_beat():
                channel.send(wire.encode("beat"))

    def _receive(self) -> bool:
        """Store the messages that have come; return whether the connection is open."""
        try:
            messages = self.channel.receive()
            for message in messages or ():
                self._events.store(message)
        except wire.InvalidMessage as e:
            self._events.fail(self._blame_rank_0(f"sent an invalid message ({e})"))
            return False
        if messages is None and not self.is_leaving:
            self._events.fail(self._blame_rank_0("ended: killed or crashed"))
        return messages is not None

    def _check_silence(self, now: float) -> None:
        """Give rank 0 up, and tell it so, if it has been silent for too long."""
        is_rank_0 = self._introduction.info.rank == 0
        if is_rank_0 or self._events.failed.is_set():
            return
        silence_s = self._heartbeat_s
        # Until the first barrier a rank may load a large library; see `Rendezvous`.
        if not self._events.has_passed_barrier:
            silence_s = max(self._introduction.timeout_s, self._heartbeat_s)
        if now - self.channel.heard_at > silence_s:
            failure = self._blame_rank_0(
                f"has not answered for {silence_s:g} s: it is frozen, or the network "
                "to it is down"
            )
            self.channel.send(wire.encode("gave_up", failure=failure.to_json()))
            self._events.fail(failure)

    def _blame_rank_0(self, predicate: str) -> Failure:
        """Return the loss of rank 0; `predicate` completes a sentence about it."""
        text = f"{self._introduction.rank_0} {predicate}"
        return Failure(FailureKind.LOST, 0, text)
