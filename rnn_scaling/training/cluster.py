"""This process among those of its run: it joins them, meets them at barriers, tells rank 0 what it measured, and ends
with them. Nothing of TensorFlow's goes this way.
"""

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.cluster import connections, ports
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import NETWORK, Launch
from rnn_scaling.cluster.member import Member
from rnn_scaling.cluster.peers import Hello, Peer, ranks_text
from rnn_scaling.config.run_config import GROUP_OF, RunConfig
from rnn_scaling.records.decoding import build
from rnn_scaling.records.workers import (
    WINDOW,
    Rank,
    Workers,
    users_of_cores,
    without_each_other,
)
from rnn_scaling.system import entry
from rnn_scaling.system.machine.environment import package_versions

if TYPE_CHECKING:
    from rnn_scaling.training.state import RunState

# Barriers, in this order.
BUILT = "built"
WARM = "warm"
MEASURED = "measured"
TOLD = "told"
TRACED = "traced"
ONE_CLOCK = "from a barrier after the warm-up to the end of the last batch, by the clock of rank 0, which drives all"
REPORT_S = 1.0  # between two reports, so that no more is lost of a rank that is killed
TOLD_ALONE = (
    "coordinator_address",
)  # options that may differ between ranks, as those of the output may
COMPARED_OUTPUT = (
    "trace_batches",
    "checkpoint_dir",
    "save_every",
)  # of these: what every rank takes part in


@dataclasses.dataclass(frozen=True)
class Place:
    """What an engine knows of the processes of its run."""

    role: str  # of this process: coordinator, worker or ps
    index: int  # its number among those of its role
    addresses: Mapping[
        str, tuple[str, ...]
    ]  # HOST:PORT of each process's engine, by role
    local_rank: int = 0  # its number among the processes on this host
    local_size: int = 1  # how many are on this host
    timeout_s: float = 60.0  # within which a fault must end the run

    @property
    def num_workers(self) -> int:
        """Processes with towers."""
        return len(self.addresses["worker"])

    def require_free_port(self) -> None:
        """Raises OSError if another program listens at this process's address; TensorFlow's own error names no port."""
        address = self.addresses[self.role][self.index]
        try:
            with socket.socket() as probe:
                probe.bind(("", ports.split(address)[1]))
        except OSError as e:
            rule = f"TensorFlow cannot listen there ({e.strerror or e})"
            raise OSError(
                f"port of {address}: {rule}; end the program that does, or give this rank another"
            ) from None


class SingleProcess:
    """A run of one process.

    Attributes:
      rank: The number of this process among the processes of the run.
      size: How many processes the run has.
      role: "coordinator", "worker" or "ps".
      failure: The failure that ends the run, or None while it goes on.
    """

    rank = 0
    size = 1
    role = "worker"
    failure: Failure | None = None

    def start(self) -> None:
        """Begins to join."""

    def place(self) -> Place | None:
        """Waits until all have joined; returns where this process stands among them."""
        return None

    def barrier(self, name: str) -> None:
        """Waits for all ranks; see `Member.barrier`."""

    def gather(self, name: str, value: Any) -> list[Any] | None:
        """Each rank's value, at rank 0, once all have come; None elsewhere; see `Member.gather`."""
        return [value]

    def report(self, state: "RunState", finished: bool = False) -> None:
        """Sends rank 0 what is new, if it is time to."""

    def wait_for_failure(self) -> bool:
        """Whether the failure of another rank explains an error here."""
        return False

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """End the run at all ranks because of an error at this rank."""

    def leave(self) -> None:
        """Ends this rank's part."""

    def workers(self, state: "RunState") -> Workers | None:
        """What is known of all ranks; None: there is one process."""
        return None

    def lost_ranks(self) -> Sequence[str]:
        """A line for each rank whose loss the run survived."""
        return ()


