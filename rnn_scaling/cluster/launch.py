"""The rank of this process, read from the variables that launchers set.

    RNN_SCALING_RANK, _SIZE, _MEETING     local-cluster, your own scripts
    TF_CONFIG                             Kubeflow, Ray, TensorFlow
    OMPI_COMM_WORLD_RANK, _SIZE           mpirun of Open MPI 4 and 5
    SLURM_PROCID, SLURM_STEP_NUM_TASKS    srun
    JOB_COMPLETION_INDEX                  an Indexed Job of Kubernetes, with
                                          RNN_SCALING_SIZE and RNN_SCALING_SERVICE
    RNN_SCALING_JOB_TOKEN                 the job's secret, with any of these
    (tokens.py)

The first launcher whose variables are set counts: mpirun starts its own processes
through srun, and all of them run inside Kubernetes.

A new launcher is one function and one row of `_LAUNCHERS`.
"""

import dataclasses
import hashlib
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rnn_scaling.cluster import node_list, ports, tokens
from rnn_scaling.cluster.failure import ClusterError

# The variable that contains a description of an emulated network, for the record.
NETWORK = "RNN_SCALING_LINK"
_JOBS = ("chief", "worker", "ps")  # jobs of TF_CONFIG, in the order of ranks
RETRY_S = 0.2
_KUBERNETES_PORT = 20000  # port of the rendezvous; every pod has its own ports
# Slurm gives these numbers, and larger ones, to a batch script, an interactive shell
# and other processes that are not a step.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
REMEDY = "give --coordinator_address=HOST:PORT, where rank 0 can be reached"
_TF_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'  # noqa: E501
Environment = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A process among those that a launcher started.

    Attributes:
      rank: The number of the process in the job.
      size: The number of processes, at least two.
      launcher: The name of the launcher.
      rendezvous: HOST:PORT where rank 0 waits for the others.
      host: The name of this process's host.
      local_rank: The number of the process among those on this host.
      local_size: The number of processes on this host.
      addresses: HOST:PORT of every rank's engine; empty if each takes a free port.
      job: A text that differs between jobs with the same rendezvous address.
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
    job: str = ""
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
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                host = ports.find_reachable_host(self.rendezvous, self.rank)
                return ports.join(host, ports.find_free())
            except OSError as e:
                if not isinstance(e, socket.gaierror) or time.monotonic() >= deadline:
                    raise ClusterError(
                        f"rank {self.rank} cannot reach {self.rendezvous}: "
                        f"{e.strerror or e}; {REMEDY}"
                    ) from None
            time.sleep(RETRY_S)


class DetectedRank(NamedTuple):
    """The rank of a process in the job of its launcher."""

    rank: int
    size: int
    launcher: str  # "" if the process has none


