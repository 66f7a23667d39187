"""A network of their own for processes on this machine: it has only loopback, so no other process reaches their ports.

TensorFlow binds its servers to all addresses of the host without authentication, and has no option to change this.

    with fence.network() as fenced:
        subprocess.run([*fenced.enter, "program", ...])

python -I -S fence.py make                      makes a network, says "ready", and ends when its stdin does
python -I -S fence.py enter PATH... -- COMMAND  becomes COMMAND in the namespaces at these paths

Linux lets root make networks, and most distributions let everybody who makes a user namespace with it, in which each
user stays who he is. Processes, files and memory are as without.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40  # <linux/sockios.h>, <linux/if.h>
READY = "ready"
PROGRAM = (sys.executable, "-I", "-S")  # the standard library alone starts sooner


@dataclasses.dataclass(frozen=True)
class Fenced:
    """What starts a program behind the fence."""

    enter: tuple[str, ...] = ()  # words before a command; none where the system does not let this user have a network
    reason: str = ""  # why it does not


@contextlib.contextmanager
def network() -> Iterator[Fenced]:
    """A network that lasts as long as the block and the programs that were started into it."""
    maker = subprocess.Popen(
        [*PROGRAM, __file__, "make"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert maker.stdin and maker.stdout
    opened: list[int] = []
    try:
        answer = maker.stdout.readline().strip()
        if answer == READY:
            for name in ("user", "net"):  # in this order: only a member of the first may enter the second
                path = f"/proc/{maker.pid}/ns/{name}"
                if os.readlink(path) != os.readlink(f"/proc/self/ns/{name}"):
                    opened.append(os.open(path, os.O_RDONLY))
    except OSError as e:
        answer = e.strerror or str(e)
    finally:
        maker.stdin.close()
        maker.wait()
        maker.stdout.close()
    try:
        if answer == READY:
            paths = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in opened]
            yield Fenced((*PROGRAM, __file__, "enter", *paths, "--"))
        else:
            yield Fenced(reason=answer or "no network could be made")
    finally:
        for descriptor in opened:
            os.close(descriptor)


def make() -> None:
    """Puts this process, which must have one thread, into a network of its own, with a user namespace if need be."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", CLONE_NEWNET)
    except PermissionError:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def enter(words: list[str]) -> NoReturn:
    """Becomes a command in a network; words: paths of its namespaces, --, the command."""
    paths, command = words[: words.index("--")], words[words.index("--") + 1 :]
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]  # before the first is entered, which hides /proc
    for descriptor in descriptors:
        _call("setns", descriptor, 0)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


def _call(name: str, *values: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(0, f"this system has no {name}")
    if function(*values) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def main(words: list[str]) -> None:
    try:
        if words[0] == "enter":
            enter(words[1:])
        make()
        print(READY, flush=True)
        sys.stdin.read()
    except OSError as e:
        sys.exit(e.strerror or str(e))


if __name__ == "__main__":
    main(sys.argv[1:])
