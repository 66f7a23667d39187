"""The admission of ranks to a run: who belongs to it, and when it can begin."""

import dataclasses
import os
import time

from rnn_scaling.cluster import tokens, wire
from rnn_scaling.cluster.failure import Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.cluster.rank_info import (
    Hello,
    RankInfo,
    describe_disagreement,
    name_ranks,
)


class Admission:
    """Checks each hello, and decides whether the ranks can begin the run together.

    The rendezvous creates it, and calls it for each hello, when all ranks have sent
    one, and when the time limit for joining ends.

    Attributes:
      has_begun: Whether all ranks have joined and agree.
    """

    def __init__(self, launch: Launch, timeout_s: float) -> None:
        """Begin to wait for the ranks of a job.

        Args:
          launch: The rank and the job of this process.
          timeout_s: Time limit for joining.
        """
        self.has_begun = False
        self._launch = launch
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._joined: dict[int, tuple[RankInfo, Hello]] = {}
        self._num_hellos = 0
        self._num_rejected = 0
        # It is sent when all ranks have sent a hello, so that it reaches all of them.
        self._early_failure: Failure | None = None

    @property
    def has_all_hellos(self) -> bool:
        """Whether as many processes as the run has ranks have sent a hello."""
        return self._num_hellos >= self._launch.size

    def is_overdue(self, now: float) -> bool:
        """Return whether the time limit for joining has ended before the run began."""
        return not self.has_begun and now >= self._deadline

    def is_from_job(self, message: wire.Message) -> bool:
        """Return whether the sender of a hello belongs to this job and has its token.

        Others are counted, because their number explains why ranks are missing.
        """
        signed = dict(message)
        del signed["kind"]
        sent_proof = signed.pop("proof", None)
        has_token = tokens.is_proof(self._launch.token, sent_proof, signed)
        if has_token and signed.get("job") == self._launch.job_id:
            return True
        self._num_rejected += 1
        return False

    def answer(self, message: wire.Message) -> bytes:
        """Return the answer to a hello of this job, which proves the token to it.

        It refuses the sender if the run has already begun.
        """
        nonce = wire.read_field(message, "nonce", str)
        proof = tokens.make_proof(self._launch.token, {"nonce": nonce})
        if self.has_begun:
            refusal = (
                f"the run at {self._launch.rendezvous} has begun without it; "
                "start all ranks with one command"
            )
            return wire.encode("refused", line=refusal, proof=proof)
        rank_0 = f"rank 0 (host {self._launch.host}, process {os.getpid()})"
        return wire.encode("seen", rank_0=rank_0, proof=proof)

    def admit(self, info: RankInfo, hello: Hello, size: int) -> bool:
        """Add a rank to the run; return False if its number makes the run fail.

        Args:
          info: The number and the process of the rank.
          hello: The facts in which all ranks must agree.
          size: The number of ranks with which it was started.
        """
        self._num_hellos += 1
        rank = info.rank
        problem = ""
        if size != self._launch.size or not 0 <= rank < size:
            problem = (
                f"{info} was started as one of {size} ranks, but rank 0 as one of "
                f"{self._launch.size}; start all ranks with one command"
            )
        elif rank in self._joined:
            problem = (
                f"{self._joined[rank][0]} and {info} are two processes with the same "
                "rank; give each its own rank"
            )
        if problem:
            self.keep_failure(Failure(FailureKind.NOT_JOINED, None, problem))
            return False
        self._joined[rank] = (info, hello)
        return True

    def keep_failure(self, failure: Failure) -> None:
        """Keep why the run cannot begin; only the first reason counts."""
        if self._early_failure is None:
            self._early_failure = failure

    def begin(self) -> Failure | None:
        """Begin the run; if it cannot begin, return the reason."""
        failure = self._early_failure or self._find_failure()
        self.has_begun = failure is None
        return failure

    def welcome(self) -> bytes:
        """Return the message with which the run begins at every rank."""
        ranks = range(self._launch.size)
        infos = [dataclasses.asdict(self._joined[rank][0]) for rank in ranks]
        return wire.encode("welcome", peers=infos)

    def _find_failure(self) -> Failure | None:
        """Return a failure if ranks disagree or are missing."""
        line = describe_disagreement(self._joined) or self._describe_missing_ranks()
        return Failure(FailureKind.NOT_JOINED, None, line) if line else None

    def _describe_missing_ranks(self) -> str:
        ranks = range(self._launch.size)
        missing_ranks = [rank for rank in ranks if rank not in self._joined]
        if not missing_ranks:
            return ""
        line = (
            f"{name_ranks(missing_ranks)} of {self._launch.size} did not "
            f"join within {self._timeout_s:g} s ({self._launch.timeout_option}); "
            "check their output, and whether their hosts can reach "
            f"{self._launch.rendezvous}"
        )
        if self._num_rejected:
            line += (
                "; rejected connections with another job or "
                f"RNN_SCALING_JOB_TOKEN: {self._num_rejected}"
            )
        return line