def detect_rank(environ: Environment, host_name: str = "") -> DetectedRank:
    """Return the rank of a process that needs no rendezvous.

    torchrun is checked first: srun or mpirun may start it, never the reverse.

    Returns:
      (0, 1, "") for a single process.

    Raises:
      ClusterError: If the variables are malformed or contradict each other.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        rank, size = _Job(environ).read_place("RANK", "WORLD_SIZE")
        return DetectedRank(rank, size, "torchrun")
    launch = _read(_Job(environ, ports.join(ports.LOOPBACK, 1), host_name))
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
    launch = _read(_Job(environ, coordinator_address, host_name))
    try:
        return launch and dataclasses.replace(launch, token=tokens.read_token(environ))
    except ValueError as e:
        raise ClusterError(str(e)) from None


@dataclasses.dataclass
class _Job:
    """The variables of a launcher. Methods raise ClusterError for a malformed one."""

    environ: Environment
    coordinator_address: str = ""
    host_name: str = ""
    rank: int = 0
    size: int = 1

    def get(self, *names: str) -> str:
        """Return the first of these variables that is set and not empty, or ""."""
        return next(filter(None, map(self.environ.get, names)), "") or ""

    def read_text(self, *names: str) -> str:
        if value := self.get(*names):
            return value
        raise ClusterError(
            f"{names[0]} is not set, but other variables of its launcher are; "
            "set all of them or none"
        )

    def read_number(self, *names: str, minimum: int = 0, default: str = "") -> int:
        value = self.get(*names) or default or self.read_text(*names)
        is_number = value.isascii() and value.isdecimal() and len(value) < 10
        if not is_number or int(value) < minimum:
            raise ClusterError(
                f"{names[0]}={value} must be a whole number of at least {minimum}; "
                "start the ranks with its launcher, which sets it"
            )
        return int(value)

    def read_place(
        self, rank_name: str, size_name: str, rank: str = "", size: str = ""
    ) -> tuple[int, int]:
        """Return a rank and the number of ranks from environment variables.

        Args:
          rank_name: The variable with the rank.
          size_name: The variable with the number of ranks.
          rank: The text that is read if the variable of the rank is not set.
          size: The text that is read if the variable of the number is not set.

        Raises:
          ClusterError: If the rank is not below the number of ranks.
        """
        count = self.read_number(size_name, minimum=1, default=size)
        number = self.read_number(rank_name, default=rank)
        if number >= count:
            raise ClusterError(
                f"{rank_name}={number} must be from 0 to {count - 1}, because "
                f"{size_name}={count}; number the ranks from 0"
            )
        return number, count

    def make_launch(self, launcher: str, rendezvous: str, **fields: Any) -> Launch:
        """Return this process; --coordinator_address replaces the rendezvous."""
        rendezvous = self.coordinator_address or rendezvous
        host = fields.pop("host", self.host_name)
        return Launch(
            self.rank,
            size=self.size,
            launcher=launcher,
            rendezvous=rendezvous,
            host=host,
            **fields,
        )


def _check_address(name: str, address: str) -> None:
    try:
        ports.split(address)
    except ValueError:
        raise ClusterError(
            f"{name}={address} must be HOST:PORT, such as 10.0.0.1:20000"
        ) from None


def _read_environment(job: _Job) -> Launch:
    """Return the launch of local-cluster or of the user's own script."""
    rendezvous = job.coordinator_address or job.read_text("RNN_SCALING_MEETING")
    _check_address("RNN_SCALING_MEETING", rendezvous)
    is_local = ports.is_loopback(ports.split(rendezvous)[0])
    local_rank, local_size = job.read_place(
        "RNN_SCALING_LOCAL_RANK",
        "RNN_SCALING_LOCAL_SIZE",
        str(job.rank if is_local else 0),
        str(job.size if is_local else 1),
    )
    host = ports.LOOPBACK if is_local else job.host_name
    return job.make_launch(
        job.get("RNN_SCALING_LAUNCHER") or "environment",
        rendezvous,
        host=job.get("RNN_SCALING_HOST") or host,
        local_rank=local_rank,
        local_size=local_size,
        job=job.get("RNN_SCALING_JOB") or f"rendezvous {rendezvous}",
    )


def _read_tf_config(job: _Job) -> Launch:
    """Return the launch that TF_CONFIG describes."""
    cluster, task_type, task_index = _parse_tf_tasks(job.read_text("TF_CONFIG"))
    tasks: list[tuple[str, int]] = []
    for task in _JOBS:
        tasks += [(task, index) for index in range(len(cluster.get(task, [])))]
    addresses = tuple(cluster[task][index] for task, index in tasks)
    job.rank = tasks.index((task_type, task_index))
    job.size = len(tasks)
    hosts = [ports.split(address)[0] for address in addresses]
    used_addresses = {ports.split(address) for address in addresses}
    host, port = ports.split(addresses[0])
    free_ports = [p for p in range(port + 1, 65536) if (host, p) not in used_addresses]
    if not free_ports and not job.coordinator_address:
        raise ClusterError(
            f"TF_CONFIG: no port above {addresses[0]} is free for the rendezvous; "
            f"{REMEDY}"
        )
    own_host = hosts[job.rank]
    same_host = [rank for rank, name in enumerate(hosts) if name == own_host]
    digest = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:16]
    return job.make_launch(
        "TF_CONFIG",
        ports.join(host, free_ports[0] if free_ports else 0),
        host=own_host,
        local_rank=same_host.index(job.rank),
        local_size=len(same_host),
        addresses=addresses,
        job=f"TF_CONFIG {digest}",
        num_ps=len(cluster.get("ps", [])),
    )


