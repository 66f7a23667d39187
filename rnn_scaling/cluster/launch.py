"""Which rank of how many this process is: read from the variables that launchers set.

    RNN_SCALING_RANK, _SIZE, _MEETING     local-cluster, your own scripts
    TF_CONFIG                             Kubeflow, Ray, TensorFlow's own
    OMPI_COMM_WORLD_RANK, _SIZE           mpirun of Open MPI 4 and 5
    SLURM_PROCID, SLURM_STEP_NUM_TASKS    srun
    JOB_COMPLETION_INDEX                  an Indexed Job of Kubernetes, with
                                          RNN_SCALING_SIZE and RNN_SCALING_SERVICE
    RNN_SCALING_JOB_TOKEN                 with any of them: the job's secret (tokens.py)

The first launcher whose variables are set counts: mpirun starts its own processes
through srun, and all of them run inside Kubernetes.
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

# What a launcher that made the network says about it, for the record.
NETWORK = "RNN_SCALING_LINK"
JOBS = ("chief", "worker", "ps")  # of TF_CONFIG, in the order of ranks
RETRY_S = 0.2
KUBERNETES_PORT = 20000  # of the meeting: each pod has ports of its own
# Slurm numbers from here on what is not a step: a batch script, an interactive shell,
# processes that came another way.
FIRST_SPECIAL_STEP = 0xFFFFFFF0
REMEDY = "give --coordinator_address=HOST:PORT, where rank 0 can be reached"
_TF_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'  # noqa: E501
Environment = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A process among those that a launcher started.

    Attributes:
      rank: Its number.
      size: How many processes there are, at least two.
      launcher: The name of the launcher.
      meeting: HOST:PORT where rank 0 waits for the others.
      host: This process's host, as its launcher or its host calls it.
      local_rank: Its number among those on this host.
      local_size: How many are on this host.
      addresses: HOST:PORT of every rank's engine; empty if each takes a free port.
      job: What distinguishes this job from others that meet at the same address.
      num_ps: How many of them, the last ones, the launcher calls parameter servers;
        None if it does not say.
      token: The secret of the job, which no text shows; "" without one.
      timeout_option: The name by which messages call the time limit.
    """

    rank: int
    size: int
    launcher: str
    meeting: str
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
        return ports.is_loopback(ports.split(self.meeting)[0])

    def engine_address(self, timeout_s: float = 60.0) -> str:
        """Return HOST:PORT at which this process's engine listens.

        Args:
          timeout_s: How long rank 0's host may have no address, such as a pod that is
            being made.

        Raises:
          ClusterError: If no port is free, or rank 0 cannot be reached.
        """
        if self.addresses:
            return self.addresses[self.rank]
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                host = ports.host_for_others(self.meeting, self.rank)
                return ports.joined(host, ports.free())
            except OSError as e:
                if not isinstance(e, socket.gaierror) or time.monotonic() >= deadline:
                    raise ClusterError(
                        f"rank {self.rank}: {self.meeting}: {e.strerror or e}; {REMEDY}"
                    ) from None
            time.sleep(RETRY_S)


