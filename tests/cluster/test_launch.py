"""The rank of this process, from the variables that each launcher sets."""

import json
import os
import socket
import subprocess

import pytest

from rnn_scaling.cluster import launch, node_list, ports, tokens
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import Launch
from tests.support.python import python

OWN = {
    "RNN_SCALING_RANK": "1",
    "RNN_SCALING_SIZE": "3",
    "RNN_SCALING_MEETING": "10.0.0.1:4000",
}
CLUSTER = {"ps": ["a:2223"], "worker": ["a:2224", "b:2222"], "chief": ["a:2222"]}
MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "2062024705",
    "OMPI_MCA_orte_hnp_uri": "2062024704.0;tcp://10.96.0.1,172.17.0.1:34911",
}
MPI_5 = {name: value for name, value in MPI.items() if name[:8] != "OMPI_MCA"} | {
    "PMIX_NAMESPACE": "prterun-n-1-42@1"
}
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[08-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "2",
    "RNN_SCALING_SIZE": "4",
    "RNN_SCALING_SERVICE": "ranks",
}


def tf_config(task_type="worker", index=1, cluster=CLUSTER):
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": cluster, "task": {"type": task_type, "index": index}}
        )
    }


def detect(environ, **arguments):
    return launch.detect_launch(environ, host_name="job-2", **arguments)


def test_a_single_process_has_no_launch():
    batch_script = {
        "SLURM_JOB_ID": "17",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "4",
        "SLURM_NODELIST": "n[1-2]",
    }
    shell = SLURM | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "4"}
    environments = [
        {},
        {"RNN_SCALING_DEBUG": "1"},
        {"RNN_SCALING_RANK": "0", "RNN_SCALING_SIZE": "1"},
        {"TF_CONFIG": "{}"},
        tf_config(index=0, cluster={"worker": ["a:1"]}),
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        batch_script,
        shell,
        {"JOB_COMPLETION_INDEX": "2"},
        {"JOB_COMPLETION_INDEX": "0", "RNN_SCALING_SIZE": "1"},
    ]
    assert [detect(environ) for environ in environments] == [None] * len(environments)
    assert detect({}, coordinator_address="a:1") is None


def find_address(host, job):
    return ports.join(host, ports.choose_rendezvous_port(job))


MORE = {
    "RNN_SCALING_HOST": "10.0.0.2",
    "RNN_SCALING_LAUNCHER": "netlab",
    "RNN_SCALING_LOCAL_RANK": "1",
    "RNN_SCALING_LOCAL_SIZE": "2",
    "RNN_SCALING_JOB": "j",
}
LOCAL = {"RNN_SCALING_MEETING": "127.0.0.1:4000"}
ONE_NODE = {
    "SLURM_STEP_NODELIST": "n08",
    "SLURM_STEP_TASKS_PER_NODE": "5",
    "SLURM_NODEID": "0",
}
MPI_JOB = "2062024705"
URI = "OMPI_MCA_orte_hnp_uri"
# Each row: the variables, launcher, address, host, local rank, local size, job.
LAUNCHED = [
    (OWN, "environment", "10.0.0.1:4000", "job-2", 0, 1, "rendezvous 10.0.0.1:4000"),
    (OWN | MORE, "netlab", "10.0.0.1:4000", "10.0.0.2", 1, 2, "j"),
    (
        OWN | LOCAL,
        "environment",
        "127.0.0.1:4000",
        "127.0.0.1",
        1,
        3,
        "rendezvous 127.0.0.1:4000",
    ),
    (
        MPI,
        "mpirun",
        find_address("10.96.0.1", MPI_JOB),
        "job-2",
        0,
        2,
        f"mpirun {MPI_JOB}",
    ),
    (
        MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
        "mpirun",
        find_address("127.0.0.1", MPI_JOB),
        "job-2",
        0,
        4,
        f"mpirun {MPI_JOB}",
    ),
    (
        MPI_5,
        "mpirun",
        find_address("n-1", "prterun-n-1-42@1"),
        "job-2",
        0,
        2,
        "mpirun prterun-n-1-42@1",
    ),
    (SLURM, "srun", find_address("n08", "Slurm 17.0"), "n09", 1, 2, "Slurm 17.0"),
    (
        SLURM | ONE_NODE,
        "srun",
        find_address("127.0.0.1", "Slurm 17.0"),
        "n08",
        1,
        5,
        "Slurm 17.0",
    ),
    (KUBERNETES, "Kubernetes", "job-0.ranks:20000", "job-2", 0, 1, "Kubernetes job"),
]


@pytest.mark.parametrize(
    "environ, launcher, address, host, local_rank, local_size, job", LAUNCHED
)
def test_each_launcher_is_read(
    environ, launcher, address, host, local_rank, local_size, job
):
    result = detect(environ)
    numbers = {"environment": (1, 3), "netlab": (1, 3), "srun": (3, 5)}
    rank, size = numbers.get(launcher, (2, 4))
    assert result == Launch(
        rank, size, launcher, address, host, local_rank, local_size, job_id=job
    )
    assert result.is_local == address.startswith("127.0.0.1")


