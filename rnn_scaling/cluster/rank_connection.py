"""The connection of a rank to the rendezvous: join, barriers, reports, failures.

    connection = RankConnection(launch, hello, timeout_s=60, heartbeat_s=10)
    ranks = connection.join()
    connection.barrier("warm")
    ...
    connection.leave()

Addresses, flags, barriers, heartbeats and measurements are sent through it; gradients
never are.

`training.cluster` connects the ranks of a run with `RankConnection`, and
`training.rank_meeting` the ranks of another trainer.
"""

import math
import threading
import time
from collections.abc import Collection
from typing import Any

from rnn_scaling.cluster import wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.introduction import Introduction
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.cluster.rank_info import Hello, RankInfo, name_ranks
from rnn_scaling.cluster.receiver import Receiver, RunEvents
from rnn_scaling.cluster.rendezvous import Rendezvous

_LAST_MESSAGES_S = 2.0  # time limit for messages that are sent while a run ends


class RankConnection:
    """Lets this process join the ranks of its run, meet them and leave with them.

    Trainers create it and call it; they never talk to `Rendezvous`.
    """

    def __init__(
        self,
        launch: Launch,
        hello: Hello,
        timeout_s: float,
        heartbeat_s: float,
        roles_that_may_be_lost: Collection[str] = (),
    ) -> None:
        """Create a connection; `join` opens it.

        Args:
          launch: The rank of this process.
          hello: The facts that the rendezvous compares with rank 0.
          timeout_s: Time limit for joining and for leaving.
          heartbeat_s: Silence after which a rank is lost, once all have met.
          roles_that_may_be_lost: Roles whose loss does not end the run.
        """
        self._launch = launch
        self._roles_that_may_be_lost = roles_that_may_be_lost
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._introduction = Introduction(launch, hello, timeout_s)
        self._events = RunEvents()
        self._rendezvous: Rendezvous | None = None
        self._receiver: Receiver | None = None
        # The message of `abort`. If it is called before there is a receiver, `join`
        # sends it.
        self._last_message = b""

    @property
    def failed(self) -> threading.Event:
        """Set when the run has failed, at any rank."""
        return self._events.failed

    @property
    def failure(self) -> Failure | None:
        """The failure of the run; it is set before `failed` is."""
        return self._events.failure

    @property
    def lost(self) -> tuple[tuple[int, str], ...]:
        """Rank and message of each rank that was lost without ending the run."""
        return self._events.lost

    def join(self) -> tuple[RankInfo, ...]:
        """Wait until all ranks have joined and agree; return them.

        Raises:
          ClusterError: If they disagree, or do not join within `timeout_s`.
        """
        deadline = time.monotonic() + self._timeout_s
        if self._launch.rank == 0:
            self._rendezvous = Rendezvous(
                self._launch,
                self._timeout_s,
                self._heartbeat_s,
                self._roles_that_may_be_lost,
            )
            rank_0_end = self._rendezvous.connect()
            connection = self._introduction.send_hello(rank_0_end, deadline)
        else:
            connection = self._introduction.reach_rank_0(deadline)
        self._receiver = Receiver(
            connection, self._introduction, self._events, self._heartbeat_s
        )
        self._receiver.start()
        if self._last_message:
            self._send(self._last_message)
        try:
            self._events.wait_for("welcome")
        except ClusterError:
            self._close_later()
            raise
        return self._events.ranks

    def barrier(self, name: str, timeout_s: float = math.inf) -> None:
        """Return at all ranks at once, except for the time of a message.

        Raises:
          ClusterError: Once the run has failed.
        """
        self._send(wire.encode("come", name=name, timeout_s=float(timeout_s)))
        self._events.wait_for(name)

    def gather(self, name: str, value: Any) -> list[Any] | None:
        """Wait like `barrier`, and send rank 0 a value.

        Returns:
          At rank 0 the values by rank, with None for a lost rank; at other ranks None.
        """
        self._send(wire.encode("come", name=name, timeout_s=math.inf, value=value))
        self._events.wait_for(name)
        return self._rendezvous.take_gathered(name) if self._rendezvous else None

    def report(self, values: Any) -> None:
        """Send rank 0 JSON data, which it keeps even if the run fails later.

        Does not wait.
        """
        self._send(wire.encode("report", values=values))

    def list_reports(self) -> dict[int, list[Any]]:
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
        info = self._introduction.info
        failure = Failure(kind, info.rank, f"{info} ended: {message}")
        self._last_message = wire.encode("abort", failure=failure.to_json())
        self._send(self._last_message)
        if self._receiver is not None:
            self.failed.wait(_LAST_MESSAGES_S)
        self._events.fail(failure)
        self._close_later()

    def leave(self) -> None:
        """Leave the run. Rank 0 waits for all others.

        After a failure rank 0 waits only for their last reports, two seconds at most.

        Raises:
          ClusterError: If the run fails now, or does not end within `timeout_s`.
        """
        receiver = self._receiver
        if receiver is None or receiver.closed.is_set():
            return
        if self.failed.is_set():
            self._close_later()
            return
        receiver.is_leaving = True
        self._send(wire.encode("leave"))
        deadline = time.monotonic() + self._timeout_s
        while not receiver.closed.wait(0.02) and not self.failed.is_set():
            if time.monotonic() > deadline:
                self.abort(
                    f"{self._describe_delay()} within {self._timeout_s:g} s "
                    f"({self._launch.timeout_option})"
                )
        if self.failed.is_set():
            self._close_later()
            raise self._events.make_error()
        if self._rendezvous:
            self._rendezvous.close(receiver.channel)

    def _describe_delay(self) -> str:
        """Return a sentence about the ranks that keep this rank from leaving."""
        if self._rendezvous:
            return f"{name_ranks(self._rendezvous.list_other_ranks())} did not leave"
        return "rank 0 did not release this rank"

    def _send(self, line: bytes) -> None:
        if self._receiver is not None:
            self._receiver.channel.send(line)

    def _close_later(self) -> None:
        """Close after a failure, when pending messages have been sent.

        Rank 0 also waits for pending messages of the others.
        """
        deadline = time.monotonic() + _LAST_MESSAGES_S
        while self._has_pending_messages() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._receiver is None:
            return
        if self._rendezvous:
            self._rendezvous.close(self._receiver.channel)
        else:
            self._receiver.channel.close()

    def _has_pending_messages(self) -> bool:
        if self._rendezvous:
            return bool(self._rendezvous.list_other_ranks())
        return self._receiver is not None and bool(self._receiver.channel.unsent)
