"""Facts about processors and limits, read from texts of the system's files."""

import pytest

from rnn_scaling.system.machine import environment, gpus, system
from rnn_scaling.system.machine.environment import read_environment
from rnn_scaling.system.machine.gpus import (
    GPU_QUERY,
    count_visible_gpus,
    list_gpu_ids,
    prepare_cuda_order,
    query_gpus,
    read_free_gpu_memory_mib,
)
from tests.support.python import python

CPUINFO = "".join(
    f"processor\t: {4 * socket + 2 * core + thread}\nmodel name\t: Processor  A\ncpu MHz\t\t: {1000 + core}.5\n"
    "flags\t\t: fpu avx2 avx avx512f_not fma\n"
    f"physical id\t: {socket}\ncore id\t\t: {core}\n\n"
    for socket in (0, 1)
    for core in (0, 1)
    for thread in (0, 1)
)


def test_cpuinfo():
    assert environment.read_cpu_topology(CPUINFO) == {
        "sockets": 2,
        "cores": 4,
        "threads": 8,
    }
    assert (
        system.list_cpuinfo_values(CPUINFO, "cpu MHz")
        == ["1000.5", "1000.5", "1001.5", "1001.5"] * 2
    )
    assert set(system.list_cpuinfo_values(CPUINFO, "model name")) == {"Processor  A"}
    assert environment.list_cpu_vector_units(CPUINFO) == ["avx", "avx2", "fma"]


def test_cpuinfo_of_a_system_that_tells_less():
    text = "processor\t: 0\nBogoMIPS\t: 50.00\n\nprocessor\t: 1\n"  # ARM
    assert environment.read_cpu_topology(text) == {
        "sockets": None,
        "cores": None,
        "threads": 2,
    }
    assert system.list_cpuinfo_values(text, "cpu MHz") == []
    assert environment.list_cpu_vector_units(text) is None
    assert environment.list_cpu_vector_units(f"{text}Features\t: fp asimd sve\n") == [
        "asimd",
        "sve",
    ]
    assert environment.read_cpu_topology("") == {
        "sockets": None,
        "cores": None,
        "threads": None,
    }


def test_numa_nodes_in_the_order_of_their_numbers(tmp_path):
    for number, cores in ((0, "0-15"), (10, "160-175"), (2, "32-47")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    (tmp_path / "possible").write_text("0-10")
    assert environment.list_numa_nodes(str(tmp_path)) == ["0-15", "32-47", "160-175"]
    assert environment.list_numa_nodes(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "files, limit",
    [
        ({}, None),
        # A parent group is limited, too.
        (
            {
                "proc/self/cgroup": "0::/jobs/mine\n",
                "sys/fs/cgroup/jobs/cpu.max": "200000 100000",
                "sys/fs/cgroup/jobs/mine/cpu.max": "400000 100000",
            },
            2.0,
        ),
        # Version 1, in a container, which finds its limit at the root although the path
        # in /proc belongs to the host.
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n0::/docker/abc\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_limit_of_control_groups(files, limit, tmp_path):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert environment.read_cpu_limit(str(tmp_path)) == limit


def test_a_modified_tree_is_told_from_another(monkeypatch):
    said = {"rev-parse": "abc\n", "status": " M file\n", "diff": "one change"}
    monkeypatch.setattr(
        environment,
        "run_command",
        lambda *words: next(said[w] for w in words if w in said),
    )
    first = read_environment()["commit"]
    said["diff"] = "another"
    second = read_environment()["commit"]
    assert first["hash"] == second["hash"] == "abc"
    assert first["modified"]
    assert first["diff"] != second["diff"]
    said["status"] = ""
    assert read_environment()["commit"] == {
        "hash": "abc",
        "modified": False,
        "diff": None,
    }
    monkeypatch.setattr(
        environment,
        "__file__",
        "/clone/.venv/lib/python3/site-packages/rnn_scaling/system/machine/environment.py",
    )
    assert (
        read_environment()["commit"] is None
    )  # an installed suite in a clone of another project


@pytest.fixture
def four_gpus(monkeypatch):
    """Fake a machine with /dev/nvidia0 to 3, whose nvidia-smi prints `said[0]`.

    nvidia-smi supports all queries except the clocks' reasons.
    """
    said = [
        "".join(
            f"{i}, A, GPU-{i}{i}, 500, {i}000 MiB, 1, 2, 00:{i}\n" for i in range(4)
        )
    ]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nodes = [gpus.Path(f"/dev/nvidia{name}") for name in (0, 1, 2, 3, "ctl")]
    monkeypatch.setattr(gpus.Path, "glob", lambda self, pattern: iter(nodes))
    monkeypatch.setattr(
        gpus, "run_command", lambda *words: None if "reasons" in words[1] else said[0]
    )
    return said


@pytest.mark.parametrize(
    "allowed, ids", [("3,1", ["3", "1"]), ("2, -1,0", ["2"]), ("x,...,x", []), ("", [])]
)
def test_visible_gpus_have_the_names_that_the_user_gave(
    four_gpus, monkeypatch, allowed, ids
):
    if allowed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    assert list_gpu_ids() == ids and count_visible_gpus() == len(ids)


@pytest.mark.parametrize(
    "allowed, uuids",
    [("3,1", ["GPU-33", "GPU-11"]), ("GPU-2,GPU-00", ["GPU-22", "GPU-00"])],
)
def test_gpus_are_the_visible_ones_in_tensorflows_order(
    four_gpus, monkeypatch, allowed, uuids
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    assert [gpu["uuid"] for gpu in query_gpus()] == uuids
    four_gpus[0] = "".join(f"{i}, GPU-{i}{i}, {i}000 MiB\n" for i in range(4))
    assert [read_free_gpu_memory_mib(gpu) for gpu in (0, 1)] == [
        1000.0 * int(uuid[-1]) for uuid in uuids
    ]


def test_a_driver_without_the_old_name_of_the_reasons_tells_all_the_same(
    four_gpus, monkeypatch
):
    def answer(program, query, *rest):
        if "throttle" in query:
            return None
        return ", ".join(["0", *query.partition("=")[2].split(",")[1:]]) + "\n"

    monkeypatch.setattr(gpus, "run_command", answer)
    [gpu] = query_gpus()
    assert list(gpu) == GPU_QUERY.split(",") and gpu["power.limit"] == "power.limit"
    assert gpu["clocks_throttle_reasons.active"] == "clocks_event_reasons.active"


@pytest.mark.parametrize("answer", [None, "", "0, GPU-00, [N/A]\n"])
def test_free_memory_that_nvidia_smi_does_not_tell_is_an_error_with_a_remedy(
    four_gpus, answer
):
    four_gpus[0] = answer
    with pytest.raises(ValueError, match="install nvidia-smi, or lower --num_devices"):
        read_free_gpu_memory_mib(0)


def test_cuda_counts_as_nvidia_smi_does_unless_the_user_chose(monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    prepare_cuda_order()
    assert gpus.os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    prepare_cuda_order()
    assert gpus.os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_the_peak_of_a_process_is_its_own(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    assert system.find_peak_process_bytes(f"{tmp_path}/") is None
    (tmp_path / "proc/self/status").write_text(
        "Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t    1024 kB\n"
    )
    assert system.find_peak_process_bytes(f"{tmp_path}/") == 2 * 2**20
    large = bytearray(200 * 2**20)  # must not count in the child's peak
    code = (
        "from rnn_scaling.system.machine import system; "
        "print(system.find_peak_process_bytes())"
    )
    assert len(large) > int(python(code).stdout) > 2**20