def test_tf_config_numbers_chief_workers_and_servers_in_this_order():
    result = detect(tf_config())
    assert result.addresses == ("a:2222", "a:2224", "b:2222", "a:2223")
    # Other ranks use ports 2223 and 2224 of host a.
    numbers = (result.rank, result.size, result.local_rank, result.local_size)
    assert numbers == (2, 4, 0, 1) and result.rendezvous == "a:2225"
    assert result.host == "b"
    assert result.find_engine_address() == "b:2222"
    assert result.num_ps == 1
    tasks = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
    assert [detect(tf_config(*task)).rank for task in tasks] == [0, 1, 2, 3]
    last = detect(tf_config("ps", 0))
    assert last.local_rank == 2
    assert last.local_size == 3
    assert last.job_id == result.job_id
    assert detect(tf_config(cluster=CLUSTER | {"ps": ["a:9"]})).job_id != result.job_id


@pytest.mark.parametrize(
    "addresses, host",
    [
        ("tcp6://[fe80::1,2620::2]:43370", "fe80::1"),
        ("tcp://127.0.0.1,10.0.0.9:43370", "10.0.0.9"),
    ],
)
def test_the_host_of_mpirun_4(addresses, host):
    result = detect(MPI | {URI: f"1.0;{addresses}"})
    assert ports.split(result.rendezvous)[0] == host


@pytest.mark.parametrize(
    "environ", [MPI | {"PMIX_NAMESPACE": "1"}, SLURM | {"SLURM_STEP_ID": "1"}]
)
def test_each_job_has_another_rendezvous(environ):
    addresses = {row[2] for row in LAUNCHED}
    assert detect(environ).rendezvous not in addresses


@pytest.mark.parametrize("environ", [OWN, tf_config(), MPI, MPI_5, SLURM, KUBERNETES])
def test_coordinator_address_replaces_the_rendezvous(environ):
    assert detect(environ, coordinator_address="x:7").rendezvous == "x:7"
    with pytest.raises(
        ClusterError, match=r"--coordinator_address=x must be HOST:PORT, such as"
    ):
        detect(environ, coordinator_address="x")


WRONG = [
    (
        OWN | {"RNN_SCALING_RANK": "3"},
        "RNN_SCALING_RANK=3 must be from 0 to 2, because RNN_SCALING_SIZE=3",
    ),
    (OWN | {"RNN_SCALING_MEETING": "a:0"}, "RNN_SCALING_MEETING=a:0 must be HOST"),
    ({"RNN_SCALING_MEETING": "a:1"}, "RNN_SCALING_SIZE is not set, but"),
    ({"TF_CONFIG": "x"}, "must contain the cluster and the task, such as {"),
    (tf_config(index=2), "TF_CONFIG: its cluster has no task worker 2"),
    (
        tf_config(cluster={"evaluator": ["a:1"]}),
        "TF_CONFIG: job evaluator is not one of",
    ),
    (tf_config(cluster={"worker": ["a:1", "a:1"]}), "a:1 is listed twice"),
    ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK is not set"),
    (MPI | {"PMIX_NAMESPACE": ""}, "PMIX_NAMESPACE, which"),
    (MPI | {"OMPI_MCA_orte_hnp_uri": "x"}, "mpirun does not report which host"),
    (SLURM | {"SLURM_STEP_NODELIST": "n[08-09]"}, "do not match the nodes of SLURM"),
    (KUBERNETES | {"JOB_COMPLETION_INDEX": "1"}, "job-2 must end with -1"),
]


@pytest.mark.parametrize("environ, line", WRONG, ids=[line for _, line in WRONG])
def test_variables_that_contradict_each_other_are_refused_by_name(environ, line):
    with pytest.raises(ClusterError) as error:
        detect(environ)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text, names",
    [
        ("n1", ["n1"]),
        ("n[1-2,7,010-011]", ["n1", "n2", "n7", "n010", "n011"]),
        ("n[08-11]-ib", ["n08-ib", "n09-ib", "n10-ib", "n11-ib"]),
        ("r[0-1]n[1,3]", ["r0n1", "r0n3", "r1n1", "r1n3"]),
    ],
)
def test_lists_of_nodes(text, names):
    assert node_list.parse_nodes(text) == names


@pytest.mark.parametrize(
    "read, texts",
    [
        (node_list.parse_nodes, ["", ",", "n[", "n]", "n[a]", "n[3-1]", "n[[1]]"]),
        (node_list.parse_tasks, ["", "2(x)", "2,,1", "-1"]),
        (ports.split, ["", ":1", "a", "a:0", "a:65536", "::1:5", "[::1]", "a/:1"]),
    ],
    ids=["nodes", "tasks", "address"],
)
def test_a_malformed_list_or_address_is_refused(read, texts):
    for text in texts:
        with pytest.raises(ValueError):
            read(text)


