"""Which rank of how many this process is: read from the variables that launchers set.

    RNN_SCALING_RANK, _SIZE, _MEETING     local-cluster, your own scripts
    TF_CONFIG                             Kubeflow, Ray, TensorFlow's own
    OMPI_COMM_WORLD_RANK, _SIZE           mpirun of Open MPI 4 and 5
    SLURM_PROCID, SLURM_STEP_NUM_TASKS    srun
    JOB_COMPLETION_INDEX                  an Indexed Job of Kubernetes, with RNN_SCALING_SIZE and RNN_SCALING_SERVICE
    RNN_SCALING_JOB_TOKEN                 with any of them: the secret of the job (tokens.py)

The first that is there counts: mpirun starts its own through srun, and all of them run inside Kubernetes.
"""

import dataclasses
import hashlib
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.cluster import node_list, ports, tokens
from rnn_scaling.cluster.failure import ClusterError

NETWORK = "RNN_SCALING_LINK"  # what a launcher that made the network says of it, for the record
JOBS = ("chief", "worker", "ps")  # of TF_CONFIG, in the order of ranks
RETRY_S = 0.2
KUBERNETES_PORT = 20000  # of the meeting: each pod has ports of its own
# Slurm numbers from here on what is no step: a batch script, an interactive shell, processes that came another way.
FIRST_SPECIAL_STEP = 0xFFFFFFF0
REMEDY = "give --coordinator_address=HOST:PORT, where rank 0 can be reached"


@dataclasses.dataclass(frozen=True)
class Launch:
    """A process among those that a launcher started."""

    rank: int
    size: int  # how many processes there are, two at least
    launcher: str
    meeting: str  # HOST:PORT where rank 0 waits for the others
    host: str  # of this process, as its launcher or its host calls it
    local_rank: int = 0  # its number among those on this host
    local_size: int = 1
    addresses: tuple[
        str, ...
    ] = ()  # HOST:PORT of every rank's engine; empty: each takes a port that is free
    job: str = ""  # what tells this job from others that meet at the same address
    # How many of them, the last ones, are parameter servers by the launcher's word; None: it does not say.
    num_ps: int | None = None
    token: str = dataclasses.field(
        default="", repr=False
    )  # secret of the job, which no text shows; "": none
    timeout_option: str = (
        "--cluster_timeout"  # the name by which messages call the time limit
    )

    @property
    def is_local(self) -> bool:
        """Whether no other machine takes part."""
        return ports.is_loopback(ports.split(self.meeting)[0])

    def engine_address(self, timeout_s: float = 60.0) -> str:
        """HOST:PORT at which this process's engine listens; ClusterError if no port is free, or no way leads to rank 0.

        Rank 0's host may have no address for up to `timeout_s`, as a pod that is being made.
        """
        if self.addresses:
            return self.addresses[self.rank]
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return ports.joined(
                    ports.host_for_others(self.meeting, self.rank), ports.free()
                )
            except OSError as e:
                if not isinstance(e, socket.gaierror) or time.monotonic() >= deadline:
                    raise ClusterError(
                        f"rank {self.rank}: {self.meeting}: {e.strerror or e}; {REMEDY}"
                    ) from None
            time.sleep(RETRY_S)


def place(environ: Mapping[str, str], host_name: str = "") -> tuple[int, int, str]:
    """(rank, size, launcher) of a process that needs no meeting, such as torchrun's; (0, 1, "") of one alone.

    Raises ClusterError if the variables are malformed or contradict each other.
    """
    if (
        "RANK" in environ and "WORLD_SIZE" in environ
    ):  # first: srun and mpirun start torchrun, never it them
        return *_Variables(environ).place("RANK", "WORLD_SIZE"), "torchrun"
    launch = _read(environ, ports.joined(ports.LOOPBACK, 1), host_name)
    return (launch.rank, launch.size, launch.launcher) if launch else (0, 1, "")


