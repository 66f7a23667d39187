"""./run.sh links: flags, files and failures; the real workers once."""

import itertools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rnn_scaling.commands import import_log, links
from rnn_scaling.config import run_config as config
from rnn_scaling.config.run_config import choose_pool_sizes
from rnn_scaling.links import measuring, picture, plan, processes
from rnn_scaling.system.machine import peaks
from rnn_scaling.system.processes import process
from tests.links import fake_worker
from tests.support import forked
from tests.support.faults import jump_clock, wait_until
from tests.support.paths import ROOT
from tests.support.stand_in_forks import make_subprocess_stand_in

# Parameters in records of each preset.
PARAMETERS = {
    "small": 8_245_248,
    "large": 95_690_752,
    "gnmt_v2": 160_671_297,
    "transformer_base": 60_485_632,
    "transformer_big": 209_051_648,
}
FEW = [
    "--min_bytes=4",
    "--max_bytes=16k",
    "--passes=1",
    "--rounds=3",
    "--num_devices=2",
    "--device=cpu",
]


@pytest.fixture
def pictures(request):
    """Return whether pictures are drawn, which takes a second."""
    return getattr(request, "param", False)


@pytest.fixture
def call(pictures, tmp_path, monkeypatch, capsys):
    """Run the command with the fake worker; return status, stdout, lines of stderr."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        process, "subprocess", make_subprocess_stand_in(fake_worker=fake_worker.run)
    )
    if not pictures:
        monkeypatch.setattr(picture, "render", lambda found, kind: b"picture")

    def run(*words, **faults):
        (tmp_path / "faults.json").write_text(json.dumps(faults))
        worker = [sys.executable, "-m", "tests.links.fake_worker", str(tmp_path)]
        status = links.main([f"--out={tmp_path / 'out'}", *FEW, *words], worker)
        said = capsys.readouterr()
        return status, said.out, said.err.splitlines()

    return run


ONE = ("--measure=all_reduce", "--algorithms=pscpu")


def read_written(tmp_path):
    """Return what the command has written as JSON."""
    return json.loads((tmp_path / "out/links.json").read_text())


def read_kept_peaks(tmp_path):
    return peaks.read(tmp_path / "cache/rnn_scaling/peaks.json")


def list_errors(lines):
    return [line for line in lines if line.startswith("error: ")]


@pytest.mark.parametrize("pictures", [True], indirect=True)
def test_writes_every_file_and_reads_its_own_log_back(call, pictures, tmp_path, capsys):
    status, out, err = call("--passes=2")
    assert status == 0, err
    names = {"links.json", "links.md", "all_reduce.txt", "links.png", "links.svg"}
    files = tmp_path / "out"
    assert {*os.listdir(files)} == names
    tables = out[: out.index("## Not measured")]
    assert (files / "links.md").read_text().startswith(tables)
    assert (files / "links.png").read_bytes()[:4] == b"\x89PNG"
    assert ElementTree.parse(files / "links.svg").getroot().tag.endswith("svg")
    found = read_written(tmp_path)
    assert found["options"]["rounds"] == 3
    options = {"num_devices": 2, "device": "cpu"}
    trainer = config.resolve(options, num_gpus=0, num_cores=2)
    assert tuple(found["threads"].values()) == choose_pool_sizes(trainer, 2)
    reduces = [each for each in found["series"] if each["kind"] == "all_reduce"]
    algorithms = ["collective", "xring", "rechd", "pscpu", "hierarchical"]
    assert [each["name"] for each in reduces] == algorithms
    assert len(reduces[1]["points"][0]["seconds"]) == 6
    # The importer reads every number.
    assert import_log.main([f"{files}/all_reduce.txt", "--output=json"]) == 0
    [table] = json.loads(capsys.readouterr().out)["logs"][0]["tables"]
    rows = [dict(zip(table["columns"], row)) for row in table["rows"]]
    assert len(rows) == 5 * 7
    assert {(row["Ranks"], row["Wrong"]) for row in rows} == {(2, 0)}
    assert [row["Size (B)"] for row in rows[:7]] == [4, 16, 64, 256, 1024, 4096, 16384]
    speeds = [rows[6][name] for name in ("Time (us)", "algbw (GB/s)", "busbw (GB/s)")]
    assert speeds == [26.38, 0.62, 0.62]


def count_readings_after_hang(folder):
    """Return a counter to 3 of clock readings after a worker hangs.

    It may hang before its limit starts.
    """
    looks = itertools.count(1)
    return lambda: min(next(looks), 3) if (folder / "hangs").exists() else 0


def test_a_hanging_algorithm_is_named_and_ended_and_others_continue(
    call, tmp_path, monkeypatch
):
    jump_clock(monkeypatch, count_readings_after_hang(tmp_path))
    words = ("--measure=all_reduce", "--algorithms=xring,pscpu", "--timeout=600")
    status, out, err = call(*words, "--passes=2", xring="hang")
    assert status == 1
    [line] = list_errors(err)
    assert line.startswith("error: xring: ") and "--timeout=600 s" in line
    assert "## Failed or wrong" in out and "Not compared everywhere: xring" in out
    lines = (tmp_path / "log").read_text().splitlines()
    names, pids = zip(*(line.split() for line in lines))
    assert names == ("nothing", "xring", "pscpu", "pscpu", "nothing")
    assert not Path(f"/proc/{pids[1]}").exists()
    series = read_written(tmp_path)["series"]
    assert [each["name"] for each in series if each["points"]] == ["xring", "pscpu"]


def test_a_crash_and_an_error_are_reported_and_other_results_written(call, tmp_path):
    status, out, err = call(
        "--passes=1",
        xring="crash",
        rechd="error: no such device",
        memory="error: out of memory",
    )
    assert status == 1
    assert list_errors(err) == [
        "error: host memory: out of memory",
        "error: xring: ended by SIGABRT",
        "error: rechd: no such device",
    ]
    assert (tmp_path / "out/links.png").exists()
    assert "| pscpu |" in out.replace("  ", "")


def test_sums_that_were_not_compared_are_not_called_right(
    call, tmp_path, monkeypatch, capsys
):
    jump_clock(monkeypatch, count_readings_after_hang(tmp_path))
    assert "Wrong elements: n/a" in call(*ONE, "--timeout=600", pscpu="hang")[1]
    log = tmp_path / "out/all_reduce.txt"
    assert "validation: 0 " in log.read_text()
    assert "# Out of bounds values : N/A" in log.read_text()
    assert import_log.main([str(log)]) == 0
    assert "median of the iterations" in capsys.readouterr().out


def test_an_interruption_keeps_what_was_measured(call, monkeypatch, tmp_path):
    run = processes.run

    def interrupt(request, *rest):
        if request.get("algorithm") == "xring":
            raise KeyboardInterrupt
        return run(request, *rest)

    monkeypatch.setattr(processes, "run", interrupt)
    words = ("--measure=all_reduce", "--algorithms=pscpu,xring,rechd")
    status, out, err = call(*words)
    said = "interrupted: 2 of 4 measurements were made"
    assert (status, err[-1]) == (130, said)
    assert f"- {said}\n" in out
    found = read_written(tmp_path)
    assert [each["name"] for each in found["series"]] == ["pscpu"]
    assert found["interrupted"] == said


def test_wrong_sums_fail_the_command(call):
    status, out, err = call(*ONE, "--max_bytes=4", pscpu="wrong")
    assert status == 1
    assert "error: pscpu: 5 wrong elements at 4 B" in err
    assert "Wrong elements: 5" in out


def test_every_bad_flag_is_named_at_once(call):
    words = [
        "--foo",
        "--measure=disk",
        "--min_bytes=3",
        "--max_bytes=x",
        "--rounds=2",
        "--timeout=nan",
        "--step_factor=1",
        "--device=tpu",
    ]
    status, _, err = call(*words, "--algorithms=nix,xring#9")
    assert status == 2 and err == list_errors(err)
    for word in words:
        assert sum(word.split("=")[0] in line for line in err) == 1, word
    assert sum("--algorithms=" in line for line in err) == 2 and len(err) == 10


@pytest.mark.parametrize(
    "words, expected",
    [
        (
            ["--min_bytes=1M", "--max_bytes=4"],
            "--min_bytes=1M must be at most --max_bytes=4",
        ),
        (["--num_devices=1"], "too few for an all-reduce"),
        (["--num_devices=3", "--algorithms=rechd"], "power of two"),
    ],
)
def test_conflicts(call, words, expected):
    status, _, [line] = call(*words)
    assert status == 2
    assert line.startswith("error: --") and expected in line


def test_sizes_that_do_not_fit_into_memory_are_left_out_with_a_line(
    call, monkeypatch, tmp_path
):
    monkeypatch.setattr(plan.system, "find_available_memory_bytes", lambda: 2**30)
    status, out, _ = call(*ONE, "--max_bytes=256M")
    assert status == 0
    assert "16 MiB, 64 MiB, 256" in out
    assert read_written(tmp_path)["series"][0]["points"][-1]["num_bytes"] == 2**22


def test_a_folder_that_cannot_be_written_is_found_out_first(call, tmp_path):
    (tmp_path / "file").touch()
    out = f"--out={tmp_path}/file/x"
    status, _, err = call(out)
    assert status == 2
    assert err == [f"error: {out}: Not a directory; name another folder"]
    assert not (tmp_path / "log").exists()


def test_a_full_disk_loses_one_file_and_not_the_tables(call, tmp_path, monkeypatch):
    write = measuring.write_bytes

    def full(content, path):
        if str(path).endswith("links.json"):
            raise OSError(28, "No space left on device")
        write(content, path)

    monkeypatch.setattr(measuring, "write_bytes", full)
    status, out, err = call("--measure=memory")
    assert status == 1
    assert "## Memory and copies" in out
    assert (tmp_path / "out/links.md").exists()
    [line] = list_errors(err)
    assert f"{tmp_path}/out/links.json: No space left on device" in line


def read_worker_log(folder):
    """Return the words in the fake worker's log, or none if it does not exist yet."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def test_an_interruption_ends_the_worker_and_leaves_nothing(tmp_path):
    words = [f"--out={tmp_path}", *FEW, *ONE]
    (tmp_path / "faults.json").write_text('{"nothing": "hang"}')
    code = (
        "import sys; from rnn_scaling.system import entry; from rnn_scaling.commands import links;"
        "worker = [sys.executable, '-m', 'tests.links.fake_worker', sys.argv[1]];"
        "entry.leave(lambda: links.main(sys.argv[2:], worker))"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *words]
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    pipes = {"stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as process:
        wait_until(lambda: len(read_worker_log(tmp_path)) >= 2, "the worker hangs")
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err and "Traceback" not in err
    pid = read_worker_log(tmp_path)[1]
    assert not Path(f"/proc/{pid}").exists()
    assert not list((tmp_path / "temporary").iterdir())


SHORT = [
    "--max_bytes=4k",
    "--step_factor=32",
    "--passes=1",
    "--rounds=3",
    "--progress=false",
    "--num_devices=2",
    "--device=cpu",
]


def test_the_real_command_and_its_worker(tmp_path):
    words = [f"--out={tmp_path}", "--measure=memory", *SHORT]
    command = [sys.executable, "-m", "rnn_scaling", "links", *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "links.json").read_text())
    assert "host memory copy, 1 core" in {each["name"] for each in found["series"]}