def test_the_reachable_host():
    assert ports.find_reachable_host("127.0.0.1:2000", 1) == ports.LOOPBACK
    assert ports.find_reachable_host("localhost:2000", 0) == ports.LOOPBACK
    assert ports.find_reachable_host("a:2000", 0) == "a"
    with pytest.raises(OSError):
        ports.find_reachable_host("no.such.invalid:2000", 1)
    with pytest.raises(
        ClusterError,
        match="rank 1 cannot reach no.such.invalid:2000: .*; give --coordinator_address=",
    ):
        detect(OWN, coordinator_address="no.such.invalid:2000").find_engine_address(
            timeout_s=0.0
        )


def test_the_host_of_rank_0_may_get_its_address_later(monkeypatch):
    # The first ends the attempt, the second is tried again.
    answers = [OSError, socket.gaierror, "10.0.0.7"]

    def look_up(address, rank):
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer(1, "no way")

    monkeypatch.setattr(ports, "find_reachable_host", look_up)
    with pytest.raises(ClusterError, match="no way"):
        detect(OWN).find_engine_address()
    assert ports.split(detect(OWN).find_engine_address())[0] == "10.0.0.7"


def test_a_free_port_is_taken_by_nobody():
    port = ports.find_free()
    assert port in ports.ENGINE_PORTS
    result = detect(OWN | {"RNN_SCALING_MEETING": "127.0.0.1:4000"})
    assert ports.split(result.find_engine_address())[0] == "127.0.0.1"
    with pytest.raises(OSError, match="no port from 5 to 4 is free"):
        ports.find_free(range(5, 5))


def test_the_token_of_a_job_comes_from_a_variable_or_a_file_and_is_never_shown(
    tmp_path,
):
    secret = "0123456789abcdef"
    path = tmp_path / "token"
    path.write_text(f"{secret}\n")
    path.chmod(0o600)
    assert detect(OWN).token == ""
    for variables in ({tokens.VARIABLE: secret}, {tokens.FILE_VARIABLE: str(path)}):
        result = detect(OWN | variables)
        assert result.token == secret and secret not in repr(result)
    both = {tokens.VARIABLE: "f" * 16, tokens.FILE_VARIABLE: str(path)}
    assert detect(OWN | both).token == "f" * 16
    # A process without rendezvous needs no token.
    assert launch.detect_rank(OWN | {tokens.VARIABLE: "short"}, "here")


def test_a_token_that_can_be_guessed_or_read_by_all_is_refused_without_its_text(
    tmp_path,
):
    def refused(**variables):
        with pytest.raises(ClusterError) as error:
            detect(OWN | variables)
        assert "secret" not in str(error.value)
        return str(error.value)

    path = tmp_path / "token"
    for text in ("", "secret-too-short"[:15]):
        assert "16" in refused(RNN_SCALING_JOB_TOKEN=text)
        path.write_text(text)
        path.chmod(0o600)
        assert "16" in refused(RNN_SCALING_JOB_TOKEN_FILE=str(path))
    path.write_text("secret" * 9)
    path.chmod(0o644)
    assert "chmod 600" in refused(RNN_SCALING_JOB_TOKEN_FILE=str(path))
    assert "No such file" in refused(RNN_SCALING_JOB_TOKEN_FILE=f"{path}.none")
    assert "regular file" in refused(RNN_SCALING_JOB_TOKEN_FILE=str(tmp_path))
    assert "NUL" in refused(RNN_SCALING_JOB_TOKEN_FILE="a\0b")


def test_a_token_file_that_is_not_a_regular_file_keeps_no_rank_waiting(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    link = tmp_path / "link"
    link.symlink_to(fifo)
    paths = [str(fifo), str(link), "/dev/zero", "/dev/tty", "/dev/stdin"]
    code = f"""
from rnn_scaling.cluster import tokens
for path in {paths}:
    try:
        tokens.read_token({{tokens.FILE_VARIABLE: path}})
    except ValueError as error:
        print(error)
"""
    done = python(code, stdin=subprocess.PIPE)
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"RNN_SCALING_JOB_TOKEN_FILE={path}: ")


def test_a_token_file_behind_links_is_read(tmp_path):
    """Kubernetes shows a Secret as a link to a file in a linked folder."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data/token").write_text("secret" * 9)
    (tmp_path / "..data/token").chmod(0o400)
    (tmp_path / "token").symlink_to("..data/token")
    path = str(tmp_path / "token")
    assert tokens.read_token({tokens.FILE_VARIABLE: path}) == "secret" * 9


def test_torchrun_numbers_ranks_before_other_launchers():
    several = {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0"}
    assert launch.detect_rank({"RANK": "1"}) == (0, 1, "")
    assert launch.detect_rank(several) == (3, 4, "torchrun")