def of(
    environ: Mapping[str, str], coordinator_address: str = "", host_name: str = ""
) -> Launch | None:
    """Which process of a launcher's this is; None: one alone. Raises ClusterError as `place` does.

    `coordinator_address`: HOST:PORT of the meeting, instead of the one that the launcher tells.
    """
    if coordinator_address:
        _checked_address("--coordinator_address", coordinator_address)
    launch = _read(environ, coordinator_address, host_name)
    try:
        return launch and dataclasses.replace(launch, token=tokens.read(environ))
    except ValueError as e:
        raise ClusterError(str(e)) from None


def _read(
    environ: Mapping[str, str], coordinator_address: str, host_name: str
) -> Launch | None:
    for is_there, read in _LAUNCHERS:
        if is_there(environ):
            return read(_Variables(environ), coordinator_address, host_name)
    return None


class _Variables:
    """Variables of a launcher, each refused by name if it is not what it should be."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    def text(self, name: str, otherwise: str = "") -> str:
        value = self.environ.get(name, otherwise)
        if not value:
            raise ClusterError(
                f"{name} is not set, but other variables of its launcher are; set all or none"
            )
        return value

    def number(self, name: str, least: int = 0, otherwise: str = "") -> int:
        value = self.text(name, otherwise)
        if not (
            value.isascii()
            and value.isdecimal()
            and len(value) < 10
            and int(value) >= least
        ):
            raise ClusterError(
                f"{name}={value}: it must be a number of at least {least}; its launcher sets it"
            )
        return int(value)

    def place(
        self, rank_name: str, size_name: str, base: tuple[str, str] = ("", "")
    ) -> tuple[int, int]:
        """Rank and size; `base`: values where these are not set."""
        size = self.number(size_name, 1, base[1])
        rank = self.number(rank_name, 0, base[0])
        if rank >= size:
            raise ClusterError(
                f"{rank_name}={rank}: ranks of {size_name}={size} are 0 to {size - 1}; number them so"
            )
        return rank, size


def _checked_address(name: str, address: str) -> None:
    try:
        ports.split(address)
    except ValueError:
        rule = f"{name}={address}: it must be HOST:PORT"
        raise ClusterError(f"{rule}; such as 10.0.0.1:20000") from None


def _own(
    variables: _Variables, coordinator_address: str, host_name: str
) -> Launch | None:
    rank, size = variables.place("RNN_SCALING_RANK", "RNN_SCALING_SIZE")
    if size == 1:
        return None
    meeting = coordinator_address or variables.text("RNN_SCALING_MEETING")
    _checked_address("RNN_SCALING_MEETING", meeting)
    everyone_here = ports.is_loopback(ports.split(meeting)[0])
    here = (str(rank), str(size)) if everyone_here else ("0", "1")
    local_rank, local_size = variables.place(
        "RNN_SCALING_LOCAL_RANK", "RNN_SCALING_LOCAL_SIZE", here
    )
    return Launch(
        rank,
        size,
        launcher=variables.environ.get("RNN_SCALING_LAUNCHER") or "environment",
        meeting=meeting,
        host=variables.environ.get("RNN_SCALING_HOST")
        or (ports.LOOPBACK if everyone_here else host_name),
        local_rank=local_rank,
        local_size=local_size,
        job=variables.environ.get("RNN_SCALING_JOB") or f"meeting {meeting}",
    )


def _tf_config(
    variables: _Variables, coordinator_address: str, host_name: str
) -> Launch | None:
    cluster, task_type, task_index = _tf_tasks(variables.text("TF_CONFIG"))
    addresses = tuple(address for job in JOBS for address in cluster.get(job, []))
    rank = (
        sum(len(cluster.get(job, [])) for job in JOBS[: JOBS.index(task_type)])
        + task_index
    )
    if len(addresses) == 1:
        return None
    host, port = ports.split(addresses[0])
    taken = {
        ports.split(address)[1]
        for address in addresses
        if ports.split(address)[0] == host
    }
    meeting_port = next(
        (index for index in range(port + 1, 65536) if index not in taken), None
    )
    if meeting_port is None and not coordinator_address:
        raise ClusterError(
            f"TF_CONFIG: no port is left above {addresses[0]} for the meeting; {REMEDY}"
        )
    own_host = ports.split(addresses[rank])[0]
    same_host = [
        peer_rank
        for peer_rank, address in enumerate(addresses)
        if ports.split(address)[0] == own_host
    ]
    digest = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:16]
    return Launch(
        rank,
        len(addresses),
        launcher="TF_CONFIG",
        meeting=coordinator_address or ports.joined(host, meeting_port or 0),
        host=own_host,
        local_rank=same_host.index(rank),
        local_size=len(same_host),
        addresses=addresses,
        job=f"TF_CONFIG {digest}",
        num_ps=len(cluster.get("ps", [])),
    )


def _tf_tasks(text: str) -> tuple[dict[str, list[str]], str, int]:
    """The cluster's jobs, and the job and number of this task."""
    example = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
    try:
        content: Any = json.loads(text)
        cluster, task = content["cluster"], content["task"]
        task_type, task_index = task["type"], task["index"]
        if isinstance(task_index, str):  # as some launchers write it
            task_index = int(task_index)
        if type(task_index) is not int or not isinstance(task_type, str):
            raise TypeError
        listed = {job: list(cluster[job]) for job in cluster}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ClusterError(
            f"TF_CONFIG={text[:80]}: it must say the cluster and the task; such as {example}"
        ) from None
    for job, addresses in listed.items():
        if job not in JOBS:
            raise ClusterError(
                f"TF_CONFIG: job {job} is none of {', '.join(JOBS)}; leave it out"
            )
        for address in addresses:
            _checked_address(f"TF_CONFIG: {job}", str(address))
    everyone = [address for addresses in listed.values() for address in addresses]
    twice = next((address for address in everyone if everyone.count(address) > 1), None)
    if twice:
        raise ClusterError(
            f"TF_CONFIG: {twice} stands there twice; give each task its own address"
        )
    if not 0 <= task_index < len(listed.get(task_type, [])):
        raise ClusterError(
            f"TF_CONFIG: its cluster has no task {task_type} {task_index}; list its address there"
        )
    return listed, task_type, task_index


