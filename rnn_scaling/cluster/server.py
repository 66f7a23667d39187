"""The network side of the rendezvous: its address and its connections.

`Rendezvous` creates the `Server` and handles the messages of its `Connection`s.
"""

import errno
import selectors
import socket
import time

from rnn_scaling.cluster import ports, wire
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import REMEDY, Launch
from rnn_scaling.cluster.rank_info import RankInfo

STRANGER_S = 3.0  # time limit for the hello of a connection
# Connections that wait to be accepted; further ranks would try again after seconds.
_BACKLOG = 1024
# Connections without a hello; if there is one more, the oldest is closed.
MAX_STRANGERS = 64


class Connection(wire.Channel):
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


class Server:
    """Accepts connections, sends to all ranks, and finds ranks that are silent.

    The rendezvous creates it, and only the thread of the rendezvous calls it.

    Attributes:
      live: The connection of each rank that has joined and has neither left nor been
        lost.
      silence_s: Seconds after which a silent rank is lost.
    """

    def __init__(self, launch: Launch, silence_s: float) -> None:
        """Listen at the address of the rendezvous."""
        self.live: dict[int, Connection] = {}
        self.silence_s = silence_s
        self._listener = listen(launch)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: set[Connection] = set()

    def connect_rank_0(self) -> socket.socket:
        """Return rank 0's end of a connection without network."""
        rank_0_end, own_end = socket.socketpair()
        self._connections.add(Connection(own_end, self._selector, ""))
        return rank_0_end

    def wait(self, timeout_s: float) -> list[tuple[Connection | None, int]]:
        """Wait until connections are ready, at most `timeout_s`.

        Returns:
          Each ready connection with its events; None if a new one can be accepted.
        """
        ready = self._selector.select(timeout_s)
        return [(key.data, events) for key, events in ready]

    def accept(self) -> None:
        """Accept a connection; if too many are strangers, drop the oldest of them."""
        try:
            connection, address = self._listener.accept()
        except OSError:  # It was closed again, or this process has too many open files.
            time.sleep(0.01)
            return
        strangers = self._list_strangers()
        if len(strangers) >= MAX_STRANGERS:
            self.drop(min(strangers, key=lambda stranger: stranger.since))
        try:
            self._connections.add(Connection(connection, self._selector, address[0]))
        except OSError:  # It was closed again.
            connection.close()

    def is_live(self, connection: Connection) -> bool:
        """Return whether this is the connection of a live rank.

        False for a stranger and for a second process of the same rank.
        """
        info = connection.info
        return info is not None and self.live.get(info.rank) is connection

    def send_all(self, line: bytes) -> None:
        """Send a line to all ranks.

        Rank 0 gets it last. Otherwise its process would start to compute before the
        other ranks have received the line.
        """
        ranks = [c for c in self._connections if c.info is not None]
        for rank in sorted(ranks, key=lambda c: self.live.get(0) is c):
            rank.send(line)

    def drop(self, connection: Connection) -> None:
        """Close a connection; its rank is no longer live."""
        if self.is_live(connection) and connection.info is not None:
            del self.live[connection.info.rank]
        self._connections.discard(connection)
        connection.close()

    def drop_late_strangers(self, now: float) -> None:
        """Drop the connections whose hello did not come in time."""
        for stranger in self._list_strangers():
            if now - stranger.since > STRANGER_S:
                self.drop(stranger)

    def find_silent_ranks(self, now: float) -> list[Connection]:
        """Return the connections of ranks above 0 that have been silent for too long."""
        silent = []
        for connection in self._connections:
            is_above_0 = connection.info is not None and connection.info.rank
            if is_above_0 and now - connection.heard_at > self.silence_s:
                silent.append(connection)
        return silent

    def forgive_silence(self, now: float) -> None:
        """Forget the silence of the ranks while this process was frozen."""
        for connection in self._connections:
            connection.heard_at = now

    def close(self) -> None:
        """Close all connections and the address."""
        for connection in list(self._connections):
            self.drop(connection)
        self._listener.close()
        self._selector.close()

    def _list_strangers(self) -> list[Connection]:
        return [c for c in self._connections if c.is_stranger]


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