def run_links_with_forks(words):
    """Run the command with forks of this process as workers.

    This process has loaded TensorFlow, so that the workers need not load it.
    """
    from rnn_scaling.links import worker

    process.subprocess = make_subprocess_stand_in(worker=worker.main)
    return links.main(words, [sys.executable, "-m", worker.__name__])


def test_the_real_workers(tmp_path):
    """TensorFlow's own all-reduce, each in its process."""
    words = [
        f"--out={tmp_path}",
        "--measure=all_reduce",
        "--algorithms=xring#2",
        *SHORT,
    ]
    assert forked.call(run_links_with_forks, words) == 0
    found = json.loads((tmp_path / "links.json").read_text())
    [series] = found["series"]
    assert series["name"] == "xring#2"
    first = series["points"][0]
    assert first["num_bytes"] == 4
    assert first["wrong"] == 0
    assert [p["wrong"] for p in found["nothing_exchanged"]["points"]] == [None] * 3
    sizes = {preset: 4 * count for preset, count in PARAMETERS.items()}
    assert found["gradient_bytes"] == sizes


def test_rates_of_products_are_printed_and_kept_for_runs(call, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "list_available_cores", lambda: [0, 1, 2])
    status, out, err = call("--measure=compute")
    assert status == 0, err
    rows = [line.split("|") for line in out.splitlines() if " core" in line]
    assert [cells[-2].split()[0] for cells in rows] == ["8", "16", "16", "32"]
    found = read_written(tmp_path)
    rates = [each["best_flops_per_second"] for each in found["products"]]
    assert rates == pytest.approx([8e9, 16e9, 16e9, 32e9])
    kept = read_kept_peaks(tmp_path)
    where = peaks.find_device_kind(found["environment"], "CPU", True, 1, "bfloat16")
    assert peaks.flops_per_second(kept, where, 1) == pytest.approx(16e9)
    assert peaks.flops_per_second(kept, where, 2) == pytest.approx(32e9)
    # Devices of two cores are others: they are kept beside these.
    words = ("--num_devices=1", "--cpu_cores_per_device=2")
    assert call("--measure=compute", *words)[0] == 0
    wide = peaks.find_device_kind(found["environment"], "CPU", True, 2, "bfloat16")
    kept = read_kept_peaks(tmp_path)
    assert len(kept) == 6
    assert peaks.flops_per_second(kept, wide, 1) == pytest.approx(16e9)


