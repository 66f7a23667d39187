"""Connect this process with the other processes of its run.

`training.run` and `benchmark` use the methods of `RunMembers`: join the others, meet
them at barriers, report measurements to rank 0, leave. `Cluster` has them for several
processes. `SingleProcess` does nothing in them, so that callers do not ask how many
processes there are. TensorFlow has its own connections between the processes.
"""

import abc
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
from rnn_scaling.cluster.rank_connection import RankConnection
from rnn_scaling.cluster.rank_info import Hello, RankInfo, name_ranks
from rnn_scaling.config.run_config import GROUP_OF, RunConfig
from rnn_scaling.records.workers import (
    WINDOW,
    Workers,
    drop_load_of_each_other,
    group_ranks_by_core,
)
from rnn_scaling.system import entry
from rnn_scaling.system.machine.environment import list_package_versions
from rnn_scaling.training.rank_report import RankReport, decode_reports, make_rank

if TYPE_CHECKING:
    from rnn_scaling.training.state import RunState

# The barriers in the order of a run. Every process must pass each of them, even if it
# has no towers.
BUILT = "built"  # all steps are built
WARM = "warm"  # the warm-up is over, and the measured batches begin
MEASURED = "measured"  # the last batch has ended
REPORTED = "reported"  # rank 0 has all reports
TRACED = "traced"  # the traced steps have ended, if the run is traced
_ONE_CLOCK = (
    "from a barrier after the warm-up to the end of the last batch, by the clock of "
    "rank 0, which drives all"
)
# Seconds between two reports. A killed rank loses at most this much of its
# measurements.
REPORT_S = 1.0
# Seconds from a missed heartbeat until every rank knows the failure: rank 0 must notice
# the silence and send the others a message.
_FAILURE_DELAY_S = 2.0
# Options that may differ between ranks. The options of the output may also differ,
# except _COMPARED_OUTPUT_OPTIONS, which concern all ranks.
_OPTIONS_THAT_MAY_DIFFER = ("coordinator_address",)
_COMPARED_OUTPUT_OPTIONS = ("trace_batches", "checkpoint_dir", "save_every")


@dataclasses.dataclass(frozen=True)
class RankPosition:
    """The position of this process among all processes, and their addresses.

    TensorFlow's engines start with it (`training.engines`).
    """

    role: str  # coordinator, worker or ps
    index: int  # number of the process among those of its role
    addresses: Mapping[str, tuple[str, ...]]  # HOST:PORT of each engine, by role
    local_rank: int = 0  # number of the process among those on this host
    local_size: int = 1  # number of processes on this host
    # Seconds without an answer after which the engine must give up.
    timeout_s: float = 60.0

    @property
    def num_workers(self) -> int:
        """Processes with towers."""
        return len(self.addresses["worker"])

    def require_free_port(self) -> None:
        """Check that no other program listens at this process's address.

        TensorFlow's error would not contain the port.

        Raises:
          OSError: If the port is in use.
        """
        address = self.addresses[self.role][self.index]
        try:
            with socket.socket() as probe:
                probe.bind(("", ports.split(address)[1]))
        except OSError as e:
            raise OSError(
                f"TensorFlow cannot listen at {address} ({e.strerror or e}); end the "
                "program that uses this port, or give this rank another port"
            ) from None


class RunMembers(abc.ABC):
    """The processes of a run, as one of them sees them.

    Attributes:
      rank: The number of this process among the processes of the run.
      size: The number of processes.
      role: "coordinator", "worker" or "ps".
    """

    rank: int
    size: int
    role: str

    @property
    @abc.abstractmethod
    def failure(self) -> Failure | None:
        """The failure that ends the run, or None after this process has left."""

    @property
    @abc.abstractmethod
    def num_lost_ranks(self) -> int:
        """Number of lost ranks without which the run continued."""

    @abc.abstractmethod
    def start(self) -> None:
        """Begin to join the other processes."""

    @abc.abstractmethod
    def wait_for_others(self) -> RankPosition | None:
        """Wait until all processes have joined; return this process's position.

        Returns:
          None for a single process.
        """

    @abc.abstractmethod
    def barrier(self, name: str) -> None:
        """Wait for all ranks; see `RankConnection.barrier`."""

    @abc.abstractmethod
    def gather(self, name: str, value: Any) -> list[Any] | None:
        """Return the values of all ranks at rank 0, and None at other ranks.

        See `RankConnection.gather`.
        """

    @abc.abstractmethod
    def report(self, state: "RunState", *, finished: bool = False) -> None:
        """Send new batches to rank 0 if a report is due.

        The main thread calls this all the time, and the working thread at the end.

        Args:
          state: The measurements of this process.
          finished: Whether this is its last report.
        """

    @abc.abstractmethod
    def cut_off_lost_ranks(self) -> list[str]:
        """Close TensorFlow's connections to lost ranks, which may be frozen.

        Returns:
          A line for each rank that was lost since the last call.
        """

    @abc.abstractmethod
    def wait_for_failure(self) -> bool:
        """Wait for the failure of another rank, which may explain an error here.

        Returns:
          Whether there was one. If not, this takes as long as a lost rank is noticed.
        """

    @abc.abstractmethod
    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """End the run at all ranks because of an error at this rank."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Leave the other processes."""

    @abc.abstractmethod
    def make_workers(self, state: "RunState") -> Workers | None:
        """Return the record of all ranks, or None for a single process."""