def _open_mpi(
    variables: _Variables, coordinator_address: str, host_name: str
) -> Launch | None:
    rank, size = variables.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    if size == 1:
        return None
    local_rank, local_size = variables.place(
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    )
    namespace = variables.environ.get("PMIX_NAMESPACE", "")
    if not namespace and not coordinator_address:
        raise ClusterError(
            f"PMIX_NAMESPACE is not set, which identifies the job of mpirun; {REMEDY}"
        )
    meeting = coordinator_address
    if not meeting:
        host = (
            ports.LOOPBACK
            if local_size == size
            else _mpirun_host(variables.environ, namespace)
        )
        meeting = ports.joined(host, ports.of_job(namespace))
    job = f"mpirun {namespace or coordinator_address}"
    return Launch(
        rank, size, "mpirun", meeting, host_name, local_rank, local_size, job=job
    )


def _mpirun_host(environ: Mapping[str, str], namespace: str) -> str:
    """Where mpirun itself runs, and rank 0 unless its hosts are all others; the meeting finds out which.

    Open MPI 4: OMPI_MCA_orte_hnp_uri=2062024704.0;tcp://10.0.0.5,172.17.0.1:41417
    Open MPI 5: PMIX_NAMESPACE=prterun-HOST-PID@1
    """
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
    address = re.search(
        r"tcp://([0-9.,]+):[0-9]+|tcp6://\[([0-9a-fA-F.:,]+)\]:[0-9]+", uri
    )
    listed = (address[1] or address[2]).split(",") if address else []
    hosts = [host for host in listed if host and not ports.is_loopback(host)]
    if hosts:
        return hosts[0]
    of_version_5 = re.fullmatch(
        r"(?:prterun|prte|mpirun)-([A-Za-z0-9_.-]+)-[0-9]+@[0-9]+", namespace
    )
    if of_version_5:
        return of_version_5[1]
    raise ClusterError(
        f"mpirun does not tell which host it runs on (PMIX_NAMESPACE={namespace}); {REMEDY}"
    )


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
    is_special = step.isdecimal() and len(step) < 20 and int(step) >= FIRST_SPECIAL_STEP
    return bool(step) and "SLURM_STEP_NUM_TASKS" in environ and not is_special


