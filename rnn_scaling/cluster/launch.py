"""The rank of this process, read from the variables that launchers set.

    RNN_SCALING_RANK, _SIZE, _MEETING     local-cluster, your own scripts; _MEETING is
                                          the address of the rendezvous
    TF_CONFIG                             Kubeflow, Ray, TensorFlow
    OMPI_COMM_WORLD_RANK, _SIZE           mpirun of Open MPI 4 and 5
    SLURM_PROCID, SLURM_STEP_NUM_TASKS    srun
    JOB_COMPLETION_INDEX                  an Indexed Job of Kubernetes, with
                                          RNN_SCALING_SIZE and RNN_SCALING_SERVICE
    RNN_SCALING_JOB_TOKEN                 the job's secret (tokens.py), with any launcher

The commands that train call `detect_launch`; `training.recorder` calls `detect_rank`. A
new launcher is one function and one row of `_LAUNCHERS`.
"""

import dataclasses
import hashlib
import json
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.cluster import node_list, ports, tokens
from rnn_scaling.cluster.failure import ClusterError

# The variable that contains a description of an emulated network, for the record.
NETWORK = "RNN_SCALING_LINK"
_TF_CONFIG_ROLES = ("chief", "worker", "ps")  # in the order of ranks
# Seconds between two attempts to find or to reach another rank, here and in other
# modules.
RETRY_S = 0.2
_KUBERNETES_PORT = 20000  # port of the rendezvous; every pod has its own ports
# Slurm gives these numbers, and larger ones, to a batch script, an interactive shell
# and other processes that are not a step.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
REMEDY = "give --coordinator_address=HOST:PORT, where rank 0 can be reached"
_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["a:2222", "b:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
Environment = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Launch:
    """This process and its rank in the job that a launcher started.

    Attributes:
      rank: The number of the process in the job.
      size: The number of processes, at least two.
      launcher: The name of the launcher.
      rendezvous: HOST:PORT where rank 0 waits for the others.
      host: The name of this process's host.
      local_rank: The number of the process among those on this host.
      local_size: The number of processes on this host.
      addresses: HOST:PORT of every rank's engine; empty if each takes a free port.
      job_id: A text that differs between jobs with the same rendezvous address.
      num_ps: The number of parameter servers, which are the last ranks; None if the
        launcher does not set it.
      token: The secret of the job, or ""; it is never printed.
      timeout_option: The option that messages about the time limit name.
    """

    rank: int
    size: int
    launcher: str
    rendezvous: str
    host: str
    local_rank: int = 0
    local_size: int = 1
    addresses: tuple[str, ...] = ()
    job_id: str = ""
    num_ps: int | None = None
    token: str = dataclasses.field(default="", repr=False)
    timeout_option: str = "--cluster_timeout"

    @property
    def is_local(self) -> bool:
        """Whether no other machine takes part."""
        return ports.is_loopback(ports.split(self.rendezvous)[0])

    def find_engine_address(self, timeout_s: float = 60.0) -> str:
        """Return HOST:PORT at which this process's engine listens.

        Args:
          timeout_s: Seconds for which the host of rank 0 may have no address, for
            example because its pod is being created.

        Raises:
          ClusterError: If no port is free, or rank 0 cannot be reached.
        """
        if self.addresses:
            return self.addresses[self.rank]
        try:
            host = self._find_own_host(time.monotonic() + timeout_s)
            return ports.join(host, ports.find_free())
        except OSError as e:
            raise ClusterError(
                f"rank {self.rank} cannot reach {self.rendezvous}: "
                f"{e.strerror or e}; {REMEDY}"
            ) from None

    def _find_own_host(self, deadline: float) -> str:
        """Return the host at which rank 0 can reach this process.

        Until the deadline, retry if the name of rank 0 has no address.
        """
        while True:
            try:
                return ports.find_reachable_host(self.rendezvous, self.rank)
            except socket.gaierror:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_S)


class DetectedRank(NamedTuple):
    """The rank of a process in the job of its launcher."""

    rank: int
    size: int
    launcher: str  # "" if the process has none


