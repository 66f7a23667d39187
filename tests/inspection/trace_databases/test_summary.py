"""Summaries of databases in both schemas equal numbers that were counted by hand."""

import json

import pytest

from rnn_scaling.commands import inspect
from rnn_scaling.inspection.trace_databases import layouts
from tests.inspection.trace_databases import databases
from tests.inspection.trace_databases.databases import (
    MS,
    change_database,
    make_database,
)


def read(file, *options, problems=()):
    """Return the JSON summary of a file, which has exactly these problems."""
    text, found = databases.look(str(file), "--format=json", *options)
    assert len(found) == len(problems), found
    for part, problem in zip(problems, found):
        assert part in problem
    return json.loads(text)


@pytest.fixture(params=["nsys", "nvprof"])
def database(request, tmp_path):
    file = tmp_path / f"{request.param}.sqlite"
    getattr(databases, request.param)(file)
    return file


@pytest.fixture
def nsys(tmp_path):
    databases.nsys(tmp_path / "nsys.sqlite")
    return tmp_path / "nsys.sqlite"


GEMM = "void gemm<float>(float*)"
# In ms: kernels 2-6, 16-20 and 18-22; copies 5-9 (1 ms under a kernel) and 30-32;
# a memset 34-35 in one, a copy between devices 24-25 in the other.
BY_HAND = {
    "nsys": {
        "busy": {"kernel_busy": 10, "copy_busy": 6, "overlap": 1, "exposed_copy": 5},
        "gaps": [
            (8, "pointwise", "copy DtoH"),
            (7, "copy HtoD", GEMM),
            (2, "copy DtoH", "memset"),
        ],
        "kernels": [(GEMM, 2, 8 * MS), ("pointwise", 1, 4 * MS)],
        "copies": [
            ("HtoD", "pinned", "device", 8_000_000, 2.0),
            ("DtoH", "device", "pageable", 1_000_000, 0.5),
        ],
        "versions": {
            "EXPORT_SCHEMA_VERSION": "3.15.1",
            "NSIGHT_SYSTEMS_VERSION": "2024.7.1",
        },
    },
    "nvprof": {
        "busy": {"kernel_busy": 10, "copy_busy": 7, "overlap": 1, "exposed_copy": 6},
        "gaps": [
            (7, "copy HtoD", "Eigen::internal::gemm"),
            (5, "copy PtoP", "copy DtoH"),
            (2, "pointwise", "copy PtoP"),
        ],
        "kernels": [("Eigen::internal::gemm", 2, 8 * MS), ("pointwise", 1, 4 * MS)],
        "copies": [
            ("HtoD", "pinned", "device", 8_000_000, 2.0),
            ("DtoH", "device", "pageable", 1_000_000, 0.5),
            ("PtoP", "device", "device", 2_000_000, 2.0),
        ],
        "versions": {"schema": "9"},
    },
}


