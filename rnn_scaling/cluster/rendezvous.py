"""The rendezvous of all ranks: one thread in the process of rank 0.

It receives the messages of every rank, lets ranks pass barriers together, and sends
all of them the first failure.

rank -> rendezvous   hello, beat, come (to a barrier, with or without a value), report,
                     abort, gave_up, leave
rendezvous -> rank   refused or seen, welcome, beat, pass, lost, failed

A hello and its answer prove that their sender has the job's token. A connection
without this proof gets no answer.

Only the `RankConnection` of rank 0 starts it, and takes its `reports` and `gathered`.
Everything else belongs to the thread.
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

from rnn_scaling.cluster import ports, rank_info, tokens, wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import REMEDY, Launch
from rnn_scaling.cluster.rank_info import Hello, RankInfo

STRANGER_S = 3.0  # time limit for the hello of a connection
# Connections that wait to be accepted; further ranks would try again after seconds.
_BACKLOG = 1024
# Connections without a hello; if there is one more, the oldest is closed.
MAX_STRANGERS = 64
_MAX_TICK_S = 0.5


class _Connection(wire.Channel):
    """A connection of a rank, or of a stranger.

    Attributes:
      address: The address of its host, or "" for the connection of rank 0.
      info: The rank at the other end, or None before its hello.
      since: time.monotonic() when it was accepted.
    """

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector, address: str
    ) -> None:
        super().__init__(connection, selector)
        self.address = address
        self.info: RankInfo | None = None
        self.since = self.heard_at

    @property
    def is_stranger(self) -> bool:
        """Whether any program may have opened the connection."""
        return self.info is None and bool(self.address)


@dataclasses.dataclass
class _Gathering:
    """A barrier where at least one rank waits.

    Attributes:
      values: The value of each rank that waits.
      keeps_values: Whether ranks sent values.
      deadline: The earliest end of a rank's time limit, by time.monotonic().
      timeout_s: That time limit.
    """

    values: dict[int, Any] = dataclasses.field(default_factory=dict)
    keeps_values: bool = False
    deadline: float = math.inf
    timeout_s: float = math.inf


class Rendezvous:
    """The meeting point of all ranks; it runs in the process of rank 0.

    Attributes:
      reports: The reports of each rank, in the order of their arrival.
      gathered: The values by rank of each gathering; None for a lost rank.
    """

    def __init__(
        self,
        launch: Launch,
        timeout_s: float,
        heartbeat_s: float,
        survives: Collection[str] = (),
    ) -> None:
        """Listen at the address of the rendezvous."""
        self.reports: defaultdict[int, list[Any]] = defaultdict(list)
        self.gathered: dict[str, list[Any]] = {}
        self._launch = launch
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._survives = survives
        self._listener = listen(launch)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: set[_Connection] = set()
        # Ranks that have joined and have neither left nor been lost.
        self._live: dict[int, _Connection] = {}
        self._joined: dict[int, tuple[RankInfo, Hello]] = {}
        self._left: set[int] = set()
        self._gatherings: dict[str, _Gathering] = {}
        self._num_hellos = 0
        self._num_rejected = 0
        # A failure before all ranks have joined. It is sent when they have, so that it
        # reaches all of them.
        self._early_failure: Failure | None = None
        self._has_begun = False
        self._failure: Failure | None = None
        # A rank may be silent for long while it loads a large library on a shared
        # core. Until the first barrier only the time limit counts.
        self._silence_s = max(timeout_s, heartbeat_s)
        self._deadline = time.monotonic() + timeout_s
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="rendezvous", daemon=True
        )

    def connect(self) -> socket.socket:
        """Start the rendezvous; return rank 0's end of a connection without network."""
        rank_0_end, own_end = socket.socketpair()
        self._connections.add(_Connection(own_end, self._selector, ""))
        self._thread.start()
        return rank_0_end

    def other_ranks(self) -> list[int]:
        """Return the ranks above 0 that are still connected."""
        return sorted(rank for rank in list(self._live) if rank)

    def close(self, rank_0_channel: wire.Channel) -> None:
        """End the rendezvous; ranks that are still connected notice it.

        Args:
          rank_0_channel: The channel of rank 0. Closing it wakes the thread.
        """
        self._ends.set()
        rank_0_channel.close()
        self._thread.join(_MAX_TICK_S * 4)

    def _run(self) -> None:
        """Serve all ranks. Only this thread calls the methods below."""
        pulse = wire.Pulse(self._heartbeat_s)
        tick_s = min(pulse.period_s, _MAX_TICK_S)
        watched_at = time.monotonic()
        try:
            while not self._ends.is_set():
                ready = self._selector.select(tick_s)
                now = time.monotonic()
                if pulse.wake():
                    self._forgive_silence(now)
                for key, events in ready:
                    self._serve(key.data, events)
                if pulse.claim_beat():
                    self._send_all(wire.encode("beat"))
                # This looks at every rank, so it does not run after every message.
                if now - watched_at >= tick_s / 4:
                    watched_at = now
                    self._watch(now)
        except Exception as e:  # Otherwise all ranks would wait for ever.
            message = f"rank 0: the rendezvous failed: {type(e).__name__}: {e}"
            self._fail(Failure(FailureKind.ERROR, 0, message))
        finally:
            for connection in list(self._connections):
                self._drop(connection)
            self._listener.close()
            self._selector.close()

    def _forgive_silence(self, now: float) -> None:
        """Forget the silence of the ranks while this process was frozen."""
        for connection in self._connections:
            connection.heard_at = now

    def _serve(self, connection: _Connection | None, events: int) -> None:
        """Read from or write to a connection that is ready."""
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
                self._report_lost_rank(connection, "ended: killed or crashed")
            for message in messages or ():
                if connection in self._connections:
                    self._handle(connection, message)
        except (wire.InvalidMessage, RecursionError) as e:
            self._report_lost_rank(connection, f"sent an invalid message ({e})")

    def _accept(self) -> None:
        """Accept a connection; if too many are strangers, drop the oldest of them."""
        try:
            connection, address = self._listener.accept()
        except OSError:  # It was closed again, or this process has too many open files.
            time.sleep(0.01)
            return
        strangers = [
            connection for connection in self._connections if connection.is_stranger
        ]
        if len(strangers) >= MAX_STRANGERS:
            self._drop(min(strangers, key=lambda stranger: stranger.since))
        try:
            self._connections.add(_Connection(connection, self._selector, address[0]))
        except OSError:  # It was closed again.
            connection.close()

    def _watch(self, now: float) -> None:
        """Act on the deadlines of joining, strangers, silent ranks and barriers."""
        if not (self._has_begun or self._failure) and now >= self._deadline:
            self._begin()
        for connection in list(self._connections):
            if connection.is_stranger and now - connection.since > STRANGER_S:
                self._drop(connection)
            elif (
                connection.info is not None
                and connection.info.rank
                and now - connection.heard_at > self._silence_s
            ):
                silence = f"has not answered for {self._silence_s:g} s"
                self._report_lost_rank(
                    connection, f"{silence}: it is frozen, or the network to it is down"
                )
        for name, gathering in self._gatherings.items():
            if now > gathering.deadline:
                missing_ranks = sorted(self._live.keys() - gathering.values.keys())
                text = (
                    f"{rank_info.name_ranks(missing_ranks)} did not reach '{name}' "
                    f"within {gathering.timeout_s:g} s"
                )
                self._fail(Failure(FailureKind.LOST, None, text))

    def _handle(self, connection: _Connection, message: wire.Message) -> None:
        """Act on one message of a rank."""
        kind = message["kind"]
        info = connection.info
        if info is None:
            if kind != "hello":
                raise wire.InvalidMessage(kind)
            self._answer_hello(connection, message)
        elif self._live.get(info.rank) is not connection:
            return  # It is a second process of this rank.
        elif kind == "come" and self._has_begun:
            self._join_barrier(info, message)
        elif kind == "report":
            self.reports[info.rank].append(message.get("values"))
        elif kind == "abort":
            # The failure began at the sender, even if the message names another rank.
            failure = dataclasses.replace(wire.decode_failure(message), rank=info.rank)
            self._end(connection, failure)
        elif kind == "gave_up":
            self._fail(wire.decode_failure(message))
        elif kind == "leave":
            self._leave(connection, info)
        elif kind != "beat":
            raise wire.InvalidMessage(kind)

    def _answer_hello(self, connection: _Connection, message: wire.Message) -> None:
        """Read the hello of a connection; answer only ranks of this job."""
        signed = dict(message)
        del signed["kind"]
        sent_proof = signed.pop("proof", None)
        has_token = tokens.is_proof(self._launch.token, sent_proof, signed)
        if not has_token or signed.get("job") != self._launch.job:
            self._num_rejected += 1
            self._drop(connection)
            return
        info = RankInfo.from_message(message)
        size = wire.read_field(message, "size", int)
        nonce = wire.read_field(message, "nonce", str)
        own_proof = tokens.make_proof(self._launch.token, {"nonce": nonce})
        flags = wire.read_field(message, "flags", dict)
        versions = wire.read_field(message, "versions", dict)
        hello = Hello(info.role, flags, versions, info.address)
        if self._has_begun:
            refusal = (
                f"the run at {self._launch.rendezvous} has begun without it; "
                "start all ranks with one command"
            )
            connection.send(wire.encode("refused", line=refusal, proof=own_proof))
            self._drop(connection)
            return
        connection.info = info
        connection.max_line_bytes = wire.MAX_BYTES
        rank_0 = f"rank 0 (host {self._launch.host}, process {os.getpid()})"
        connection.send(wire.encode("seen", rank_0=rank_0, proof=own_proof))
        self._num_hellos += 1
        self._admit(connection, info, hello, size)
        if self._failure:
            connection.send(wire.encode("failed", failure=self._failure.to_json()))
        elif self._num_hellos >= self._launch.size:
            self._begin()

    def _admit(
        self, connection: _Connection, info: RankInfo, hello: Hello, size: int
    ) -> None:
        """Add a rank to the run, or note why its number makes the run fail.

        Args:
          connection: The connection of the rank.
          info: The number and the process of the rank.
          hello: The facts in which all ranks must agree.
          size: The number of ranks with which it was started.
        """
        rank = info.rank
        if size != self._launch.size or not 0 <= rank < size:
            self._note_early_failure(
                f"{info} was started as one of {size} ranks, but rank 0 as one of "
                f"{self._launch.size}; start all ranks with one command"
            )
        elif rank in self._joined:
            self._note_early_failure(
                f"{self._joined[rank][0]} and {info} are two processes with the same "
                "rank; give each its own rank"
            )
        else:
            self._live[rank] = connection
            self._joined[rank] = (info, hello)

    def _note_early_failure(self, message: str) -> None:
        """Keep why the ranks cannot join; only the first reason counts."""
        if self._early_failure is None:
            self._early_failure = Failure(FailureKind.NOT_JOINED, None, message)

    def _begin(self) -> None:
        """Begin the run, or send all ranks the reason why it cannot begin."""
        if self._early_failure is not None:
            self._fail(self._early_failure)
            return
        missing_ranks = [
            rank for rank in range(self._launch.size) if rank not in self._joined
        ]
        line = rank_info.describe_disagreement(self._joined)
        if not line and missing_ranks:
            line = (
                f"{rank_info.name_ranks(missing_ranks)} of {self._launch.size} did not "
                f"join within {self._timeout_s:g} s ({self._launch.timeout_option}); "
                "check their output, and whether their hosts can reach "
                f"{self._launch.rendezvous}"
            )
            if self._num_rejected:
                line += (
                    "; rejected connections with another job or "
                    f"RNN_SCALING_JOB_TOKEN: {self._num_rejected}"
                )
        if line:
            self._fail(Failure(FailureKind.NOT_JOINED, None, line))
            return
        self._has_begun = True
        ranks = range(self._launch.size)
        infos = [dataclasses.asdict(self._joined[rank][0]) for rank in ranks]
        self._send_all(wire.encode("welcome", peers=infos))

    def _join_barrier(self, info: RankInfo, message: wire.Message) -> None:
        """Note that a rank has arrived, and open complete barriers."""
        name = wire.read_field(message, "name", str)
        timeout_s = wire.read_field(message, "timeout_s", float)
        for rank in sorted(self._left):
            text = f"{self._joined[rank][0]} left before '{name}', where {info} waits"
            self._fail(Failure(FailureKind.LOST, rank, text))
        gathering = self._gatherings.setdefault(name, _Gathering())
        gathering.values[info.rank] = message.get("value")
        gathering.keeps_values |= "value" in message
        if time.monotonic() + timeout_s < gathering.deadline:
            gathering.deadline = time.monotonic() + timeout_s
            gathering.timeout_s = timeout_s
        self._open_barriers()

    def _open_barriers(self) -> None:
        """Open the barriers that all live ranks have reached."""
        if self._failure:
            return
        for name, gathering in list(self._gatherings.items()):
            if gathering.values.keys() >= self._live.keys():
                del self._gatherings[name]
                if gathering.keeps_values:
                    ranks = range(self._launch.size)
                    self.gathered[name] = [gathering.values.get(rank) for rank in ranks]
                self._silence_s = self._heartbeat_s
                self._send_all(wire.encode("pass", name=name))

    def _leave(self, connection: _Connection, info: RankInfo) -> None:
        self._left.add(info.rank)
        for name in self._gatherings:
            text = f"{info} left before '{name}', while other ranks wait there"
            self._fail(Failure(FailureKind.LOST, info.rank, text))
        if info.rank:
            self._drop(connection)
        self._let_rank_0_leave()

    def _let_rank_0_leave(self) -> None:
        if 0 in self._left and self._live.keys() == {0}:
            self._drop(self._live[0])
            self._ends.set()

    def _report_lost_rank(self, connection: _Connection, predicate: str) -> None:
        """End a rank that did not leave; `predicate` completes a sentence about it."""
        if connection.info is None:
            self._drop(connection)
            return
        message = f"{connection.info} {predicate}"
        self._end(connection, Failure(FailureKind.LOST, connection.info.rank, message))

    def _end(self, connection: _Connection, failure: Failure) -> None:
        """End a rank, and the run unless it survives the loss of this role."""
        info = connection.info
        if info is None or self._live.get(info.rank) is not connection or self._failure:
            self._drop(connection)
            return
        if not self._has_begun and info.rank:
            # A failure of rank 0 ends the run at once: no rank could send it later.
            self._early_failure = self._early_failure or failure
        elif info.role in self._survives and info.rank:
            connection.send(wire.encode("failed", failure=failure.to_json()))
            self._drop(connection)
            self._send_all(wire.encode("lost", rank=info.rank, line=failure.message))
            self._open_barriers()
        else:
            self._fail(failure)
        self._drop(connection)
        self._let_rank_0_leave()

    def _fail(self, failure: Failure) -> None:
        """Send all ranks why the run ends. Only the first failure counts."""
        if self._failure is None:
            self._failure = failure
            self._send_all(wire.encode("failed", failure=failure.to_json()))

    def _send_all(self, line: bytes) -> None:
        """Send a line to all ranks.

        Rank 0 gets it last. Otherwise its process would start to compute before the
        other ranks have received the line.
        """
        ranks = [c for c in self._connections if c.info is not None]
        for rank in sorted(ranks, key=lambda c: self._live.get(0) is c):
            rank.send(line)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        connection.close()
        info = connection.info
        if info is not None and self._live.get(info.rank) is connection:
            del self._live[info.rank]


def listen(launch: Launch) -> socket.socket:
    """Return the socket where rank 0 waits for the other ranks.

    It listens only on loopback if no other machine takes part.

    Raises:
      ClusterError: If the address cannot be used.
    """
    host, port = ports.split(launch.rendezvous)
    try:
        family, _, _, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        address = str(target[0])
        if ports.is_loopback(address) and not launch.is_local:
            # On its own host a name may mean 127.0.1.1, on other hosts the real
            # address.
            address = ""
        return socket.create_server(
            (address, port), family=family, backlog=launch.size + _BACKLOG
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            problem = (
                f"port {port} of {host}, where rank 0 waits, is used by another program"
            )
            remedy = (
                "end that program, or give --coordinator_address=HOST:PORT with "
                "another port"
            )
        elif e.errno == errno.EADDRNOTAVAIL:
            problem = f"{host} is not an address of this host, where rank 0 runs"
            remedy = REMEDY
        else:
            problem = f"rank 0 cannot listen at {launch.rendezvous}: {e.strerror or e}"
            remedy = REMEDY
        raise ClusterError(f"{problem}; {remedy}") from None