def test_rates_beside_other_load_are_not_kept(call, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "list_available_cores", lambda: [0, 1, 2, 3])
    # The fake worker reports other load only for three devices.
    assert call("--measure=compute", "--num_devices=3")[0] == 0
    assert {each.num_devices for each in read_kept_peaks(tmp_path)} == {1}


def test_a_cache_that_cannot_be_written_fails_nothing(call, tmp_path):
    (tmp_path / "cache").touch()
    status, out, err = call("--measure=compute")
    [warning] = [line for line in err if line.startswith("warning: ")]
    assert status == 0 and "## Matrix products" in out and "Not a directory" in warning


def test_products_that_failed_leave_what_was_kept(call, tmp_path):
    assert call("--measure=compute")[0] == 0
    before = read_kept_peaks(tmp_path)
    status, out, err = call("--measure=compute", compute="crash")
    assert status == 1
    assert sum(line.startswith("error: matrix products on ") for line in err) == 2
    assert read_kept_peaks(tmp_path) == before


@pytest.mark.parametrize("pictures", [True], indirect=True)
def test_transfers_without_a_copy_have_no_bandwidth_and_no_picture(
    call, pictures, tmp_path
):
    status, out, err = call("--measure=copies")
    assert status == 0, err
    assert {*os.listdir(tmp_path / "out")} == {"links.json", "links.md"}
    [row] = [line.split("|") for line in out.splitlines() if "cpu_copies" in line]
    assert row[3].strip() == row[7].strip() == "no copy"