def detect_rank(environ: Environment, host_name: str = "") -> DetectedRank:
    """Return the rank and the number of ranks, for callers that do not connect them.

    torchrun is checked first: srun or mpirun may start it, never the reverse.

    Returns:
      (0, 1, "") for a single process.

    Raises:
      ClusterError: If the variables are malformed or contradict each other.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        position = _Variables(environ).read_position("RANK", "WORLD_SIZE")
        return DetectedRank(position.rank, position.size, "torchrun")
    # With any address of a rendezvous, the variables need not contain one.
    unused_address = ports.join(ports.LOOPBACK, 1)
    launch = _read_launch(_Variables(environ, unused_address, host_name))
    if launch is None:
        return DetectedRank(0, 1, "")
    return DetectedRank(launch.rank, launch.size, launch.launcher)


def detect_launch(
    environ: Environment, coordinator_address: str = "", host_name: str = ""
) -> Launch | None:
    """Return the rank of this process, or None for a single process.

    Args:
      environ: The variables of this process.
      coordinator_address: HOST:PORT of the rendezvous, instead of the launcher's.
      host_name: The name of this host.

    Raises:
      ClusterError: If the variables are malformed or contradict each other.
    """
    if coordinator_address:
        _check_address("--coordinator_address", coordinator_address)
    launch = _read_launch(_Variables(environ, coordinator_address, host_name))
    if launch is None:
        return None
    try:
        token = tokens.read_token(environ)
    except ValueError as e:
        raise ClusterError(str(e)) from None
    return dataclasses.replace(launch, token=token)


class _Position(NamedTuple):
    """The rank of a process, and the number of ranks."""

    rank: int
    size: int


@dataclasses.dataclass(frozen=True)
class _Variables:
    """The variables of a launcher. Methods raise ClusterError for a malformed one.

    Attributes:
      environ: The variables of this process.
      coordinator_address: HOST:PORT that replaces the rendezvous of the launcher, or
        "".
      host_name: The name of this host.
    """

    environ: Environment
    coordinator_address: str = ""
    host_name: str = ""

    def get(self, *names: str) -> str:
        """Return the first of these variables that is set and not empty, or ""."""
        for name in names:
            value = self.environ.get(name)
            if value:
                return value
        return ""

    def require_text(self, *names: str) -> str:
        """Return the first of these variables that is set and not empty."""
        value = self.get(*names)
        if not value:
            raise ClusterError(
                f"{names[0]} is not set, but other variables of its launcher are; "
                "set all of them or none"
            )
        return value

    def require_int(self, *names: str, minimum: int = 0, default: str = "") -> int:
        """Return the number in the first of these variables that is set."""
        value = self.get(*names) or default or self.require_text(*names)
        is_number = value.isascii() and value.isdecimal() and len(value) < 10
        if not is_number or int(value) < minimum:
            raise ClusterError(
                f"{names[0]}={value} must be a whole number of at least {minimum}; "
                "start the ranks with its launcher, which sets it"
            )
        return int(value)

    def read_position(
        self,
        rank_name: str,
        size_name: str,
        default_rank: str = "",
        default_size: str = "",
    ) -> _Position:
        """Return a rank and the number of ranks.

        Args:
          rank_name: The variable with the rank.
          size_name: The variable with the number of ranks.
          default_rank: The text that is read if the variable of the rank is not set.
          default_size: The text that is read if the variable of the number is not set.

        Raises:
          ClusterError: If the rank is not below the number of ranks.
        """
        size = self.require_int(size_name, minimum=1, default=default_size)
        rank = self.require_int(rank_name, default=default_rank)
        if rank >= size:
            raise ClusterError(
                f"{rank_name}={rank} must be from 0 to {size - 1}, because "
                f"{size_name}={size}; number the ranks from 0"
            )
        return _Position(rank, size)


def _check_address(name: str, address: str) -> None:
    try:
        ports.split(address)
    except ValueError:
        raise ClusterError(
            f"{name}={address} must be HOST:PORT, such as 10.0.0.1:20000"
        ) from None


def _read_rnn_scaling(variables: _Variables, position: _Position) -> Launch:
    """Return the launch of local-cluster or of the user's own script."""
    rendezvous = variables.coordinator_address
    if not rendezvous:
        rendezvous = variables.require_text("RNN_SCALING_MEETING")
    _check_address("RNN_SCALING_MEETING", rendezvous)
    is_local = ports.is_loopback(ports.split(rendezvous)[0])
    local_position = variables.read_position(
        "RNN_SCALING_LOCAL_RANK",
        "RNN_SCALING_LOCAL_SIZE",
        default_rank=str(position.rank if is_local else 0),
        default_size=str(position.size if is_local else 1),
    )
    host = ports.LOOPBACK if is_local else variables.host_name
    return Launch(
        position.rank,
        position.size,
        launcher=variables.get("RNN_SCALING_LAUNCHER") or "environment",
        rendezvous=rendezvous,
        host=variables.get("RNN_SCALING_HOST") or host,
        local_rank=local_position.rank,
        local_size=local_position.size,
        job_id=variables.get("RNN_SCALING_JOB") or f"rendezvous {rendezvous}",
    )


