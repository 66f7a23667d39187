"""Rank 0's side: one thread that hears every rank, lets them pass barriers together, and tells all who failed and why.

member -> meeting   hello, beat, come (to a barrier, with a value or none), report, abort, gave_up, leave
meeting -> member   refused or seen, welcome, beat, pass, lost, failed

A hello, and the answer to it, proves that its sender has the job's token. Who does not prove it hears nothing.
"""

import dataclasses
import errno
import math
import os
import selectors
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from rnn_scaling.cluster import peers, ports, tokens, wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import REMEDY, Launch
from rnn_scaling.cluster.peers import Hello, Peer

STRANGER_S = 3.0  # within which a connection says who it is
BACKLOG = 1024  # connections that wait to be accepted; of more, clients would try again after seconds
STRANGERS = (
    64  # connections that have not said it; for one more, the oldest of them is closed
)
LONGEST_TICK_S = 0.5


class _Connection(wire.Channel):
    """Somebody who has connected; `peer` once it has said which rank it is."""

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector, address: str
    ) -> None:
        """`address`: of its host; empty: rank 0's own end."""
        super().__init__(connection, selector)
        self.address = address
        self.peer: Peer | None = None
        self.since = self.heard_at

    @property
    def is_stranger(self) -> bool:
        """Whether it may be anybody's."""
        return self.peer is None and bool(self.address)


@dataclasses.dataclass
class _Gathering:
    """A barrier where somebody waits: what each rank brought, and when the patience of one ends."""

    values: dict[int, Any] = dataclasses.field(default_factory=dict)
    keeps_values: bool = False
    deadline: float = math.inf
    timeout_s: float = math.inf


