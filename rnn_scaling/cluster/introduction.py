"""The introduction of a rank to rank 0: connect, send a hello, check the answer."""

import os
import platform
import secrets
import socket
import time

from rnn_scaling.cluster import ports, tokens, wire
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import REMEDY, RETRY_S, Launch
from rnn_scaling.cluster.rank_info import Hello, RankInfo

CONNECT_S = 5.0  # time limit of one attempt to reach rank 0


class Introduction:
    """Introduces this rank to rank 0; a `RankConnection` creates it and calls it once.

    Attributes:
      timeout_s: Time limit for joining.
      rank_0: The name of rank 0 in messages, with its host once it has answered.
    """

    def __init__(self, launch: Launch, hello: Hello, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.rank_0 = "rank 0"
        self._launch = launch
        self._hello = hello

    @property
    def info(self) -> RankInfo:
        """This rank as the other ranks know it."""
        return RankInfo(
            self._launch.rank,
            role=self._hello.role,
            host=self._launch.host,
            pid=os.getpid(),
            address=self._hello.address,
        )

    def reach_rank_0(self, deadline: float) -> socket.socket:
        """Connect to rank 0 and introduce this rank; try again until the deadline.

        Raises:
          ClusterError: If rank 0 refuses this rank, or is not reached in time.
        """
        launch = self._launch
        host, port = ports.split(launch.rendezvous)
        reason = "no answer"
        while time.monotonic() < deadline:
            try:
                connection = socket.create_connection((host, port), CONNECT_S)
                return self.send_hello(connection, deadline)
            except wire.InvalidMessage:
                reason = "another program answers there"
            except OSError as e:
                reason = e.strerror or str(e) or reason
            time.sleep(max(0.0, min(RETRY_S, deadline - time.monotonic())))
        raise ClusterError(
            f"rank {launch.rank}: rank 0 was not reached at {launch.rendezvous} within "
            f"{self.timeout_s:g} s ({launch.timeout_option}): {reason}; see what rank "
            f"0 printed, or {REMEDY}"
        )

    def send_hello(self, connection: socket.socket, deadline: float) -> socket.socket:
        """Send who this rank is; return the connection if rank 0 accepts it.

        Raises:
          ClusterError: If rank 0 refuses this rank.
          InvalidMessage: If another program answers.
        """
        token = self._launch.token
        try:
            connection.settimeout(CONNECT_S)
            fields = {
                **vars(self.info),
                "job": self._launch.job_id,
                "size": self._launch.size,
                "versions": {
                    "Python": platform.python_version(),
                    **self._hello.versions,
                },
                "flags": dict(self._hello.flags),
                "nonce": secrets.token_hex(16),
            }
            proof = tokens.make_proof(token, fields)
            connection.sendall(wire.encode("hello", **fields, proof=proof))
            # Wait until the deadline: rank 0 may be loading TensorFlow, and takes a
            # closed connection for a crash.
            answer = wire.receive_first(connection, deadline)
            if not tokens.is_proof(
                token, answer.get("proof"), {"nonce": fields["nonce"]}
            ):
                raise wire.InvalidMessage("not rank 0 of this job")
            self._check_answer(answer)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_answer(self, answer: wire.Message) -> None:
        """Keep the name of rank 0.

        Raises:
          ClusterError: If rank 0 refuses this rank.
          InvalidMessage: If rank 0 never sends such an answer.
        """
        if answer["kind"] == "refused":
            line = wire.read_field(answer, "line", str)
            raise ClusterError(f"rank {self._launch.rank}: {line}")
        if answer["kind"] != "seen":
            raise wire.InvalidMessage(answer["kind"])
        self.rank_0 = wire.read_field(answer, "rank_0", str)