def _read_tf_config(variables: _Variables, position: _Position) -> Launch:
    """Return the launch that TF_CONFIG describes.

    Args:
      variables: The variables of this process.
      position: Unused: TF_CONFIG contains the rank.
    """
    tf_config = _parse_tf_config(variables.require_text("TF_CONFIG"))
    tasks: list[tuple[str, int]] = []
    for role in _TF_CONFIG_ROLES:
        addresses_of_role = tf_config.cluster.get(role, [])
        tasks += [(role, index) for index in range(len(addresses_of_role))]
    addresses = tuple(tf_config.cluster[role][index] for role, index in tasks)
    rank = tasks.index((tf_config.role, tf_config.task_index))
    hosts = [ports.split(address)[0] for address in addresses]
    same_host = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    rendezvous = variables.coordinator_address
    if not rendezvous:
        rendezvous = _find_rendezvous(addresses)
    digest = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:16]
    return Launch(
        rank,
        size=len(tasks),
        launcher="TF_CONFIG",
        rendezvous=rendezvous,
        host=hosts[rank],
        local_rank=same_host.index(rank),
        local_size=len(same_host),
        addresses=addresses,
        job_id=f"TF_CONFIG {digest}",
        num_ps=len(tf_config.cluster.get("ps", [])),
    )


def _find_rendezvous(addresses: Sequence[str]) -> str:
    """Return the first address after rank 0's on its host that no rank uses."""
    used_addresses = {ports.split(address) for address in addresses}
    host, first_port = ports.split(addresses[0])
    for port in range(first_port + 1, 65536):
        if (host, port) not in used_addresses:
            return ports.join(host, port)
    raise ClusterError(
        f"TF_CONFIG: no port above {addresses[0]} is free for the rendezvous; {REMEDY}"
    )


class _TfConfig(NamedTuple):
    """The content of TF_CONFIG."""

    cluster: dict[str, list[str]]  # role -> HOST:PORT of its tasks
    role: str  # role of this task
    task_index: int  # number of this task among the tasks of its role