class Rendezvous:
    """The meeting point of all ranks; lives in rank 0's process."""

    def __init__(
        self,
        launch: Launch,
        timeout_s: float,
        heartbeat_s: float,
        survives: Collection[str] = (),
    ) -> None:
        """Starts to listen."""
        self.reports: defaultdict[int, list[Any]] = defaultdict(
            list
        )  # of each rank, in the order in which they came
        self.gathered: dict[
            str, list[Any]
        ] = {}  # each rank's value by name of a gathering; None for a lost one
        self._launch = launch
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._survives = survives
        self._listener = listen(launch)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: set[_Connection] = set()
        self._live: dict[
            int, _Connection
        ] = {}  # of ranks that have joined and neither left nor been lost
        self._joined: dict[int, tuple[Peer, Hello]] = {}
        self._left: set[int] = set()
        self._gatherings: dict[str, _Gathering] = {}
        self._num_hellos = 0
        self._num_turned_away = 0
        # What went wrong before all ranks joined. It is sent when they have, so that
        # it reaches all of them.
        self._trouble: Failure | None = None
        self._has_begun = False
        self._failure: Failure | None = None
        # A rank that loads a large library on a shared core may be silent for long. Until all have met, it is not lost.
        self._silence_s = max(timeout_s, heartbeat_s)
        self._deadline = time.monotonic() + timeout_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meeting", daemon=True)

    def connect(self) -> socket.socket:
        """Rank 0's own end of a connection, which leads through no network; starts the meeting."""
        client, server = socket.socketpair()
        self._connections.add(_Connection(server, self._selector, ""))
        self._thread.start()
        return client

    def others(self) -> list[int]:
        """Ranks but 0 that have joined and neither left nor been lost."""
        return sorted(rank for rank in list(self._live) if rank)

    def close(self, end: wire.Channel) -> None:
        """Ends it; who is still connected sees that. `end`: rank 0's, whose closing the thread notices at once."""
        self._ends.set()
        end.close()
        self._thread.join(LONGEST_TICK_S * 4)

    def _run(self) -> None:
        """The thread, which alone touches what stands below."""
        pulse = wire.Pulse(self._heartbeat_s)
        tick_s = min(pulse.period_s, LONGEST_TICK_S)
        watched_at = time.monotonic()
        try:
            while not self._ends.is_set():
                ready = self._selector.select(tick_s)
                now = time.monotonic()
                if pulse.wake():
                    for connection in self._connections:
                        connection.heard_at = now
                for key, events in ready:
                    self._serve(key.data, events)
                if pulse.is_due():
                    self._tell_all(wire.encode("beat"))
                # It looks at every rank, and so not after every message.
                if now - watched_at >= tick_s / 4:
                    watched_at = now
                    self._watch(now)
        except Exception as e:  # no fault of this thread may leave all ranks waiting
            message = f"rank 0: the rendezvous broke: {type(e).__name__}: {e}"
            self._fail(Failure(FailureKind.ERROR, 0, message))
        finally:
            for connection in list(self._connections):
                self._drop(connection)
            self._listener.close()
            self._selector.close()

    def _serve(self, connection: _Connection | None, events: int) -> None:
        if connection is None:
            self._accept()
            return
        if events & selectors.EVENT_WRITE:
            connection.flush()
        if not events & selectors.EVENT_READ or connection not in self._connections:
            return
        try:
            messages = connection.receive()
            if messages is None:
                self._lose(connection, "ended: killed or crashed")
            for message in messages or ():
                if connection in self._connections:
                    self._take(connection, message)
        except (wire.Rubbish, RecursionError) as e:
            self._lose(connection, f"sent what no rank sends ({e})")

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # it went away again, or this process may open no more files
            time.sleep(0.01)
            return
        strangers = [
            connection for connection in self._connections if connection.is_stranger
        ]
        if len(strangers) >= STRANGERS:
            self._drop(min(strangers, key=lambda stranger: stranger.since))
        try:
            self._connections.add(_Connection(connection, self._selector, address[0]))
        except OSError:  # it went away again
            connection.close()

    def _watch(self, now: float) -> None:
        if not (self._has_begun or self._failure) and now >= self._deadline:
            self._begin()
        for connection in list(self._connections):
            if connection.is_stranger and now - connection.since > STRANGER_S:
                self._drop(connection)
            elif (
                connection.peer is not None
                and connection.peer.rank
                and now - connection.heard_at > self._silence_s
            ):
                silence = f"has not answered for {self._silence_s:g} s"
                self._lose(
                    connection, f"{silence}: it is frozen, or the network to it is down"
                )
        for name, gathering in self._gatherings.items():
            if now > gathering.deadline:
                missing = peers.ranks_text(
                    [
                        rank
                        for rank in sorted(self._live)
                        if rank not in gathering.values
                    ]
                )
                text = (
                    f"{missing} did not reach '{name}' within {gathering.timeout_s:g} s"
                )
                self._fail(Failure(FailureKind.LOST, None, text))

    def _take(self, connection: _Connection, message: wire.Message) -> None:
        kind = message["kind"]
        peer = connection.peer
        if peer is None:
            if kind != "hello":
                raise wire.Rubbish(kind)
            self._greet(connection, message)
        elif self._live.get(peer.rank) is not connection:
            return  # a second process of this rank
        elif kind == "come" and self._has_begun:
            self._come(peer, message)
        elif kind == "report":
            self.reports[peer.rank].append(message.get("values"))
        elif kind == "abort":
            # Whatever the sender claims, it began at the sender.
            failure = dataclasses.replace(wire.failure(message), rank=peer.rank)
            self._end(connection, failure)
        elif kind == "gave_up":
            self._fail(wire.failure(message))
        elif kind == "leave":
            self._leave(connection, peer)
        elif kind != "beat":
            raise wire.Rubbish(kind)

    def _greet(self, connection: _Connection, message: wire.Message) -> None:
        """Hears who a connection is. Who is no rank of this job is told nothing."""
        signed = {
            name: value
            for name, value in message.items()
            if name not in ("kind", "proof")
        }
        proven = tokens.proves(self._launch.token, message.get("proof"), signed)
        if not proven or signed.get("job") != self._launch.job:
            self._num_turned_away += 1
            self._drop(connection)
            return
        peer = Peer.from_message(message)
        rank = peer.rank
        size = wire.field(message, "size", int)
        nonce = wire.field(message, "nonce", str)
        own_proof = tokens.proof(self._launch.token, {"nonce": nonce})
        flags = wire.field(message, "flags", dict)
        versions = wire.field(message, "versions", dict)
        hello = Hello(peer.role, flags, versions, peer.address)
        if self._has_begun:
            refusal = f"the run at {self._launch.meeting} has begun without it; start all ranks by one command"
            connection.send(wire.encode("refused", line=refusal, proof=own_proof))
            self._drop(connection)
            return
        connection.peer = peer
        connection.longest = wire.LONGEST
        rank_0 = f"rank 0 (host {self._launch.host}, process {os.getpid()})"
        connection.send(wire.encode("seen", rank_0=rank_0, proof=own_proof))
        self._num_hellos += 1
        if size != self._launch.size or not 0 <= rank < size:
            sizes = f"was started as one of {size} ranks, rank 0 as one of {self._launch.size}"
            self._note_trouble(f"{peer} {sizes}; start all ranks with one command")
        elif rank in self._joined:
            both = f"{self._joined[rank][0]} and {peer}"
            self._note_trouble(
                f"{both} are two processes with the same rank; give each its own rank"
            )
        else:
            self._live[rank], self._joined[rank] = connection, (peer, hello)
        if self._failure:
            connection.send(wire.encode("failed", failure=self._failure.to_json()))
        elif self._num_hellos >= self._launch.size:
            self._begin()

    def _note_trouble(self, message: str) -> None:
        """Keep why the ranks cannot join, unless something else was found before."""
        if self._trouble is None:
            self._trouble = Failure(FailureKind.NOT_JOINED, None, message)

    def _begin(self) -> None:
        """Let the run begin, or tell all ranks why it cannot."""
        if self._trouble is not None:
            self._fail(self._trouble)
            return
        missing = [
            rank for rank in range(self._launch.size) if rank not in self._joined
        ]
        line = peers.disagreement(self._joined)
        if not line and missing:
            rule = f"did not join within {self._timeout_s:g} s ({self._launch.timeout_option})"
            remedy = f"see what they printed, and whether their hosts reach {self._launch.meeting}"
            line = (
                f"{peers.ranks_text(missing)} of {self._launch.size} {rule}; {remedy}"
            )
            if self._num_turned_away:
                line += f"; rejected {self._num_turned_away} connections with another job or RNN_SCALING_JOB_TOKEN"
        if line:
            self._fail(Failure(FailureKind.NOT_JOINED, None, line))
            return
        self._has_begun = True
        everyone = [
            dataclasses.asdict(self._joined[rank][0])
            for rank in range(self._launch.size)
        ]
        self._tell_all(wire.encode("welcome", peers=everyone))

    def _come(self, peer: Peer, message: wire.Message) -> None:
        name = wire.field(message, "name", str)
        timeout_s = wire.field(message, "timeout_s", float)
        for rank in sorted(self._left):
            text = f"{self._joined[rank][0]} left before '{name}', where {peer} waits"
            self._fail(Failure(FailureKind.LOST, rank, text))
        gathering = self._gatherings.setdefault(name, _Gathering())
        gathering.values[peer.rank] = message.get("value")
        gathering.keeps_values |= "value" in message
        if time.monotonic() + timeout_s < gathering.deadline:
            gathering.deadline = time.monotonic() + timeout_s
            gathering.timeout_s = timeout_s
        self._let_pass()

    def _let_pass(self) -> None:
        """Opens the barriers to which all have come that are still there."""
        if self._failure:
            return
        for name, gathering in list(self._gatherings.items()):
            if gathering.values.keys() >= self._live.keys():
                del self._gatherings[name]
                if gathering.keeps_values:
                    self.gathered[name] = [
                        gathering.values.get(rank) for rank in range(self._launch.size)
                    ]
                self._silence_s = self._heartbeat_s
                self._tell_all(wire.encode("pass", name=name))

    def _leave(self, connection: _Connection, peer: Peer) -> None:
        self._left.add(peer.rank)
        for name in self._gatherings:
            text = f"{peer} left before '{name}', while other ranks wait there"
            self._fail(Failure(FailureKind.LOST, peer.rank, text))
        if peer.rank:
            self._drop(connection)
        self._let_rank_0_leave()

    def _let_rank_0_leave(self) -> None:
        if 0 in self._left and self._live.keys() == {0}:
            self._drop(self._live[0])
            self._ends.set()

    def _lose(self, connection: _Connection, what: str) -> None:
        """End a rank that did not leave; `what` completes a sentence about it."""
        if connection.peer is None:
            self._drop(connection)
            return
        message = f"{connection.peer} {what}"
        self._end(connection, Failure(FailureKind.LOST, connection.peer.rank, message))

    def _end(self, connection: _Connection, failure: Failure) -> None:
        """End a rank, and the run unless it survives the loss of this role."""
        peer = connection.peer
        if peer is None or self._live.get(peer.rank) is not connection or self._failure:
            self._drop(connection)
            return
        if not self._has_begun and peer.rank:
            # Rank 0's own failure ends the run at once: nobody could report it later.
            self._trouble = self._trouble or failure
        elif peer.role in self._survives and peer.rank:
            connection.send(wire.encode("failed", failure=failure.to_json()))
            self._drop(connection)
            self._tell_all(wire.encode("lost", rank=peer.rank, line=failure.message))
            self._let_pass()
        else:
            self._fail(failure)
        self._drop(connection)
        self._let_rank_0_leave()

    def _fail(self, failure: Failure) -> None:
        """Tell all ranks why the run ends. Only the first failure counts."""
        if self._failure is None:
            self._failure = failure
            self._tell_all(wire.encode("failed", failure=failure.to_json()))

    def _tell_all(self, line: bytes) -> None:
        """Rank 0 last: its process would otherwise start to compute before the others have heard."""
        ranks = [
            connection
            for connection in self._connections
            if connection.peer is not None
        ]
        for rank in sorted(
            ranks, key=lambda connection: self._live.get(0) is connection
        ):
            rank.send(line)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            connection.close()
            if (
                connection.peer is not None
                and self._live.get(connection.peer.rank) is connection
            ):
                del self._live[connection.peer.rank]


def listen(launch: Launch) -> socket.socket:
    """The socket where rank 0 waits: on loopback if no other machine takes part, else at the meeting's address."""
    host, port = ports.split(launch.meeting)
    try:
        family, _, _, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        address = str(target[0])
        if ports.is_loopback(address) and not launch.is_local:
            address = ""  # a host's own name may stand for 127.0.1.1 there, and for its real address elsewhere
        return socket.create_server(
            (address, port), family=family, backlog=launch.size + BACKLOG
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            rule = f"port {port} of {host}, where rank 0 waits, is taken by another program"
            remedy = (
                "end that, or give --coordinator_address=HOST:PORT with another port"
            )
        elif e.errno == errno.EADDRNOTAVAIL:
            rule = f"{host} is no address of this host, where rank 0 runs"
            remedy = REMEDY
        else:
            rule = f"rank 0 cannot wait at {launch.meeting}: {e.strerror or e}"
            remedy = REMEDY
        raise ClusterError(f"{rule}; {remedy}") from None
