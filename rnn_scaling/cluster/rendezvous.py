"""The rendezvous of all ranks: one thread in the process of rank 0.

It receives the messages of every rank, lets ranks pass barriers together, and sends
all of them the first failure.

rank -> rendezvous   hello, beat, come (to a barrier, with or without a value), report,
                     abort, gave_up, leave
rendezvous -> rank   refused or seen, welcome, beat, pass, lost, failed

A hello and its answer prove that their sender has the job's token. A connection
without this proof gets no answer.

Only the `RankConnection` of rank 0 creates a `Rendezvous`.
"""

import dataclasses
import selectors
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from rnn_scaling.cluster import wire
from rnn_scaling.cluster.admission import Admission
from rnn_scaling.cluster.barriers import Barriers
from rnn_scaling.cluster.failure import Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.cluster.rank_info import Hello, RankInfo
from rnn_scaling.cluster.server import Connection, Server

_MAX_TICK_S = 0.5


class Rendezvous:
    """Acts on the messages of all ranks, and ends the run at the first failure.

    Only the `RankConnection` of rank 0 creates it, and calls its public methods. The
    private methods belong to the thread.

    Attributes:
      reports: The reports of each rank, in the order of their arrival.
    """

    def __init__(
        self,
        launch: Launch,
        timeout_s: float,
        heartbeat_s: float,
        roles_that_may_be_lost: Collection[str] = (),
    ) -> None:
        """Listen at the address of the rendezvous.

        Args:
          launch: The rank of this process, which is 0.
          timeout_s: Time limit for joining.
          heartbeat_s: Silence after which a rank is lost, once all have met.
          roles_that_may_be_lost: Roles whose loss does not end the run.
        """
        self.reports: defaultdict[int, list[Any]] = defaultdict(list)
        self._heartbeat_s = heartbeat_s
        self._roles_that_may_be_lost = roles_that_may_be_lost
        # A rank may be silent for long while it loads a large library on a shared
        # core. Until the first barrier only the time limit counts.
        self._server = Server(launch, max(timeout_s, heartbeat_s))
        self._admission = Admission(launch, timeout_s)
        self._barriers = Barriers(launch.size)
        self._failure: Failure | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="rendezvous", daemon=True
        )

    def connect(self) -> socket.socket:
        """Start the rendezvous; return rank 0's end of a connection without network."""
        rank_0_end = self._server.connect_rank_0()
        self._thread.start()
        return rank_0_end

    def list_other_ranks(self) -> list[int]:
        """Return the ranks above 0 that are still connected."""
        return sorted(rank for rank in list(self._server.live) if rank)

    def take_gathered(self, name: str) -> list[Any]:
        """Return the values by rank that a barrier gathered, and forget them."""
        return self._barriers.gathered.pop(name)

    def close(self, rank_0_channel: wire.Channel) -> None:
        """End the rendezvous; ranks that are still connected notice it.

        Args:
          rank_0_channel: The channel of rank 0. Closing it wakes the thread.
        """
        self._ends.set()
        rank_0_channel.close()
        self._thread.join(_MAX_TICK_S * 4)

    def _run(self) -> None:
        """Serve all ranks until the run ends."""
        try:
            self._serve_all()
        except Exception as e:  # Otherwise all ranks would wait for ever.
            message = f"rank 0: the rendezvous failed: {type(e).__name__}: {e}"
            self._fail(Failure(FailureKind.ERROR, 0, message))
        finally:
            self._server.close()

    def _serve_all(self) -> None:
        """Answer messages, send heartbeats and act on deadlines."""
        pulse = wire.Pulse(self._heartbeat_s)
        tick_s = min(pulse.period_s, _MAX_TICK_S)
        watched_at = time.monotonic()
        while not self._ends.is_set():
            ready = self._server.wait(tick_s)
            now = time.monotonic()
            if pulse.wake():
                self._server.forgive_silence(now)
            for connection, events in ready:
                if connection is None:
                    self._server.accept()
                else:
                    self._serve(connection, events)
            if pulse.claim_beat():
                self._server.send_all(wire.encode("beat"))
            # This looks at every rank, so it does not run after every message.
            if now - watched_at >= tick_s / 4:
                watched_at = now
                self._watch(now)

    def _serve(self, connection: Connection, events: int) -> None:
        """Read from or write to a connection that is ready."""
        if events & selectors.EVENT_WRITE:
            connection.flush()
        if not events & selectors.EVENT_READ or not connection.is_open:
            return
        try:
            messages = connection.receive()
            if messages is None:
                self._report_lost_rank(connection, "ended: killed or crashed")
            for message in messages or ():
                if connection.is_open:
                    self._handle(connection, message)
        except (wire.InvalidMessage, RecursionError) as e:
            self._report_lost_rank(connection, f"sent an invalid message ({e})")

    def _watch(self, now: float) -> None:
        """Act on the deadlines of joining, strangers, silent ranks and barriers."""
        if self._failure is None and self._admission.is_overdue(now):
            self._begin()
        self._server.drop_late_strangers(now)
        silence = f"has not answered for {self._server.silence_s:g} s"
        for connection in self._server.find_silent_ranks(now):
            self._report_lost_rank(
                connection, f"{silence}: it is frozen, or the network to it is down"
            )
        if self._failure is None:
            self._fail_if(self._barriers.find_overdue(now, self._server.live))

    def _handle(self, connection: Connection, message: wire.Message) -> None:
        """Act on one message of a rank."""
        kind = message["kind"]
        info = connection.info
        if info is None:
            if kind != "hello":
                raise wire.InvalidMessage(kind)
            self._answer_hello(connection, message)
        elif not self._server.is_live(connection):
            return  # It is a second process of this rank.
        elif kind == "come" and self._admission.has_begun:
            self._fail_if(self._barriers.arrive(info, message))
            self._open_barriers()
        elif kind == "report":
            self.reports[info.rank].append(message.get("values"))
        elif kind == "abort":
            # The failure began at the sender, even if the message names another rank.
            failure = dataclasses.replace(wire.decode_failure(message), rank=info.rank)
            self._end(connection, failure)
        elif kind == "gave_up":
            self._fail(wire.decode_failure(message))
        elif kind == "leave":
            self._let_leave(connection, info)
        elif kind != "beat":
            raise wire.InvalidMessage(kind)

    def _answer_hello(self, connection: Connection, message: wire.Message) -> None:
        """Answer a rank of this job and admit it; drop any other connection."""
        if not self._admission.is_from_job(message):
            self._server.drop(connection)
            return
        info = RankInfo.from_message(message)
        hello = Hello.from_message(message)
        size = wire.read_field(message, "size", int)
        connection.send(self._admission.answer(message))
        if self._admission.has_begun:
            self._server.drop(connection)
            return
        connection.info = info
        connection.max_line_bytes = wire.MAX_BYTES
        if self._admission.admit(info, hello, size):
            self._server.live[info.rank] = connection
        if self._failure:
            connection.send(wire.encode("failed", failure=self._failure.to_json()))
        elif self._admission.has_all_hellos:
            self._begin()

    def _begin(self) -> None:
        """Begin the run, or send all ranks the reason why it cannot begin."""
        failure = self._admission.begin()
        if failure is None:
            self._server.send_all(self._admission.welcome())
        else:
            self._fail(failure)

    def _open_barriers(self) -> None:
        """Open the barriers that all live ranks have reached."""
        if self._failure:
            return
        for name in self._barriers.open_complete(self._server.live):
            self._server.silence_s = self._heartbeat_s
            self._server.send_all(wire.encode("pass", name=name))

    def _let_leave(self, connection: Connection, info: RankInfo) -> None:
        """Let a rank leave; rank 0 must wait until all others have left."""
        self._fail_if(self._barriers.leave(info))
        if info.rank:
            self._server.drop(connection)
        self._let_rank_0_leave()

    def _let_rank_0_leave(self) -> None:
        live = self._server.live
        if self._barriers.has_left(0) and live.keys() == {0}:
            self._server.drop(live[0])
            self._ends.set()

    def _report_lost_rank(self, connection: Connection, predicate: str) -> None:
        """End a rank that did not leave; `predicate` completes a sentence about it."""
        if connection.info is None:
            self._server.drop(connection)
            return
        message = f"{connection.info} {predicate}"
        self._end(connection, Failure(FailureKind.LOST, connection.info.rank, message))

    def _end(self, connection: Connection, failure: Failure) -> None:
        """End a rank, and the run unless a rank of its role may be lost."""
        info = connection.info
        if info is None or not self._server.is_live(connection) or self._failure:
            self._server.drop(connection)
            return
        if not self._admission.has_begun and info.rank:
            # A failure of rank 0 ends the run at once: no rank could send it later.
            self._admission.keep_failure(failure)
        elif info.role in self._roles_that_may_be_lost and info.rank:
            connection.send(wire.encode("failed", failure=failure.to_json()))
            self._server.drop(connection)
            line = failure.message
            self._server.send_all(wire.encode("lost", rank=info.rank, line=line))
            self._open_barriers()
        else:
            self._fail(failure)
        self._server.drop(connection)
        self._let_rank_0_leave()

    def _fail(self, failure: Failure) -> None:
        """Send all ranks why the run ends. Only the first failure counts."""
        if self._failure is None:
            self._failure = failure
            self._server.send_all(wire.encode("failed", failure=failure.to_json()))

    def _fail_if(self, failure: Failure | None) -> None:
        if failure is not None:
            self._fail(failure)
