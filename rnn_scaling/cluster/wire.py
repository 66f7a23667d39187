"""Messages between ranks: one JSON object per line, of bounded length.

Nothing else is read, and nothing is evaluated.

`rendezvous` and `receiver` are the two ends: both must know a message.
"""

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
# Lengths of a line: before the sender is known to be a rank, and afterwards.
MAX_STRANGER_BYTES = 1 << 18
MAX_BYTES = 1 << 28
_NUM_BEATS = 4  # heartbeats within the silence that counts as a loss
_READ_BYTES = 1 << 18  # bytes read by one call
Value = TypeVar("Value")


class Pulse:
    """Decides when a process sends a heartbeat, and notices that it was frozen.

    Both ends of a connection have one, and ask it after each wait for messages.
    """

    def __init__(self, heartbeat_s: float) -> None:
        self.period_s = heartbeat_s / _NUM_BEATS
        self._longest_sleep_s = heartbeat_s / 2
        self._beat_at = -math.inf
        self._woke_at = time.monotonic()

    def wake(self) -> bool:
        """Note that this process runs; return whether it was frozen until now.

        After a freeze no peer is late, because nothing was read meanwhile.
        """
        now = time.monotonic()
        was_frozen = now - self._woke_at > self._longest_sleep_s
        self._woke_at = now
        return was_frozen

    def claim_beat(self) -> bool:
        """Return whether a heartbeat is due, and count it as sent."""
        if self._woke_at - self._beat_at < self.period_s:
            return False
        self._beat_at = self._woke_at
        return True


class InvalidMessage(ValueError):
    """Another process has sent a message that a rank never sends."""


def encode(kind: str, **fields: Any) -> bytes:
    """Return the line of a message.

    Raises:
      TypeError: If JSON cannot hold a value.
      ValueError: If JSON cannot hold a value, or the line is longer than MAX_BYTES.
    """
    line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
    if len(line) > MAX_BYTES:
        raise ValueError(
            f"a message of {len(line)} bytes is too long: the limit is "
            f"{MAX_BYTES} bytes"
        )
    return line


def decode(line: bytes) -> Message:
    """Return the message of a line.

    Raises:
      InvalidMessage: If the line is not a JSON object with a `kind`.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidMessage("not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise InvalidMessage("not a message")
    return message


def read_field(message: Message, name: str, kind: type[Value]) -> Value:
    """Return a field of a message.

    Raises:
      InvalidMessage: If the field is missing or has another type.
    """
    value = message.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidMessage(f"{message.get('kind', 'a rank')} without a valid {name}")
    return value


def decode_failure(message: Message) -> Failure:
    """Return the failure in a message.

    Raises:
      InvalidMessage: If the failure is missing or has wrong fields.
    """
    try:
        return Failure.from_json(read_field(message, "failure", dict))
    except ValueError as e:
        raise InvalidMessage(
            f"{message['kind']} without a valid failure ({e})"
        ) from None


def receive_first(connection: socket.socket, deadline: float) -> Message:
    """Return the first message of a connection; read no byte after it.

    Raises:
      InvalidMessage: If the other process is not a rank.
      OSError: If it closes the connection, or sends no message before the deadline.
    """
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        content = connection.recv(1)
        if not content:
            reason = (
                "it closed the connection, which it does for another job or "
                "RNN_SCALING_JOB_TOKEN"
            )
            raise ConnectionResetError(None, reason)
        line += content
        if len(line) > MAX_STRANGER_BYTES:
            raise InvalidMessage("a line that does not end")
    return decode(line)


class Channel:
    """Sends and receives messages; any thread may send, one receives, neither waits.

    A selector watches it for reading, and for writing while bytes are unsent. The data
    of its key is the channel.

    Attributes:
      max_line_bytes: Longer lines are refused.
      heard_at: time.monotonic() when the last bytes came.
      unsent: The bytes that wait until the connection has room.
    """

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector
    ) -> None:
        connection.setblocking(False)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.max_line_bytes = MAX_STRANGER_BYTES
        self.heard_at = time.monotonic()
        self.unsent: collections.deque[memoryview] = collections.deque()
        self._connection = connection
        self._selector = selector
        self._lock = threading.Lock()
        self._received = bytearray()
        self.is_open = True
        self._waits_to_write = False
        selector.register(connection, selectors.EVENT_READ, self)

    def send(self, line: bytes) -> None:
        """Send a line now or as soon as there is room.

        The line is lost without an error if the connection is closed.
        """
        with self._lock:
            if self.is_open:
                self.unsent.append(memoryview(line))
                self._flush()

    def flush(self) -> None:
        with self._lock:
            if self.is_open:
                self._flush()

    def receive(self) -> Iterator[Message] | None:
        """Return the messages that have come, or None if the other end is closed.

        Raises:
          InvalidMessage: If a line is too long; iterating raises it for other faults.
        """
        try:
            content = self._connection.recv(_READ_BYTES)
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
            *lines, incomplete = bytes(self._received).split(b"\n")
            self._received = bytearray(incomplete)
        if max(map(len, (*lines, self._received))) > self.max_line_bytes:
            raise InvalidMessage(f"a line of more than {self.max_line_bytes} bytes")
        return map(decode, lines)

    def close(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        with self._lock:
            if self.is_open:
                self.is_open = False
                self.unsent.clear()
                self._selector.unregister(self._connection)
                self._connection.close()

    def _flush(self) -> None:
        """Send what the socket takes now, and keep the remaining bytes."""
        try:
            while self.unsent:
                num_sent = self._connection.send(self.unsent[0])
                if num_sent == len(self.unsent[0]):
                    self.unsent.popleft()
                else:
                    self.unsent[0] = self.unsent[0][num_sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # The other end is closed; the receiving thread notices it.
            self.unsent.clear()
        if self._waits_to_write != bool(self.unsent):
            self._waits_to_write = bool(self.unsent)
            events = selectors.EVENT_READ
            if self._waits_to_write:
                events |= selectors.EVENT_WRITE
            self._selector.modify(self._connection, events, self)