def _parse_tf_tasks(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Return the cluster's jobs, and the job and the number of this task."""
    try:
        content: Any = json.loads(text)
        task_type = content["task"]["type"]
        index = content["task"]["index"]
        if isinstance(index, str):  # Some launchers write a string.
            index = int(index)
        if type(index) is not int or not isinstance(task_type, str):
            raise TypeError
        cluster = {job: list(tasks) for job, tasks in content["cluster"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ClusterError(
            f"TF_CONFIG={text[:80]} must contain the cluster and the task, such as "
            f"{_TF_EXAMPLE}"
        ) from None
    seen_addresses = set()
    for job, addresses in cluster.items():
        if job not in _JOBS:
            raise ClusterError(
                f"TF_CONFIG: job {job} is not one of {', '.join(_JOBS)}; leave it out"
            )
        for address in addresses:
            _check_address(f"TF_CONFIG: {job}", str(address))
            if address in seen_addresses:
                raise ClusterError(
                    f"TF_CONFIG: {address} is listed twice; "
                    "give each task its own address"
                )
            seen_addresses.add(address)
    if not 0 <= index < len(cluster.get(task_type, [])):
        raise ClusterError(
            f"TF_CONFIG: its cluster has no task {task_type} {index}; "
            "list the address of this task"
        )
    return cluster, task_type, index


def _read_open_mpi(job: _Job) -> Launch:
    """Return the launch of mpirun, from the variables of Open MPI."""
    local_rank, local_size = job.read_place(
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    )
    namespace = job.get("PMIX_NAMESPACE")
    rendezvous = job.coordinator_address
    if not namespace and not rendezvous:
        raise ClusterError(
            f"PMIX_NAMESPACE, which identifies the job of mpirun, is not set; {REMEDY}"
        )
    if not rendezvous:
        host = ports.LOOPBACK if local_size == job.size else _find_mpirun_host(job)
        rendezvous = ports.join(host, ports.choose_rendezvous_port(namespace))
    return job.make_launch(
        "mpirun",
        rendezvous,
        local_rank=local_rank,
        local_size=local_size,
        job=f"mpirun {namespace or rendezvous}",
    )


def _find_mpirun_host(job: _Job) -> str:
    """Return the host where mpirun runs.

    Rank 0 runs on the same host unless mpirun uses only other hosts; then the
    rendezvous fails with a message.

    Open MPI 4: OMPI_MCA_orte_hnp_uri=2062024704.0;tcp://10.0.0.5,172.17.0.1:41417
    Open MPI 5: PMIX_NAMESPACE=prterun-HOST-PID@1
    """
    uri = job.get("OMPI_MCA_orte_hnp_uri")
    match = re.search(
        r"tcp://([0-9.,]+):[0-9]+|tcp6://\[([0-9a-fA-F.:,]+)\]:[0-9]+", uri
    )
    hosts = (match[1] or match[2]).split(",") if match else []
    for host in hosts:
        if host and not ports.is_loopback(host):
            return host
    namespace = job.get("PMIX_NAMESPACE")
    match = re.fullmatch(
        r"(?:prterun|prte|mpirun)-([A-Za-z0-9_.-]+)-[0-9]+@[0-9]+", namespace
    )
    if match:
        return match[1]
    raise ClusterError(
        "mpirun does not report which host it runs on "
        f"(PMIX_NAMESPACE={namespace}); {REMEDY}"
    )


_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")


def _is_slurm_step(environ: Environment) -> bool:
    step = _Job(environ).get(*_SLURM_STEP)
    is_special = (
        step.isdecimal() and len(step) < 20 and int(step) >= _FIRST_SPECIAL_STEP
    )
    return bool(step) and "SLURM_STEP_NUM_TASKS" in environ and not is_special


def _read_slurm(job: _Job) -> Launch:
    """Return the launch of srun, from the variables of Slurm."""
    names = _read_list(job, "SLURM_STEP_NODELIST", node_list.parse_nodes)
    counts = _read_list(job, "SLURM_STEP_TASKS_PER_NODE", node_list.parse_tasks)
    node = job.read_number("SLURM_NODEID")
    if len(counts) != len(names) or sum(counts) != job.size or node >= len(names):
        raise ClusterError(
            f"SLURM_STEP_NUM_TASKS={job.size}, SLURM_NODEID={node} and "
            "SLURM_STEP_TASKS_PER_NODE do not match the nodes of "
            f"SLURM_STEP_NODELIST ({len(names)}); start the ranks with srun"
        )
    name = f"Slurm {job.read_number('SLURM_JOB_ID', 'SLURM_JOBID')}.{job.read_number(*_SLURM_STEP)}"
    host = ports.LOOPBACK if len(names) == 1 else names[0]
    return job.make_launch(
        "srun",
        ports.join(host, ports.choose_rendezvous_port(name)),
        host=names[node],
        local_rank=job.read_number("SLURM_LOCALID"),
        local_size=counts[node],
        job=name,
    )


def _read_list(job: _Job, name: str, read: Callable[[str], list[Any]]) -> list[Any]:
    try:
        return read(job.read_text(name))
    except ValueError as e:
        raise ClusterError(f"{name}: {e}; start the ranks with srun") from None


def _read_kubernetes(job: _Job) -> Launch:
    """Return the launch of an Indexed Job."""
    name, dash, number = job.host_name.partition(".")[0].rpartition("-")
    rendezvous = job.coordinator_address
    if not rendezvous:
        service = job.read_text("RNN_SCALING_SERVICE")
        if not dash or number != str(job.rank):
            raise ClusterError(
                f"host name {job.host_name} must end with -{job.rank}, because "
                f"JOB_COMPLETION_INDEX={job.rank}; set completionMode: Indexed in the "
                "Job"
            )
        rendezvous = ports.join(f"{name}-0.{service}", _KUBERNETES_PORT)
    return job.make_launch(
        "Kubernetes", rendezvous, job=f"Kubernetes {name or rendezvous}"
    )


def _has_own(environ: Environment) -> bool:
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

    has_started: Callable[[Environment], bool]
    names: tuple[str, ...]
    read: Callable[[_Job], Launch]


_LAUNCHERS = (
    _Launcher(_has_own, ("RNN_SCALING_RANK", "RNN_SCALING_SIZE"), _read_environment),
    _Launcher(_has_tf_config, (), _read_tf_config),
    _Launcher(
        _has_open_mpi, ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), _read_open_mpi
    ),
    _Launcher(_is_slurm_step, ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), _read_slurm),
    _Launcher(
        _has_kubernetes, ("JOB_COMPLETION_INDEX", "RNN_SCALING_SIZE"), _read_kubernetes
    ),
)


def _read(job: _Job) -> Launch | None:
    for launcher in _LAUNCHERS:
        if not launcher.has_started(job.environ):
            continue
        if launcher.names:
            job.rank, job.size = job.read_place(*launcher.names)
            if job.size == 1:
                return None
        launch = launcher.read(job)
        return launch if launch.size > 1 else None
    return None
