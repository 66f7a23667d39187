"""Let the ranks of any trainer meet at rank 0.

A file next to the result file contains the address until all ranks have met. Only the
Recorder uses this; ranks of the suite's own trainer meet in `training.cluster`.
"""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.cluster import ports, tokens
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.introduction import CONNECT_S
from rnn_scaling.cluster.launch import RETRY_S, Launch
from rnn_scaling.cluster.rank_connection import RankConnection
from rnn_scaling.cluster.rank_info import Hello, RankInfo
from rnn_scaling.records.workers import Rank
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import open_new
from rnn_scaling.training.rank_report import RankReport, decode_reports, make_rank

# Barriers.
_START = "before the first step"
_END = "after the last step"


class RankMeeting:
    """Lets this process join the other ranks, pass barriers with them, and report.

    A `Recorder` whose run has at least two ranks creates it and calls it.
    """

    def __init__(
        self,
        result_file: Path,
        rank: int,
        num_ranks: int,
        timeout_s: float,
        warmup: int,
    ) -> None:
        """Create the meeting; `join` connects.

        Args:
          result_file: The record, whose folder all ranks can read.
          rank: The number of this process.
          num_ranks: The number of processes.
          timeout_s: Seconds for which ranks wait for each other.
          warmup: Steps before the second barrier, the same number at every rank.
        """
        self._file = result_file.with_name(f".{result_file.name}.meeting")
        self._rank = rank
        self._num_ranks = num_ranks
        self._timeout_s = timeout_s
        self._warmup = warmup
        self._connection: RankConnection | None = None
        self._peers: Sequence[RankInfo] = ()

    def join(self) -> None:
        """Wait for all ranks.

        Raises:
          ClusterError: If a rank does not arrive in time, or if ranks disagree.
        """
        try:
            launch = self._invite() if self._rank == 0 else self._find_rendezvous()
            hello = Hello("worker", {"num_warmup_batches": self._warmup}, {})
            # A rank that computes without releasing Python's lock is silent for a long
            # time without being lost.
            self._connection = RankConnection(
                launch, hello, self._timeout_s, heartbeat_s=self._timeout_s
            )
            self._peers = self._connection.join()
        except ClusterError as e:
            raise ClusterError(
                f"{e}; each of the {self._num_ranks} ranks needs a Recorder with this "
                "result_file, or give rank=0, num_ranks=1"
            ) from None
        finally:
            self._remove_file()
        self.barrier(_START)

    def barrier(self, name: str) -> None:
        """Wait for all ranks.

        Raises:
          ClusterError: If a rank has ended, or does not arrive in time.
        """
        assert self._connection is not None
        self._connection.barrier(name, self._timeout_s)

    def end(self, report: RankReport, error: str) -> tuple[tuple[Rank, ...], str]:
        """End this rank's part: with all others, or at once if it has failed.

        Args:
          report: All measurements of this rank.
          error: Why this rank has failed, or "".

        Returns:
          The ranks that have reported to this rank, and why the run has failed, or "".
        """
        connection = self._connection
        if connection is None or not self._peers:
            # It has not joined.
            self._remove_file()
            return (), ""
        connection.report(report.to_json())
        if error:
            connection.abort(error)
        else:
            with contextlib.suppress(ClusterError):
                self.barrier(_END)
            with contextlib.suppress(ClusterError):
                connection.leave()
        reports = decode_reports(connection.list_reports())
        reports[self._rank] = [report]
        ranks = tuple(
            make_rank(peer, reports[peer.rank], connection.failure)
            for peer in self._peers
            if peer.rank in reports
        )
        return ranks, connection.failure.message if connection.failure else ""

    def _remove_file(self) -> None:
        if self._rank == 0:
            self._file.unlink(missing_ok=True)

    def _invite(self) -> Launch:
        """Write the file with the address and the secret of a new rendezvous."""
        # torchrun sets the variable on several hosts.
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        launch = self._make_launch(
            ports.join(host, ports.find_free()),
            uuid.uuid4().hex,
            tokens.generate_token(),
        )
        invitation = {
            "meeting": launch.rendezvous,
            "job": launch.job_id,
            "token": launch.token,
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open_new(self._file) as file:
            os.chmod(file.fileno(), 0o600)
            file.write(input_files.format_json(invitation))
        return launch

    def _find_rendezvous(self) -> Launch:
        """Return the rendezvous that the file names, once it answers."""
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            # The file may be missing or incomplete, or a killed run may have left it.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                invitation = input_files.parse_json(input_files.read_text(self._file))
                address = ports.split(invitation["meeting"])
                socket.create_connection(address, CONNECT_S).close()
                return self._make_launch(**invitation)
            time.sleep(RETRY_S)
        raise ClusterError(f"rank 0 did not arrive within {self._timeout_s:g} s")

    def _make_launch(self, meeting: str, job: str, token: str) -> Launch:
        """Return the place of this process for `RankConnection`."""
        host = socket.gethostname()
        return Launch(
            self._rank,
            self._num_ranks,
            launcher="",
            rendezvous=meeting,
            host=host,
            job_id=job,
            token=token,
            timeout_option="timeout_s",
        )