def place(environ: Environment, host_name: str = "") -> tuple[int, int, str]:
    """Return rank, size and launcher of a process that needs no meeting.

    torchrun is asked first: srun and mpirun start torchrun, never the reverse.

    Returns:
      (0, 1, "") for a single process.

    Raises:
      ClusterError: If the variables are malformed or contradict each other.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return *_Job(environ).place("RANK", "WORLD_SIZE"), "torchrun"
    launch = _read(_Job(environ, ports.joined(ports.LOOPBACK, 1), host_name))
    return (launch.rank, launch.size, launch.launcher) if launch else (0, 1, "")


def of(
    environ: Environment, coordinator_address: str = "", host_name: str = ""
) -> Launch | None:
    """Return which process of a launcher this is, or None for a single process.

    Args:
      environ: The variables of this process.
      coordinator_address: HOST:PORT of the meeting, which replaces the launcher's.
      host_name: The name of this host.

    Raises:
      ClusterError: If the variables are malformed or contradict each other.
    """
    if coordinator_address:
        _checked_address("--coordinator_address", coordinator_address)
    launch = _read(_Job(environ, coordinator_address, host_name))
    try:
        return launch and dataclasses.replace(launch, token=tokens.read(environ))
    except ValueError as e:
        raise ClusterError(str(e)) from None


@dataclasses.dataclass
class _Job:
    """The variables of a launcher; each is refused by name if it is malformed."""

    environ: Environment
    coordinator_address: str = ""
    host_name: str = ""
    rank: int = 0
    size: int = 1

    def get(self, *names: str) -> str:
        """Return the first of these variables that is set and not empty, or ""."""
        return next(filter(None, map(self.environ.get, names)), "") or ""

    def text(self, *names: str) -> str:
        if value := self.get(*names):
            return value
        raise ClusterError(
            f"{names[0]} is not set, but other variables of its launcher are; set all or none"
        )

    def number(self, *names: str, least: int = 0, otherwise: str = "") -> int:
        value = self.get(*names) or otherwise or self.text(*names)
        is_number = value.isascii() and value.isdecimal() and len(value) < 10
        if not is_number or int(value) < least:
            raise ClusterError(
                f"{names[0]}={value}: it must be a number of at least {least}; its launcher sets it"
            )
        return int(value)

    def place(
        self, rank_name: str, size_name: str, rank: str = "", size: str = ""
    ) -> tuple[int, int]:
        """Return a rank and the number of ranks; `rank` and `size` if not set."""
        count = self.number(size_name, least=1, otherwise=size)
        number = self.number(rank_name, otherwise=rank)
        if number >= count:
            raise ClusterError(
                f"{rank_name}={number}: ranks of {size_name}={count} are 0 to {count - 1}; number them so"
            )
        return number, count

    def launch(self, launcher: str, meeting: str, **fields: Any) -> Launch:
        """Return this process; --coordinator_address replaces the meeting."""
        meeting = self.coordinator_address or meeting
        host = fields.pop("host", self.host_name)
        return Launch(self.rank, self.size, launcher, meeting, host, **fields)


def _checked_address(name: str, address: str) -> None:
    try:
        ports.split(address)
    except ValueError:
        raise ClusterError(
            f"{name}={address}: it must be HOST:PORT; such as 10.0.0.1:20000"
        ) from None


def _own(job: _Job) -> Launch:
    meeting = job.coordinator_address or job.text("RNN_SCALING_MEETING")
    _checked_address("RNN_SCALING_MEETING", meeting)
    is_local = ports.is_loopback(ports.split(meeting)[0])
    local_rank, local_size = job.place(
        "RNN_SCALING_LOCAL_RANK",
        "RNN_SCALING_LOCAL_SIZE",
        str(job.rank if is_local else 0),
        str(job.size if is_local else 1),
    )
    host = ports.LOOPBACK if is_local else job.host_name
    return job.launch(
        job.get("RNN_SCALING_LAUNCHER") or "environment",
        meeting,
        host=job.get("RNN_SCALING_HOST") or host,
        local_rank=local_rank,
        local_size=local_size,
        job=job.get("RNN_SCALING_JOB") or f"meeting {meeting}",
    )


def _tf_config(job: _Job) -> Launch:
    cluster, task_type, task_index = _tf_tasks(job.text("TF_CONFIG"))
    tasks = [
        (task, index) for task in JOBS for index in range(len(cluster.get(task, [])))
    ]
    addresses = tuple(cluster[task][index] for task, index in tasks)
    job.rank = tasks.index((task_type, task_index))
    job.size = len(tasks)
    places = [ports.split(address) for address in addresses]
    host, port = places[0]
    free = set(range(port + 1, 65536)) - {used for at, used in places if at == host}
    if not free and not job.coordinator_address:
        raise ClusterError(
            f"TF_CONFIG: no port is left above {addresses[0]} for the meeting; {REMEDY}"
        )
    own_host = places[job.rank][0]
    same_host = [rank for rank, (at, _) in enumerate(places) if at == own_host]
    digest = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:16]
    return job.launch(
        "TF_CONFIG",
        ports.joined(host, min(free, default=0)),
        host=own_host,
        local_rank=same_host.index(job.rank),
        local_size=len(same_host),
        addresses=addresses,
        job=f"TF_CONFIG {digest}",
        num_ps=len(cluster.get("ps", [])),
    )


def _tf_tasks(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Return the cluster's jobs, and the job and the number of this task."""
    try:
        content: Any = json.loads(text)
        task_type = content["task"]["type"]
        index = content["task"]["index"]
        if isinstance(index, str):  # some launchers write it so
            index = int(index)
        if type(index) is not int or not isinstance(task_type, str):
            raise TypeError
        cluster = {job: list(listed) for job, listed in content["cluster"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ClusterError(
            f"TF_CONFIG={text[:80]}: it must say the cluster and the task; such as {_TF_EXAMPLE}"
        ) from None
    seen = set()
    for job, addresses in cluster.items():
        if job not in JOBS:
            raise ClusterError(
                f"TF_CONFIG: job {job} is none of {', '.join(JOBS)}; leave it out"
            )
        for address in addresses:
            _checked_address(f"TF_CONFIG: {job}", str(address))
            if address in seen:
                raise ClusterError(
                    f"TF_CONFIG: {address} stands there twice; give each task its own address"
                )
            seen.add(address)
    if not 0 <= index < len(cluster.get(task_type, [])):
        raise ClusterError(
            f"TF_CONFIG: its cluster has no task {task_type} {index}; list its address there"
        )
    return cluster, task_type, index


def _open_mpi(job: _Job) -> Launch:
    local_rank, local_size = job.place(
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    )
    namespace = job.get("PMIX_NAMESPACE")
    meeting = job.coordinator_address
    if not namespace and not meeting:
        raise ClusterError(
            f"PMIX_NAMESPACE is not set, which identifies the job of mpirun; {REMEDY}"
        )
    if not meeting:
        host = ports.LOOPBACK if local_size == job.size else _mpirun_host(job)
        meeting = ports.joined(host, ports.of_job(namespace))
    return job.launch(
        "mpirun",
        meeting,
        local_rank=local_rank,
        local_size=local_size,
        job=f"mpirun {namespace or meeting}",
    )


def _mpirun_host(job: _Job) -> str:
    """Return where mpirun runs, and rank 0 unless it is only on other hosts.

    The meeting finds out which of both is true.

    Open MPI 4: OMPI_MCA_orte_hnp_uri=2062024704.0;tcp://10.0.0.5,172.17.0.1:41417
    Open MPI 5: PMIX_NAMESPACE=prterun-HOST-PID@1
    """
    uri = job.get("OMPI_MCA_orte_hnp_uri")
    listed = re.search(
        r"tcp://([0-9.,]+):[0-9]+|tcp6://\[([0-9a-fA-F.:,]+)\]:[0-9]+", uri
    )
    for host in (listed[1] or listed[2]).split(",") if listed else ():
        if host and not ports.is_loopback(host):
            return host
    namespace = job.get("PMIX_NAMESPACE")
    of_version_5 = re.fullmatch(
        r"(?:prterun|prte|mpirun)-([A-Za-z0-9_.-]+)-[0-9]+@[0-9]+", namespace
    )
    if of_version_5:
        return of_version_5[1]
    raise ClusterError(
        f"mpirun does not tell which host it runs on (PMIX_NAMESPACE={namespace}); {REMEDY}"
    )


_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")


def _is_slurm_step(environ: Environment) -> bool:
    step = _Job(environ).get(*_SLURM_STEP)
    is_special = step.isdecimal() and len(step) < 20 and int(step) >= FIRST_SPECIAL_STEP
    return bool(step) and "SLURM_STEP_NUM_TASKS" in environ and not is_special


def _slurm(job: _Job) -> Launch:
    names = _listed(job, "SLURM_STEP_NODELIST", node_list.nodes)
    counts = _listed(job, "SLURM_STEP_TASKS_PER_NODE", node_list.tasks)
    node = job.number("SLURM_NODEID")
    if len(counts) != len(names) or sum(counts) != job.size or node >= len(names):
        read = f"SLURM_STEP_NUM_TASKS={job.size}, SLURM_NODEID={node} and SLURM_STEP_TASKS_PER_NODE"
        raise ClusterError(
            f"{read} do not fit {len(names)} nodes of SLURM_STEP_NODELIST; start the ranks with srun"
        )
    name = (
        f"Slurm {job.number('SLURM_JOB_ID', 'SLURM_JOBID')}.{job.number(*_SLURM_STEP)}"
    )
    host = ports.LOOPBACK if len(names) == 1 else names[0]
    return job.launch(
        "srun",
        ports.joined(host, ports.of_job(name)),
        host=names[node],
        local_rank=job.number("SLURM_LOCALID"),
        local_size=counts[node],
        job=name,
    )


def _listed(job: _Job, name: str, read: Callable[[str], list[Any]]) -> list[Any]:
    try:
        return read(job.text(name))
    except ValueError as e:
        raise ClusterError(f"{name}: {e}; start the ranks with srun") from None


def _kubernetes(job: _Job) -> Launch:
    name, dash, number = job.host_name.partition(".")[0].rpartition("-")
    meeting = job.coordinator_address
    if not meeting:
        service = job.text("RNN_SCALING_SERVICE")
        if not dash or number != str(job.rank):
            rule = f"does not end with -{job.rank}, as JOB_COMPLETION_INDEX={job.rank} says"
            raise ClusterError(
                f"host name {job.host_name} {rule}; give the Job completionMode: Indexed"
            )
        meeting = ports.joined(f"{name}-0.{service}", KUBERNETES_PORT)
    return job.launch("Kubernetes", meeting, job=f"Kubernetes {name or meeting}")


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
    """A launcher: how it is recognised, its variables, and what they mean.

    `names` are the variables of the rank and of the number of ranks; TF_CONFIG has
    none.
    """

    has_started: Callable[[Environment], bool]
    names: tuple[str, ...]
    read: Callable[[_Job], Launch]


_LAUNCHERS = (
    _Launcher(_has_own, ("RNN_SCALING_RANK", "RNN_SCALING_SIZE"), _own),
    _Launcher(_has_tf_config, (), _tf_config),
    _Launcher(
        _has_open_mpi, ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), _open_mpi
    ),
    _Launcher(_is_slurm_step, ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), _slurm),
    _Launcher(
        _has_kubernetes, ("JOB_COMPLETION_INDEX", "RNN_SCALING_SIZE"), _kubernetes
    ),
)


def _read(job: _Job) -> Launch | None:
    for launcher in _LAUNCHERS:
        if not launcher.has_started(job.environ):
            continue
        if launcher.names:
            job.rank, job.size = job.place(*launcher.names)
            if job.size == 1:
                return None
        launch = launcher.read(job)
        return launch if launch.size > 1 else None
    return None