def test_the_numbers_equal_a_count_by_hand(database):
    found = read(database)
    expected = BY_HAND[database.stem]
    [device] = found["devices"]
    busy = {name: device[f"{name}_ns"] // MS for name in expected["busy"]}
    assert busy == expected["busy"] and device["sum_ns"]["kernel"] == 12 * MS
    assert device["busy_ns"] == 16 * MS and device["model"] == "GeForce GTX 1070"
    gaps = [
        (gap["ns"] // MS, gap["before"], gap["after"]) for gap in device["largest_gaps"]
    ]
    assert gaps == expected["gaps"]
    assert device["gap_ns"] == sum(gap[0] for gap in gaps) * MS
    kernels = [tuple(row.values())[:3] for row in found["kernels"]]
    assert kernels == expected["kernels"]
    fields = ("kind", "source", "target", "bytes", "gb_per_s")
    copies = [tuple(row[field] for field in fields) for row in found["copies"]]
    assert copies == expected["copies"]
    assert found["span_ns"] == found["window_ns"]
    assert found["versions"] == expected["versions"]


def test_models_of_exports_until_2021(nsys):
    with change_database(nsys) as db:
        db.execute("DROP TABLE TARGET_INFO_GPU")
        db.execute("CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INTEGER, name TEXT)")
        db.execute("INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'Tesla V100')")
    assert read(nsys)["devices"][0]["model"] == "Tesla V100"


@pytest.mark.parametrize("by", ["seconds", "nanoseconds"])
def test_a_window_clips_what_straddles_its_edges(database, by):
    first = read(database)["span_ns"][0]
    window = ["--from=0.004", "--to=0.019"]
    if by == "nanoseconds":
        window = [f"--from={first + 4 * MS}ns", f"--to={first + 19 * MS}ns"]
    found = read(database, *window)
    [device] = found["devices"]
    # kernels 4-6, 16-19 and 18-19; copy 5-9
    assert device["sum_ns"]["kernel"] == 6 * MS and device["kernel_busy_ns"] == 5 * MS
    assert device["overlap_ns"] == 1 * MS and device["exposed_copy_ns"] == 3 * MS
    assert device["idle_ns"] == 7 * MS == device["gap_ns"]
    assert found["window_ns"] == [first + 4 * MS, first + 19 * MS]
    [copy] = found["copies"]
    assert copy["bytes"] == 8_000_000
    assert copy["ns"] == 4 * MS
    assert copy["gb_per_s"] == 2.0
    [cut] = read(database, "--from=0.005", "--to=0.006")["copies"]
    assert cut["ns"] == MS
    assert cut["whole_ns"] == 4 * MS
    assert cut["gb_per_s"] == 2.0


def test_a_window_without_device_work_has_a_note(nsys, capsys):
    assert inspect.main([str(nsys), "--from=0.0100", "--to=0.0110"]) == 0
    assert "no kernel, copy or memset" in capsys.readouterr().out


def test_a_device_that_does_nothing_in_the_window_is_idle(nsys):
    with change_database(nsys) as db:
        databases.kernel(db, 100 * MS, 101 * MS, device=1)
    found = read(nsys, "--from=0.002", "--to=0.012")
    first, second = found["devices"]
    assert first["busy_ns"] == 7 * MS
    assert first["idle_ns"] == 3 * MS
    assert second["busy_ns"] == 0
    assert second["idle_ns"] == 10 * MS


def test_devices_with_equal_numbers_in_two_processes_are_separate(tmp_path):
    with make_database(tmp_path / "db", databases.NSYS) as db:
        other = (2 << 56) | (99 << 24)
        databases.kernel(db, 10, 20, device=0)
        databases.kernel(db, 15, 30, device=0, pid=other)
        db.execute(
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, ?, ''), (1, 0, 99, '')",
            (databases.PID,),
        )
    found = read(tmp_path / "db")
    first, second = found["devices"]
    assert first["model"] == "GeForce GTX 1070"
    assert first["busy_ns"] == 10
    assert second["model"] == "Tesla M60"
    assert second["busy_ns"] == 15
    kernels = {(row["device"], row["ns"]) for row in found["kernels"]}
    assert kernels == {(0, 10), (1, 15)}


FAULTS = {
    "negative length": (50 * MS, 40 * MS),
    "text": ("soon", "later"),
    "too long": (0, 2**62),
    "no end": (130, None),
}


@pytest.mark.parametrize("times", FAULTS.values(), ids=FAULTS)
def test_wrong_rows_are_left_out_and_noted(nsys, times):
    whole = read(nsys)
    with change_database(nsys) as db:
        databases.kernel(db, *times)
    found = read(
        nsys, problems=["CUPTI_ACTIVITY_KIND_KERNEL: 1 of 4 rows were left out"]
    )
    for part in ("devices", "kernels", "copies", "span_ns"):
        assert found[part] == whole[part], part


def test_columns_of_other_versions(tmp_path):
    """An early export has no globalPid, no kinds of memory and no context."""
    with change_database(tmp_path / "db") as db:
        db.executescript(
            """CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, shortName INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, bytes INT, copyKind INT);
            INSERT INTO StringIds VALUES (1, 'gemm');
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 7, 1), (30, 40, 0, 7, 99);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (15, 35, 0, 40, 10);"""
        )
    found = read(tmp_path / "db")
    names = [row["name"] for row in found["kernels"]]
    assert names == ["(string 99 is missing)", "gemm"]
    [copy] = found["copies"]
    assert copy["kind"] == "PtoP"
    assert copy["source"] == ""
    assert copy["gb_per_s"] == 2.0
    assert found["devices"][0]["overlap_ns"] == 10


def test_a_table_without_times_is_noted(nsys):
    with change_database(nsys) as db:
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY RENAME COLUMN end TO finish")
    found = read(nsys, problems=["CUPTI_ACTIVITY_KIND_MEMCPY: has no column end"])
    assert found["copies"] == [] and len(found["kernels"]) == 2


@pytest.mark.parametrize(
    "mangled, name",
    [
        (
            "_ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorEEEvT_",
            "Eigen::internal::EigenMetaKernel",
        ),
        ("_ZN12_GLOBAL__N_13addEPf", "(anonymous)::add"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("_Zodd", "_Zodd"),
    ],
)
def test_short_names_of_mangled_kernels(mangled, name):
    assert layouts.shorten_name(mangled) == name


def test_a_copy_between_two_devices_is_communication(nsys, tmp_path):
    databases.nvprof(tmp_path / "nvprof.db")
    [device] = read(tmp_path / "nvprof.db")["devices"]
    assert device["communication"]["copies"] == 1
    assert device["communication"]["exposed_ns"] == MS
    with change_database(nsys) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 8")
    assert read(nsys)["devices"][0]["communication"]["copies"] == 0
    with change_database(nsys) as db:
        for name, device in (("srcDeviceId", 0), ("dstDeviceId", 1)):
            db.execute(
                f"ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN {name} INTEGER DEFAULT {device}"
            )
    found = read(nsys)
    assert found["devices"][0]["communication"]["copies"] == 2
    assert {copy["kind"] for copy in found["copies"]} == {"PtoP"}


@pytest.mark.parametrize(
    "name, communicates",
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("void ncclAllReduceKernel<2, 2>(KernelArgs<float>)", True),
        ("rcclDevKernel_Generic", True),
        ("void gemm<nccl>(float*)", False),
    ],
)
def test_kernels_that_communicate(name, communicates):
    assert layouts.is_communication(name) == communicates
