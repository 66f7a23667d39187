"""What the system's files say about processors and limits, from their texts."""

from __future__ import annotations

import json

import pytest

from rnn_scaling import machine

CPUINFO = "".join(
    f"processor\t: {4 * socket + 2 * core + thread}\nmodel name\t: Processor  A\ncpu MHz\t\t: {1000 + core}.5\n"
    f"physical id\t: {socket}\ncore id\t\t: {core}\n\n"
    for socket in (0, 1)
    for core in (0, 1)
    for thread in (0, 1)
)


def test_cpuinfo():
    assert machine.cpu_topology(CPUINFO) == {"sockets": 2, "cores": 4, "threads": 8}
    assert machine.cpu_mhz(CPUINFO) == [1000.5, 1000.5, 1001.5, 1001.5] * 2
    assert machine.cpu_model(CPUINFO) == "Processor  A"


def test_cpuinfo_of_a_system_that_tells_less():
    text = "processor\t: 0\nBogoMIPS\t: 50.00\n\nprocessor\t: 1\n"  # ARM
    assert machine.cpu_topology(text) == {"sockets": None, "cores": None, "threads": 2}
    assert machine.cpu_mhz(text) == [] and machine.cpu_model(text) is None
    assert machine.cpu_topology("") == {"sockets": None, "cores": None, "threads": None}


def test_numa_nodes_in_the_order_of_their_numbers(tmp_path):
    for number, cores in ((0, "0-15"), (10, "160-175"), (2, "32-47")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    (tmp_path / "possible").write_text("0-10")
    assert machine.numa_nodes(str(tmp_path)) == ["0-15", "32-47", "160-175"]
    assert machine.numa_nodes(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "files,limit",
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        # A group above limits too.
        (
            {
                "proc/self/cgroup": "0::/jobs/mine\n",
                "sys/fs/cgroup/jobs/cpu.max": "200000 100000",
                "sys/fs/cgroup/jobs/mine/cpu.max": "400000 100000",
            },
            2.0,
        ),
        # Version 1; and a container, which sees its own limit at the root and the host's path.
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
    assert machine.cpu_limit(str(tmp_path)) == limit


def test_environment_is_json_and_keeps_its_fields():
    held = json.loads(json.dumps(machine.environment()))
    assert held.keys() >= {
        *("python", "packages", "platform", "cpu", "cpu_cores", "cpu_governor", "memory_bytes", "load_average"),
        *("gpus", "topology", "variables", "commit"),
        *("cuda", "cpu_topology", "cpu_mhz", "cpu_limit", "cpu_no_turbo", "cpu_boost", "huge_pages"),
    }
    assert held["cpu_topology"].keys() == {"sockets", "cores", "threads", "numa_nodes"}


def test_a_modified_tree_is_told_from_another(monkeypatch):
    said = {"rev-parse": "abc\n", "status": " M file\n", "diff": "one change"}
    monkeypatch.setattr(machine, "_command", lambda *words: next(said[w] for w in words if w in said))
    first = machine.environment()["commit"]
    said["diff"] = "another"
    second = machine.environment()["commit"]
    assert first["hash"] == second["hash"] == "abc" and first["modified"] and first["diff"] != second["diff"]
    said["status"] = ""
    assert machine.environment()["commit"] == {"hash": "abc", "modified": False, "diff": None}
