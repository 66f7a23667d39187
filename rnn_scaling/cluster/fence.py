"""A network of their own for processes on this machine: it has only loopback, so no other process reaches their ports.

TensorFlow binds its servers to all addresses of the host without authentication, and has no option to change this.

    with fence.network() as fenced:
        subprocess.run([*fenced.enter, "program", ...])

Linux lets root make networks, and most distributions let everybody who makes a user namespace with it, in which each
user stays who he is. Processes, files and memory are as without. `unshare` and `nsenter` are of util-linux.

python -I -S fence.py     in a new network: starts its loopback, says "ready", and keeps it until its stdin ends
"""

import contextlib
import dataclasses
import fcntl
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

# Source: <linux/sockios.h>, <linux/if.h>.
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
IFF_RUNNING = 0x40
READY = "ready"
WAYS = (
    (),
    ("--user", "--map-current-user", "--keep-caps"),
)  # flags of unshare: for root, and for everybody


@dataclasses.dataclass(frozen=True)
class Fenced:
    """What starts a program behind the fence."""

    enter: tuple[
        str, ...
    ] = ()  # words before a command; none where the system does not let this user have a network
    reason: str = ""  # why it does not
    holder: int = 0  # number of the process that keeps the network


@contextlib.contextmanager
def network() -> Iterator[Fenced]:
    """A network that lasts as long as the block, or this process, and the programs that were started into it."""
    reason = ""
    for way in WAYS:
        command = ["unshare", "--net", *way, sys.executable, "-I", "-S", __file__]
        try:
            holder = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except OSError as e:
            reason = f"unshare: {e.strerror}"
            break
        with holder:
            assert holder.stdout
            reason = holder.stdout.readline().strip() or "no network could be made"
            if reason == READY:
                spaces = [
                    f"--{name}=/proc/{holder.pid}/ns/{name}"
                    for name in (*(["user"] if way else []), "net")
                ]
                yield Fenced(
                    ("nsenter", "--preserve-credentials", *spaces), holder=holder.pid
                )
                return
    yield Fenced(reason=reason)


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(
            any_socket,
            SIOCSIFFLAGS,
            struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING),
        )
    print(READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
