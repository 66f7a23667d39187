"""Messages between ranks: one JSON object a line, of bounded length. Nothing else is read; nothing is evaluated."""

import collections
import json
import math
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from rnn_scaling.cluster.failure import Failure

Message = dict[str, Any]
LONGEST_OF_STRANGERS = (
    1 << 18
)  # bytes of a line from who has not said yet which rank it is
LONGEST = 1 << 28
BEATS = 4  # heartbeats within the silence that counts as a loss
AT_ONCE = 1 << 18  # bytes read at once
Value = TypeVar("Value")


class Pulse:
    """The heartbeats of one side of a connection, and the sleep of its process."""

    def __init__(self, heartbeat_s: float) -> None:
        self.period_s = heartbeat_s / BEATS
        self._longest_sleep_s = heartbeat_s / 2
        self._beat_at = -math.inf
        self._woke_at = time.monotonic()

    def wake(self) -> bool:
        """Return whether this process itself was frozen, so that no peer is late."""
        now = time.monotonic()
        was_frozen = now - self._woke_at > self._longest_sleep_s
        self._woke_at = now
        return was_frozen

    def is_due(self) -> bool:
        """Return whether to send the next heartbeat."""
        if self._woke_at - self._beat_at < self.period_s:
            return False
        self._beat_at = self._woke_at
        return True


class Rubbish(ValueError):
    """A peer has sent what no rank sends."""


def encode(kind: str, **fields: Any) -> bytes:
    """The line of a message. Raises TypeError or ValueError if JSON cannot hold it or it would be too long."""
    line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
    if len(line) > LONGEST:
        raise ValueError(f"a message of {len(line)} bytes: at most {LONGEST} fit")
    return line


def decode(line: bytes) -> Message:
    """The message of a line. Raises Rubbish if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise Rubbish("not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise Rubbish("no message")
    return message


def field(message: Message, name: str, kind: type[Value]) -> Value:
    """A value of a message. Raises Rubbish if it has none, or another type."""
    value = message.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Rubbish(f"no {name} in {message.get('kind', 'a rank')}")
    return value


def failure(message: Message) -> Failure:
    """Return the failure in a message.

    Raises:
      Rubbish: If the message has none, or one with wrong fields.
    """
    try:
        return Failure.from_json(field(message, "failure", dict))
    except ValueError as e:
        raise Rubbish(f"no failure in {message['kind']} ({e})") from None


def first(connection: socket.socket, deadline: float) -> Message:
    """The first message, and no byte of what follows. Raises Rubbish, or OSError if none comes in time."""
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        content = connection.recv(1)
        if not content:
            rule = "it closed the connection, as it does for another job or RNN_SCALING_JOB_TOKEN"
            raise ConnectionResetError(None, rule)
        line += content
        if len(line) > LONGEST_OF_STRANGERS:
            raise Rubbish("no end of a line")
    return decode(line)


class Channel:
    """One end of a connection. Any thread may send, one receives, and neither waits.

    A selector watches it, also for writing while something waits to be sent, and names the channel when it is ready.
    """

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector
    ) -> None:
        connection.setblocking(False)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.longest = LONGEST_OF_STRANGERS
        self.heard_at = time.monotonic()
        self._connection = connection
        self._selector = selector
        self._lock = threading.Lock()
        self.to_send: collections.deque[memoryview] = (
            collections.deque()
        )  # what still waits
        self._received = bytearray()
        self.is_open = True
        self._waits_to_write = False
        selector.register(connection, selectors.EVENT_READ, self)

    def send(self, line: bytes) -> None:
        """Sends it, now or as soon as there is room. What a closed connection is sent is lost without an error."""
        with self._lock:
            if self.is_open:
                self.to_send.append(memoryview(line))
                self._flush()

    def flush(self) -> None:
        with self._lock:
            if self.is_open:
                self._flush()

    def receive(self) -> Iterator[Message] | None:
        """The messages that have come; None: the other end is closed."""
        try:
            content = self._connection.recv(AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return iter(())
        except OSError:
            return None
        if not content:
            return None
        self.heard_at = time.monotonic()
        self._received += content
        lines: list[bytes] = []
        if b"\n" in content:
            *lines, rest = bytes(self._received).split(b"\n")
            self._received = bytearray(rest)
        if max(map(len, (*lines, self._received))) > self.longest:
            raise Rubbish(f"more than {self.longest} bytes in a line")
        return map(decode, lines)

    def close(self) -> None:
        """Closes it at once; what waits to be sent is lost."""
        with self._lock:
            if self.is_open:
                self.is_open = False
                self.to_send.clear()
                self._selector.unregister(self._connection)
                self._connection.close()

    def _flush(self) -> None:
        try:
            while self.to_send:
                sent = self._connection.send(self.to_send[0])
                if sent == len(self.to_send[0]):
                    self.to_send.popleft()
                else:
                    self.to_send[0] = self.to_send[0][sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # the other end is closed: who receives here sees it
            self.to_send.clear()
        if self._waits_to_write != bool(self.to_send):
            self._waits_to_write = bool(self.to_send)
            events = selectors.EVENT_READ | (
                selectors.EVENT_WRITE if self._waits_to_write else 0
            )
            self._selector.modify(self._connection, events, self)
