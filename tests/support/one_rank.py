"""One rank that joins the other ranks of its launcher and passes a barrier.

python -m tests.support.one_rank FOLDER [FAULT RANK]

Each rank writes FOLDER/RANK.pid, and rank 0 prints the ranks' descriptions as JSON. FAULT
is "exit" (status 3 without a message) or "kill" (SIGKILL). It happens after all ranks
have joined, while the others wait at a barrier.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

from rnn_scaling.cluster import launch
from rnn_scaling.cluster.rank_connection import RankConnection
from rnn_scaling.cluster.rank_info import Hello

PATIENCE_S = 100.0  # a launcher, not a limit here, must end the others


def main(folder: str, fault: str = "", faulty: str = "") -> int:
    """Join the other ranks and meet them; return the exit status."""
    told = launch.detect_launch(os.environ, host_name=socket.gethostname())
    assert told is not None, "no launcher has started this"
    Path(folder, f"{told.rank}.pid").write_text(str(os.getpid()))
    connection = RankConnection(
        told,
        Hello("worker", {}, {}, told.find_engine_address()),
        PATIENCE_S,
        PATIENCE_S,
    )
    peers = connection.join()
    if fault and told.rank == int(faulty):
        os._exit(3) if fault == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    if fault:
        connection.failed.wait(PATIENCE_S)
        print(
            f"rank {told.rank}: {connection.failure.message}",
            file=sys.stderr,
            flush=True,
        )
        return 1
    knows = [told.launcher, told.rank, told.local_rank, told.local_size]
    all_know = connection.gather("known", knows)
    if all_know:
        print(
            json.dumps({"size": told.size, "peers": len(peers), "known": all_know}),
            flush=True,
        )
    connection.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
