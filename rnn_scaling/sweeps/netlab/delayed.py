"""A switch with a delay: vde's programs carry the frames in between, since few kernels delay them (netem).

    node's port -- bridge -- tap | vde_switch | wirefilter: half the delay | vde_switch in the middle | ... next node

The links' rates stay where they are without a delay, at both ends of the node's own link.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.sweeps.netlab import tools

PACKAGES = {"vde_switch": "vde2", "wirefilter": "vde2"}  # program -> package of Debian and Ubuntu
SPARE_PORTS = 8
WAIT_TRIES, WAIT_PAUSE_S = 200, 0.05


def folder(switch: str) -> Path:
    """Where the sockets of these programs are while the switch of this namespace stands."""
    return Path("/run", switch)


def connect(stack: contextlib.ExitStack, switch: str, bridges: Sequence[str], delay_s: float) -> None:
    """Lets frames pass between bridges, each after the delay, until the stack is closed.

    Raises:
      CallFailed: if a program does not start.
    """
    sockets = folder(switch)
    sockets.mkdir(mode=0o700)
    middle = sockets / "middle"
    _start(stack, switch, "vde_switch", "-n", str(len(bridges) + SPARE_PORTS), "-s", str(middle))
    _wait(middle / "ctl")
    for index, bridge in enumerate(bridges):
        outer, tap = sockets / f"node{index}", f"tap{index}"
        _start(stack, switch, "vde_switch", "-s", str(outer), "-t", tap)
        _wait(outer / "ctl")
        tools.call("ip", "-n", switch, "link", "set", tap, "master", bridge, "up")
        _start(stack, switch, "wirefilter", "-v", f"{middle}:{outer}", "-d", f"{delay_s * 1e3 / 2:g}")


def _start(stack: contextlib.ExitStack, switch: str, *words: str) -> None:
    stack.enter_context(tools.running(["ip", "netns", "exec", switch, *words]))


def _wait(path: Path) -> None:
    for _ in range(WAIT_TRIES):
        if path.exists():
            return
        time.sleep(WAIT_PAUSE_S)
    raise tools.CallFailed(("vde_switch",), f"{path} did not come")