class Cluster(SingleProcess):
    """A run of several processes."""

    def __init__(self, launch: Launch, config: RunConfig) -> None:
        roles = config.roles()
        cluster = config.cluster
        self.rank, self.size, self.role = launch.rank, launch.size, roles[launch.rank]
        self._launch = launch
        self._timeout_s = cluster.cluster_timeout
        self._saves = bool(config.output.checkpoint_dir)
        self._heartbeat_s = min(
            cluster.cluster_heartbeat, cluster.cluster_timeout
        )  # within which a fault ends the run
        hello = Hello(
            self.role, _compared(config), _versions(), launch.engine_address()
        )
        # A coordinator hands the steps of a worker that dies to others.
        survives = ("worker",) if config.mode.has_coordinator else ()
        self._member = Member(
            launch, hello, self._timeout_s, self._heartbeat_s, survives
        )
        self._window = ONE_CLOCK if "ps" in roles else WINDOW
        self._peers: Sequence[Peer] = ()
        self._has_joined = threading.Event()
        self._refusal: Failure | None = None  # why this rank could not join
        self._passed: dict[str, float] = {}
        self._cut_off: set[int] = set()
        self._reporting, self._num_reported, self._reported_at = (
            threading.Lock(),
            0,
            time.perf_counter(),
        )
        self._has_told_all = self._has_ended = False

    @property
    def failure(self) -> Failure | None:  # type: ignore[override]
        """The failure that ends the run, unless this process has reported it."""
        if self._has_ended:
            return None
        return self._refusal or self._member.failure

    def start(self) -> None:
        threading.Thread(target=self._join, daemon=True).start()

    def _join(self) -> None:
        try:
            self._peers = self._member.join()
        except ClusterError as e:
            self._refusal = e.failure or Failure(
                FailureKind.NOT_JOINED, self.rank, str(e)
            )
        finally:
            self._has_joined.set()

    def place(self) -> Place:
        self._has_joined.wait()
        if self._refusal is not None:
            raise ClusterError(self._refusal.message, self._refusal)
        roles = [peer.role for peer in self._peers]
        addresses = {
            role: tuple(peer.address for peer in self._peers if peer.role == role)
            for role in roles
        }
        index = roles[: self.rank].count(self.role)
        return Place(
            self.role,
            index,
            addresses,
            self._launch.local_rank,
            self._launch.local_size,
            self._timeout_s,
        )

    def barrier(self, name: str) -> None:
        self._member.barrier(name)
        self._passed[name] = time.perf_counter()

    def gather(self, name: str, value: Any) -> list[Any] | None:
        return self._member.gather(name, value)

    def report(self, state: "RunState", finished: bool = False) -> None:
        if not self._has_joined.is_set() or self.rank == 0:
            return
        with (
            self._reporting
        ):  # the main thread reports as time goes by, the working one at its end
            is_due = finished or time.perf_counter() - self._reported_at >= REPORT_S
            if self._has_told_all or not is_due:
                return
            batches = state.batches_since(self._num_reported)
            self._num_reported += len(batches["seconds"])
            self._reported_at = time.perf_counter()
            self._has_told_all = finished
            if finished or batches["seconds"]:
                self._member.report(
                    {"batches": batches, "details": state.details() if finished else {}}
                )

    def wait_for_failure(self) -> bool:
        if self._refusal is not None:
            return True
        return self._member.failed.wait(self._heartbeat_s + 2.0)

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self._has_ended = True
        self._member.abort(message, kind)

    def leave(self) -> None:
        self._has_ended = True
        self._member.leave()

    def workers(self, state: "RunState") -> Workers:
        report = {"batches": state.batches_since(0), "details": state.details()}
        reports = {**self._member.reports(), self.rank: [report]}
        workers = [peer.rank for peer in self._peers if peer.role == "worker"]
        for index, rank in enumerate(workers if state.staleness() else ()):
            reports.setdefault(rank, []).append(
                {"batches": state.worker_batches(index), "details": {}}
            )
        failure = self._refusal or self._member.failure
        known = Workers(
            launcher=self._launch.launcher,
            link=os.environ.get(NETWORK) or None,
            window=self._window,
            window_seconds=self._window_seconds(),
            ranks=tuple(
                rank_of(peer, reports.get(peer.rank, []), failure)
                for peer in self._peers
            ),
            lost=tuple(
                rank_of(self._peers[rank], [], Failure(FailureKind.LOST, rank, message))
                for rank, message in self._member.lost
            ),
            staleness=state.staleness(),
        )
        return without_each_other(known)

    def _window_seconds(self) -> float | None:
        """From barrier to barrier; None before the second, and where checkpoints, which no batch holds, lie between."""
        if MEASURED not in self._passed or self._saves:
            return None
        return self._passed[MEASURED] - self._passed[WARM]

    def lost_ranks(self) -> Sequence[str]:
        lost = self._member.lost
        for rank, _ in lost:
            if rank not in self._cut_off:
                self._cut_off.add(rank)
                connections.cut(
                    self._peers[rank].address
                )  # TensorFlow would wait for one that is frozen
        return [line for _, line in lost]


def join_run(launch: Launch | None, config: RunConfig) -> SingleProcess:
    """The cluster of a run; `launch`: of this process, None where nothing has started several."""
    return (
        SingleProcess()
        if launch is None or config.num_processes == 1
        else Cluster(launch, config)
    )


def shared_cores(workers: Workers) -> str:
    """What is to be known where processes on one machine share cores; empty where none do."""
    for (host, core), sharing in users_of_cores(workers).items():
        if len(sharing) > 1:
            where = f" of host {host}" if host else ""
            rule = "the run is slower than with a core for each"
            return f"{ranks_text(sharing)} share core {core}{where}: {rule}"
    return ""


def rank_of(
    peer: Peer, reports: Sequence[Mapping[str, Any]], failure: Failure | None
) -> Rank:
    """Return what a rank has reported, with the failure if it began there."""
    fields: dict[str, Any] = {
        "rank": peer.rank,
        "role": peer.role,
        "host": peer.host,
        "pid": peer.pid,
    }
    for report in reports:
        for name, values in report["batches"].items():
            fields.setdefault(name, []).extend(values)
        fields |= report["details"]
    if failure is not None and failure.rank == peer.rank:
        fields["error"] = failure.message
    return build(Rank, fields)


def _compared(config: RunConfig) -> dict[str, Any]:
    """Options in which all ranks must agree."""
    return {
        name: value
        for name, value in config.flat().items()
        if name in COMPARED_OUTPUT
        or (GROUP_OF[name] != "output" and name not in TOLD_ALONE)
    }


def _versions() -> dict[str, str]:
    """Of what computes; other packages may differ."""
    packages = {
        name: version
        for name, version in package_versions().items()
        if name.startswith("tensorflow")
    }
    return {"rnn_scaling": entry.VERSION, **packages}