class SingleProcess(RunMembers):
    """A run of one process, which waits for nobody and reports to nobody."""

    rank = 0
    size = 1
    role = "worker"
    failure: Failure | None = None
    num_lost_ranks = 0

    def start(self) -> None:
        pass

    def wait_for_others(self) -> None:
        return None

    def barrier(self, name: str) -> None:
        pass

    def gather(self, name: str, value: Any) -> list[Any]:
        return [value]

    def report(self, state: "RunState", *, finished: bool = False) -> None:
        pass

    def cut_off_lost_ranks(self) -> list[str]:
        return []

    def wait_for_failure(self) -> bool:
        return False

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        pass

    def leave(self) -> None:
        pass

    def make_workers(self, state: "RunState") -> None:
        return None


class _Joining:
    """Joins the other ranks in a thread, while this process does other work.

    `Cluster` creates it, starts it and waits for it.

    Attributes:
      peers: All ranks of the run; empty until they have joined.
      refusal: Why this rank could not join, or None.
      ended: Set when the ranks have joined, or could not join.
    """

    def __init__(self, connection: RankConnection, rank: int) -> None:
        self.peers: Sequence[RankInfo] = ()
        self.refusal: Failure | None = None
        self.ended = threading.Event()
        self._connection = connection
        self._rank = rank

    def start(self) -> None:
        threading.Thread(target=self._join, daemon=True).start()

    def wait(self) -> Sequence[RankInfo]:
        """Wait until all ranks have joined; return them.

        Raises:
          ClusterError: If they cannot join.
        """
        self.ended.wait()
        if self.refusal is not None:
            raise ClusterError(self.refusal.message, self.refusal)
        return self.peers

    def _join(self) -> None:
        try:
            self.peers = self._connection.join()
        except ClusterError as e:
            self.refusal = e.failure or Failure(
                FailureKind.NOT_JOINED, self._rank, str(e)
            )
        finally:
            self.ended.set()