def _slurm(
    variables: _Variables, coordinator_address: str, host_name: str
) -> Launch | None:
    rank, size = variables.place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if size == 1:
        return None
    names = _listed(variables, "SLURM_STEP_NODELIST", node_list.nodes)
    counts = _listed(variables, "SLURM_STEP_TASKS_PER_NODE", node_list.tasks)
    node = variables.number("SLURM_NODEID")
    if len(counts) != len(names) or sum(counts) != size or node >= len(names):
        variables_read = f"SLURM_STEP_NUM_TASKS={size}, SLURM_NODEID={node} and SLURM_STEP_TASKS_PER_NODE"
        raise ClusterError(
            f"{variables_read} do not fit {len(names)} nodes of SLURM_STEP_NODELIST; start the ranks with srun"
        )
    job_number = variables.number(
        "SLURM_JOB_ID", 0, variables.environ.get("SLURM_JOBID", "")
    )
    job = f"Slurm {job_number}.{variables.number('SLURM_STEP_ID', 0, variables.environ.get('SLURM_STEPID', ''))}"
    host = ports.LOOPBACK if len(names) == 1 else names[0]
    return Launch(
        rank,
        size,
        launcher="srun",
        meeting=coordinator_address or ports.joined(host, ports.of_job(job)),
        host=names[node],
        local_rank=variables.number("SLURM_LOCALID"),
        local_size=counts[node],
        job=job,
    )


def _listed(
    variables: _Variables, name: str, read: Callable[[str], list[Any]]
) -> list[Any]:
    try:
        return read(variables.text(name))
    except ValueError as e:
        raise ClusterError(f"{name}: {e}; start the ranks with srun") from None


def _kubernetes(
    variables: _Variables, coordinator_address: str, host_name: str
) -> Launch | None:
    rank, size = variables.place("JOB_COMPLETION_INDEX", "RNN_SCALING_SIZE")
    if size == 1:
        return None
    job, dash, number = host_name.partition(".")[0].rpartition("-")
    meeting = coordinator_address
    if not meeting:
        service = variables.text("RNN_SCALING_SERVICE")
        if not dash or number != str(rank):
            contradiction = f"host name {host_name} does not end with -{rank}, as JOB_COMPLETION_INDEX={rank} says"
            raise ClusterError(f"{contradiction}; give the Job completionMode: Indexed")
        meeting = ports.joined(f"{job}-0.{service}", KUBERNETES_PORT)
    return Launch(
        rank, size, "Kubernetes", meeting, host_name, job=f"Kubernetes {job or meeting}"
    )


def _has_own(environ: Mapping[str, str]) -> bool:
    names = {"RNN_SCALING_RANK", "RNN_SCALING_MEETING"}
    return bool(names & environ.keys()) or (
        "RNN_SCALING_SIZE" in environ and not _has_kubernetes(environ)
    )


def _has_kubernetes(environ: Mapping[str, str]) -> bool:
    return "JOB_COMPLETION_INDEX" in environ and "RNN_SCALING_SIZE" in environ


_LAUNCHERS = (
    (_has_own, _own),
    (
        lambda environ: environ.get("TF_CONFIG", "").strip() not in ("", "{}"),
        _tf_config,
    ),
    (
        lambda environ: (
            "OMPI_COMM_WORLD_SIZE" in environ or "OMPI_COMM_WORLD_RANK" in environ
        ),
        _open_mpi,
    ),
    (_is_slurm_step, _slurm),
    (_has_kubernetes, _kubernetes),
)