def _parse_tf_config(text: str) -> _TfConfig:
    """Return the content of TF_CONFIG; see _TF_CONFIG_EXAMPLE."""
    try:
        content: Any = json.loads(text)
        role = content["task"]["type"]
        index = content["task"]["index"]
        if isinstance(index, str):  # Some launchers write a string.
            index = int(index)
        if type(index) is not int or not isinstance(role, str):
            raise TypeError  # for the message below
        cluster = {name: list(tasks) for name, tasks in content["cluster"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ClusterError(
            f"TF_CONFIG={text[:80]} must contain the cluster and the task, such as "
            f"{_TF_CONFIG_EXAMPLE}"
        ) from None
    seen_addresses = set()
    for name, addresses in cluster.items():
        if name not in _TF_CONFIG_ROLES:
            raise ClusterError(
                f"TF_CONFIG: job {name} is not one of {', '.join(_TF_CONFIG_ROLES)}; "
                "leave it out"
            )
        for address in addresses:
            _check_address(f"TF_CONFIG: {name}", str(address))
            if address in seen_addresses:
                raise ClusterError(
                    f"TF_CONFIG: {address} is listed twice; "
                    "give each task its own address"
                )
            seen_addresses.add(address)
    if not 0 <= index < len(cluster.get(role, [])):
        raise ClusterError(
            f"TF_CONFIG: its cluster has no task {role} {index}; "
            "list the address of this task"
        )
    return _TfConfig(cluster, role, index)


def _read_open_mpi(variables: _Variables, position: _Position) -> Launch:
    """Return the launch of mpirun, from the variables of Open MPI."""
    local_position = variables.read_position(
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    )
    namespace = variables.get("PMIX_NAMESPACE")
    rendezvous = variables.coordinator_address
    if not namespace and not rendezvous:
        raise ClusterError(
            f"PMIX_NAMESPACE, which identifies the job of mpirun, is not set; {REMEDY}"
        )
    if not rendezvous:
        is_local = local_position.size == position.size
        host = ports.LOOPBACK if is_local else _find_mpirun_host(variables)
        rendezvous = ports.join(host, ports.choose_rendezvous_port(namespace))
    return Launch(
        position.rank,
        position.size,
        launcher="mpirun",
        rendezvous=rendezvous,
        host=variables.host_name,
        local_rank=local_position.rank,
        local_size=local_position.size,
        job_id=f"mpirun {namespace or rendezvous}",
    )


def _find_mpirun_host(variables: _Variables) -> str:
    """Return the host where mpirun runs.

    Rank 0 runs on the same host unless mpirun uses only other hosts; then the
    rendezvous fails with a message.

    Open MPI 4: OMPI_MCA_orte_hnp_uri=2062024704.0;tcp://10.0.0.5,172.17.0.1:41417
    Open MPI 5: PMIX_NAMESPACE=prterun-HOST-PID@1
    """
    uri = variables.get("OMPI_MCA_orte_hnp_uri")
    match = re.search(
        r"tcp://(?P<ipv4>[0-9.,]+):[0-9]+|tcp6://\[(?P<ipv6>[0-9a-fA-F.:,]+)\]:[0-9]+",
        uri,
    )
    hosts = (match["ipv4"] or match["ipv6"]).split(",") if match else []
    for host in hosts:
        if host and not ports.is_loopback(host):
            return host
    namespace = variables.get("PMIX_NAMESPACE")
    match = re.fullmatch(
        r"(?:prterun|prte|mpirun)-([A-Za-z0-9_.-]+)-[0-9]+@[0-9]+", namespace
    )
    if match:
        return match[1]
    raise ClusterError(
        "mpirun does not report which host it runs on "
        f"(PMIX_NAMESPACE={namespace}); {REMEDY}"
    )


def _has_slurm_step(environ: Environment) -> bool:
    step = _Variables(environ).get(*_SLURM_STEP)
    # `int` takes long for a very long text, which is no number of a step.
    is_special = (
        step.isdecimal() and len(step) < 20 and int(step) >= _FIRST_SPECIAL_STEP
    )
    return bool(step) and "SLURM_STEP_NUM_TASKS" in environ and not is_special


def _read_slurm(variables: _Variables, position: _Position) -> Launch:
    """Return the launch of srun, from the variables of Slurm."""
    names = _read_list(variables, "SLURM_STEP_NODELIST", node_list.parse_nodes)
    counts = _read_list(variables, "SLURM_STEP_TASKS_PER_NODE", node_list.parse_tasks)
    node = variables.require_int("SLURM_NODEID")
    if len(counts) != len(names) or sum(counts) != position.size or node >= len(names):
        raise ClusterError(
            f"SLURM_STEP_NUM_TASKS={position.size}, SLURM_NODEID={node} and "
            "SLURM_STEP_TASKS_PER_NODE do not match the nodes of "
            f"SLURM_STEP_NODELIST ({len(names)}); start the ranks with srun"
        )
    job = variables.require_int("SLURM_JOB_ID", "SLURM_JOBID")
    step = variables.require_int(*_SLURM_STEP)
    job_id = f"Slurm {job}.{step}"
    host = ports.LOOPBACK if len(names) == 1 else names[0]
    rendezvous = ports.join(host, ports.choose_rendezvous_port(job_id))
    return Launch(
        position.rank,
        position.size,
        launcher="srun",
        rendezvous=variables.coordinator_address or rendezvous,
        host=names[node],
        local_rank=variables.require_int("SLURM_LOCALID"),
        local_size=counts[node],
        job_id=job_id,
    )


def _read_list(
    variables: _Variables, name: str, parse: Callable[[str], list[Any]]
) -> list[Any]:
    try:
        return parse(variables.require_text(name))
    except ValueError as e:
        raise ClusterError(f"{name}: {e}; start the ranks with srun") from None


def _read_kubernetes(variables: _Variables, position: _Position) -> Launch:
    """Return the launch of an Indexed Job."""
    # "trainer-3.service" is rank 3 of the job "trainer".
    first_label = variables.host_name.partition(".")[0]
    name, dash, index = first_label.rpartition("-")
    rendezvous = variables.coordinator_address
    if not rendezvous:
        service = variables.require_text("RNN_SCALING_SERVICE")
        if not dash or index != str(position.rank):
            raise ClusterError(
                f"host name {variables.host_name} must end with -{position.rank}, "
                f"because JOB_COMPLETION_INDEX={position.rank}; set completionMode: "
                "Indexed in the Job"
            )
        rendezvous = ports.join(f"{name}-0.{service}", _KUBERNETES_PORT)
    return Launch(
        position.rank,
        position.size,
        launcher="Kubernetes",
        rendezvous=rendezvous,
        host=variables.host_name,
        job_id=f"Kubernetes {name or rendezvous}",
    )


def _has_rnn_scaling_variables(environ: Environment) -> bool:
    if {"RNN_SCALING_RANK", "RNN_SCALING_MEETING"} & environ.keys():
        return True
    return "RNN_SCALING_SIZE" in environ and not _has_kubernetes(environ)


def _has_tf_config(environ: Environment) -> bool:
    return environ.get("TF_CONFIG", "").strip() not in ("", "{}")


def _has_open_mpi(environ: Environment) -> bool:
    return bool({"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"} & environ.keys())


def _has_kubernetes(environ: Environment) -> bool:
    return "JOB_COMPLETION_INDEX" in environ and "RNN_SCALING_SIZE" in environ


class _Launcher(NamedTuple):
    """How to recognise a launcher and read its variables.

    `names` are the variables of the rank and of the number of ranks; empty for
    TF_CONFIG.
    """

    is_used: Callable[[Environment], bool]
    names: tuple[str, ...]
    read: Callable[[_Variables, _Position], Launch]


# The first launcher whose variables are set counts. The order matters: mpirun may start
# its processes through srun, and all launchers may run inside Kubernetes.
_LAUNCHERS = (
    _Launcher(
        _has_rnn_scaling_variables,
        ("RNN_SCALING_RANK", "RNN_SCALING_SIZE"),
        _read_rnn_scaling,
    ),
    _Launcher(_has_tf_config, (), _read_tf_config),
    _Launcher(
        _has_open_mpi, ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), _read_open_mpi
    ),
    _Launcher(_has_slurm_step, ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), _read_slurm),
    _Launcher(
        _has_kubernetes, ("JOB_COMPLETION_INDEX", "RNN_SCALING_SIZE"), _read_kubernetes
    ),
)


def _read_launch(variables: _Variables) -> Launch | None:
    """Return the launch of the first launcher in use, or None for a single process."""
    for launcher in _LAUNCHERS:
        if not launcher.is_used(variables.environ):
            continue
        position = _Position(0, 1)
        if launcher.names:
            position = variables.read_position(*launcher.names)
            if position.size == 1:
                return None
        launch = launcher.read(variables, position)
        return launch if launch.size > 1 else None
    return None
