"""Ranks of somebody's trainer meet at rank 0. A file next to the result file says where; rank 0 removes it then."""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.cluster import ports, tokens
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import RETRY_S, Launch
from rnn_scaling.cluster.member import CONNECT_S, Member
from rnn_scaling.cluster.peers import Hello, Peer
from rnn_scaling.records.workers import Rank
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import open_new
from rnn_scaling.training.cluster import rank_of

# Barriers.
START = "before the first step"
END = "after the last step"


class RankMeeting:
    """This process among the ranks of its run, two at least."""

    def __init__(
        self,
        result_file: Path,
        rank: int,
        num_ranks: int,
        timeout_s: float,
        warmup: int,
    ) -> None:
        """warmup: steps before the second barrier, the same number at every rank."""
        self._file = result_file.with_name(f".{result_file.name}.meeting")
        self._rank = rank
        self._num_ranks = num_ranks
        self._timeout_s = timeout_s
        self._warmup = warmup
        self._member: Member | None = None
        self._peers: Sequence[Peer] = ()

    def join(self) -> None:
        """Waits until all ranks are there; ClusterError if they do not come in time, or disagree."""
        try:
            launch = self._invite() if self._rank == 0 else self._find()
            hello = Hello("worker", {"num_warmup_batches": self._warmup}, {})
            # A rank that computes without releasing Python's lock is silent for long, and yet not lost.
            self._member = Member(
                launch, hello, self._timeout_s, heartbeat_s=self._timeout_s
            )
            self._peers = self._member.join()
        except ClusterError as e:
            needs = f"each of the {self._num_ranks} ranks needs a Recorder with this result_file"
            raise ClusterError(f"{e}; {needs}, or give rank=0, num_ranks=1") from None
        finally:
            self._remove_file()
        self.barrier(START)

    def barrier(self, name: str) -> None:
        """Waits for all ranks; ClusterError if one has ended or died, or does not come in time."""
        assert self._member is not None
        self._member.barrier(name, self._timeout_s)

    def end(
        self, report: Mapping[str, Any], error: str
    ) -> tuple[tuple[Rank, ...], str]:
        """End this rank's part: with all others, or at once if it has failed.

        Args:
          report: This rank's `batches` and `details`, as the fields of a
            `records.workers.Rank`.
          error: Why this rank has failed, or "".

        Returns:
          At rank 0 the ranks that have reported; and why the run has failed, or "".
        """
        member = self._member
        if member is None or not self._peers:  # it has not joined
            self._remove_file()
            return (), ""
        member.report(report)
        if error:
            member.abort(error)
        else:
            with contextlib.suppress(ClusterError):
                self.barrier(END)
            with contextlib.suppress(ClusterError):
                member.leave()
        reports = {**member.reports(), self._rank: [report]}
        known = [peer for peer in self._peers if peer.rank in reports]
        ranks = tuple(
            rank_of(peer, reports[peer.rank], member.failure) for peer in known
        )
        return ranks, member.failure.message if member.failure else ""

    def _remove_file(self) -> None:
        if self._rank == 0:
            self._file.unlink(missing_ok=True)

    def _invite(self) -> Launch:
        host = (
            os.environ.get("MASTER_ADDR") or socket.gethostname()
        )  # torchrun sets the variable on several hosts
        launch = self._launch(
            ports.joined(host, ports.free()), uuid.uuid4().hex, tokens.generate()
        )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open_new(self._file) as file:
            os.chmod(file.fileno(), 0o600)
            file.write(
                input_files.json_text(
                    {
                        "meeting": launch.meeting,
                        "job": launch.job,
                        "token": launch.token,
                    }
                )
            )
        return launch

    def _find(self) -> Launch:
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            # The file may be missing, half-written or that of a run that was killed.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = input_files.parse_json(input_files.read_text(self._file))
                socket.create_connection(
                    ports.split(found["meeting"]), CONNECT_S
                ).close()
                return self._launch(found["meeting"], found["job"], found["token"])
            time.sleep(RETRY_S)
        raise ClusterError(f"rank 0 did not come within {self._timeout_s:g} s")

    def _launch(self, meeting: str, job: str, token: str) -> Launch:
        host = socket.gethostname()
        return Launch(
            self._rank,
            self._num_ranks,
            "",
            meeting,
            host,
            job=job,
            token=token,
            timeout_option="timeout_s",
        )