class _BatchReporter:
    """Reports new batches to rank 0, at most once in REPORT_S seconds.

    The main thread of a rank calls it regularly, and the working thread at the end.
    """

    def __init__(self, connection: RankConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._num_reported = 0
        self._reported_at = time.perf_counter()
        self._has_ended = False

    def report(self, state: "RunState", finished: bool) -> None:
        """Report the batches since the last report if one is due.

        Args:
          state: The measurements of this process.
          finished: Whether this is the last report; it contains further facts.
        """
        with self._lock:
            is_due = finished or time.perf_counter() - self._reported_at >= REPORT_S
            if self._has_ended or not is_due:
                return
            batches = state.collect_batches(self._num_reported)
            self._num_reported += len(batches["seconds"])
            self._reported_at = time.perf_counter()
            self._has_ended = finished
            if finished or batches["seconds"]:
                details = state.collect_details() if finished else {}
                self._connection.report(RankReport(batches, details).to_json())


class Cluster(RunMembers):
    """A run of several processes, which `join_run` creates."""

    def __init__(self, launch: Launch, config: RunConfig) -> None:
        roles = config.list_roles()
        cluster = config.cluster
        self.rank = launch.rank
        self.size = launch.size
        self.role = roles[launch.rank]
        self._launch = launch
        self._config = config
        hello = Hello(
            self.role,
            _select_compared_options(config),
            _read_compared_versions(),
            launch.find_engine_address(),
        )
        # If a worker dies, the coordinator gives its steps to other workers.
        roles_that_may_be_lost = ("worker",) if config.mode.has_coordinator else ()
        # Seconds of silence after which a rank counts as lost.
        self._heartbeat_s = min(cluster.cluster_heartbeat, cluster.cluster_timeout)
        self._connection = RankConnection(
            launch,
            hello=hello,
            timeout_s=cluster.cluster_timeout,
            heartbeat_s=self._heartbeat_s,
            roles_that_may_be_lost=roles_that_may_be_lost,
        )
        self._joining = _Joining(self._connection, launch.rank)
        self._reporter = _BatchReporter(self._connection)
        self._barrier_times: dict[str, float] = {}
        self._cut_off_ranks: set[int] = set()
        self._has_left = False

    @property
    def failure(self) -> Failure | None:
        if self._has_left:
            return None
        return self._joining.refusal or self._connection.failure

    def start(self) -> None:
        self._joining.start()

    def wait_for_others(self) -> RankPosition:
        peers = self._joining.wait()
        addresses: dict[str, tuple[str, ...]] = {}
        for peer in peers:
            addresses[peer.role] = (*addresses.get(peer.role, ()), peer.address)
        roles = [peer.role for peer in peers]
        return RankPosition(
            self.role,
            index=roles[: self.rank].count(self.role),
            addresses=addresses,
            local_rank=self._launch.local_rank,
            local_size=self._launch.local_size,
            timeout_s=self._config.cluster.cluster_timeout,
        )

    def barrier(self, name: str) -> None:
        self._connection.barrier(name)
        self._barrier_times[name] = time.perf_counter()

    def gather(self, name: str, value: Any) -> list[Any] | None:
        return self._connection.gather(name, value)

    def report(self, state: "RunState", *, finished: bool = False) -> None:
        # Rank 0 has its own measurements.
        if self._joining.ended.is_set() and self.rank:
            self._reporter.report(state, finished)

    def wait_for_failure(self) -> bool:
        if self._joining.refusal is not None:
            return True
        return self._connection.failed.wait(self._heartbeat_s + _FAILURE_DELAY_S)

    def abort(self, message: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self._has_left = True
        self._connection.abort(message, kind)

    def leave(self) -> None:
        self._has_left = True
        self._connection.leave()

    def make_workers(self, state: "RunState") -> Workers:
        peers = self._joining.peers
        reports = decode_reports(self._connection.list_reports())
        reports[self.rank] = [
            RankReport(state.collect_batches(0), state.collect_details())
        ]
        staleness = state.worker_steps.count_staleness()
        if staleness:
            # A coordinator has the measurements of the workers.
            worker_ranks = [peer.rank for peer in peers if peer.role == "worker"]
            for index, rank in enumerate(worker_ranks):
                report = RankReport(state.worker_steps.collect_batches(index))
                reports.setdefault(rank, []).append(report)
        failure = self._joining.refusal or self._connection.failure
        lost = [
            make_rank(peers[rank], [], Failure(FailureKind.LOST, rank, message))
            for rank, message in self._connection.lost
        ]
        has_one_clock = "ps" in self._config.list_roles()
        workers = Workers(
            launcher=self._launch.launcher,
            link=os.environ.get(NETWORK) or None,
            window=_ONE_CLOCK if has_one_clock else WINDOW,
            window_seconds=self._window_seconds(),
            ranks=tuple(
                make_rank(peer, reports.get(peer.rank, []), failure) for peer in peers
            ),
            lost=tuple(lost),
            staleness=staleness,
        )
        return drop_load_of_each_other(workers)

    def _window_seconds(self) -> float | None:
        """Return the seconds between the barriers WARM and MEASURED.

        Returns:
          None before MEASURED, or if the run saves checkpoints, because their time does
          not belong to a batch.
        """
        saves_checkpoints = bool(self._config.output.checkpoint_dir)
        if MEASURED not in self._barrier_times or saves_checkpoints:
            return None
        return self._barrier_times[MEASURED] - self._barrier_times[WARM]

    @property
    def num_lost_ranks(self) -> int:
        return len(self._connection.lost)

    def cut_off_lost_ranks(self) -> list[str]:
        lines = []
        for rank, line in self._connection.lost:
            if rank not in self._cut_off_ranks:
                self._cut_off_ranks.add(rank)
                # TensorFlow would wait for a frozen rank.
                connections.cut_connections(self._joining.peers[rank].address)
                lines.append(line)
        return lines


def join_run(launch: Launch | None, config: RunConfig) -> RunMembers:
    """Return the processes of a run; `start` joins them.

    Args:
      launch: This process's rank and size, or None for a single process.
      config: The options.
    """
    if launch is None or config.num_processes == 1:
        return SingleProcess()
    return Cluster(launch, config)


def warn_about_shared_cores(workers: Workers) -> str:
    """Return a warning if processes on one machine share a core, or an empty text."""
    for (host, core), ranks in group_ranks_by_core(workers).items():
        if len(ranks) > 1:
            host_text = f" of host {host}" if host else ""
            return (
                f"{name_ranks(ranks)} share core {core}{host_text}: the run is slower "
                "than with one core per rank"
            )
    return ""


def _select_compared_options(config: RunConfig) -> dict[str, Any]:
    """Return the options that must be equal at all ranks."""
    return {
        name: value
        for name, value in config.flat().items()
        if name in _COMPARED_OUTPUT_OPTIONS
        or (GROUP_OF[name] != "output" and name not in _OPTIONS_THAT_MAY_DIFFER)
    }


def _read_compared_versions() -> dict[str, str]:
    """Return the versions that must be equal at all ranks."""
    packages = {
        name: version
        for name, version in list_package_versions().items()
        if name.startswith("tensorflow")
    }
    return {"rnn_scaling": entry.VERSION, **packages}
