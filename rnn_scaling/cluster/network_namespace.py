"""A private network for processes on this machine: no other process reaches its ports.

TensorFlow binds its servers to all addresses of the host without authentication, and
has no option to change this. The network has only a loopback interface.

    with network_namespace.create() as network:
        subprocess.run([*network.enter, "program", ...])

On Linux root can make network namespaces. On most distributions every user can do so
together with a user namespace, in which users keep their names. Processes, files and
memory are shared with the host. `unshare` and `nsenter` belong to util-linux.

python -I -S network_namespace.py     in a new network: starts its loopback interface,
                                      prints "ready", and keeps it until stdin ends
"""

import contextlib
import dataclasses
import fcntl
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence

# Source: <linux/sockios.h>, <linux/if.h>.
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_IFF_RUNNING = 0x40
_READY = "ready"
# Flags of unshare: for root, and for every other user.
_UNSHARE_FLAGS = ((), ("--user", "--map-current-user", "--keep-caps"))


@dataclasses.dataclass(frozen=True)
class PrivateNetwork:
    """A network namespace and how to start programs in it.

    Attributes:
      enter: The beginning of a command that runs in the network. Empty if the system
        does not let this user create one.
      reason: Why it does not, or "".
      holder: The number of the process that keeps the network.
    """

    enter: tuple[str, ...] = ()
    reason: str = ""
    holder: int = 0


@contextlib.contextmanager
def create() -> Iterator[PrivateNetwork]:
    """Create a network that exists until the block, or this process, has ended.

    The network also exists as long as a program that was started in it.
    """
    reason = ""
    for flags in _UNSHARE_FLAGS:
        try:
            holder = _start_holder(flags)
        except OSError as e:
            reason = f"unshare: {e.strerror}"
            break
        with holder:
            assert holder.stdout
            line = holder.stdout.readline().strip()
            if line == _READY:
                yield _make_network(holder.pid, has_user_namespace=bool(flags))
                return
            reason = line or "the network could not be created"
    yield PrivateNetwork(reason=reason)


def _make_network(holder: int, has_user_namespace: bool) -> PrivateNetwork:
    """Return the network of the process `holder`, with the command that enters it."""
    enter = ["nsenter", "--preserve-credentials"]
    if has_user_namespace:
        enter.append(f"--user=/proc/{holder}/ns/user")
    enter.append(f"--net=/proc/{holder}/ns/net")
    return PrivateNetwork(tuple(enter), holder=holder)


def _start_holder(flags: Sequence[str]) -> subprocess.Popen[str]:
    """Start this module in a new network; its first line says whether it is ready."""
    return subprocess.Popen(
        ["unshare", "--net", *flags, sys.executable, "-I", "-S", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> None:
    request = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
    print(_READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
