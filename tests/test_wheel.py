"""The wheel: it contains every file of the packages, and works outside of a clone."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string

import pytest

import rnn_scaling
from tests.support.paths import ROOT
from tests.support.users_program import UsersFolder

pytest.importorskip(
    "setuptools",
    minversion="77",
    reason="setuptools is older than pyproject.toml asks for",
)
PACKAGES = ("models", "rnn_scaling")
LIBRARIES = sorted((ROOT / "models/extension").glob("kernels-*.so"))
BUILD = (
    "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
)


def run(installed, work, *words, operators="off"):
    """Run a command of an unpacked wheel in a folder; it must end well."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RNN_SCALING_OPERATORS": operators,
    }
    done = subprocess.run(
        [sys.executable, "-m", "rnn_scaling", *words],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def train(installed, work):
    """Return the stderr of a tiny run, and the resolved options in its record."""
    words = ["--num_units=8", "--num_batches=1", "--batch_size=2"]
    words += ["--num_warmup_batches=1", "--result_file=run.json"]
    done = run(installed, work, "train", *words, operators="")
    return done.stderr, json.loads((work / "run.json").read_text())["resolved"]


@pytest.fixture
def installed(wheel, tmp_path):
    """Unpack the wheel; return its folder."""
    wheel.extractall(tmp_path / "installed")
    return tmp_path / "installed"


@pytest.fixture
def work(tmp_path):
    """Return an empty folder in which commands run."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with the installed setuptools.

    It is built from a copy, because building writes files beside the sources.
    """
    clone, out = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.so.*", "tmp*")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=ignored)
    if not LIBRARIES:  # as if set-up had built one, for another TensorFlow
        (clone / "models/extension/kernels-0.0.0-0.so").write_text("")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, clone)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def names(wheel):
    return [name for name in wheel.namelist() if ".dist-info/" not in name]


def metadata(wheel, name):
    [text] = [
        wheel.read(each).decode()
        for each in wheel.namelist()
        if each.endswith(f".dist-info/{name}")
    ]
    return text


def test_every_file_of_the_packages_is_in_it(wheel):
    wanted = set()
    for path in itertools.chain(*((ROOT / name).rglob("*") for name in PACKAGES)):
        is_built = path.parent.name == "__pycache__" or ".so." in path.name
        if path.is_file() and not is_built:
            wanted.add(path.relative_to(ROOT).as_posix())
    if not LIBRARIES:
        wanted.add("models/extension/kernels-0.0.0-0.so")
    found = {name.replace("rnn_scaling/models/", "models/") for name in names(wheel)}
    assert found == wanted


def test_it_puts_one_package_on_the_path(wheel):
    """Expect that `import models` never imports this project's package."""
    assert {name.split("/")[0] for name in names(wheel)} == {"rnn_scaling"}


def test_it_says_what_it_is(wheel):
    told = message_from_string(metadata(wheel, "METADATA"))
    assert told["Version"] == rnn_scaling.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_all("Provides-Extra") == ["docs", "gpu", "profile", "test"]
    needed = [line for line in told.get_all("Requires-Dist") if "extra ==" not in line]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert len(needed) == len([line for line in lines if not line.startswith("#")])
    assert (
        "rnn-scaling = rnn_scaling.__main__:console"
        in metadata(wheel, "entry_points.txt").splitlines()
    )
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")


def test_what_was_unpacked_elsewhere_reports_and_writes_nothing_beside_itself(
    installed, work
):
    before = sorted(installed.rglob("*"))
    shutil.copytree(
        ROOT / "docs/results/threads",
        work / "records",
        ignore=shutil.ignore_patterns("*.png"),
    )
    run(installed, work, "report", "records", "--output=out")
    assert "<style>" in (work / "out/report.html").read_text()
    assert sorted(installed.rglob("*")) == before


def test_operators_built_here_need_no_newer_system_than_tensorflow_and_run_elsewhere(
    wheel, installed, work
):
    """Check that the wheel has no path of this machine and needs at most glibc 2.27."""
    text = metadata(wheel, "WHEEL")
    assert "Root-Is-Purelib: true\n" in text and "Tag: py3-none-any\n" in text
    if not LIBRARIES:
        pytest.skip("set-up has built no operators here")
    library = LIBRARIES[-1].read_bytes()
    versions = [
        tuple(map(int, found.split(b".")))
        for found in re.findall(rb"GLIBC_([0-9.]+)\0", library)
    ]
    assert max(versions) <= (2, 27)
    needed = re.findall(rb"[\w./-]*libtensorflow_framework[\w.]*", library)
    assert set(needed) == {b"libtensorflow_framework.so.2"}
    assert sys.prefix.encode() not in library
    _, resolved = train(installed, work)
    tested = [
        path.name.split(".")[-2]
        for path in (installed / "rnn_scaling/models/extension").glob("*.tested")
    ]
    assert [resolved["operators"]] == (tested or ["stock"]), (
        "the first use has tested what ran"
    )
    assert resolved["encoder_kernel"] == (
        "packed LSTM" if tested else "BlockLSTM + LSTMBlockCellGrad"
    )


def test_what_is_installed_leaves_a_users_program_its_environment(
    installed, work, tmp_path
):
    script = tmp_path / "rnn-scaling"
    users = UsersFolder(work)
    users.lookalike("numpy", "rnn_scaling")
    script.write_text(
        f"import sys; sys.path.append({str(installed)!r}); from rnn_scaling.__main__ import console; console()"
    )
    assert users.run([sys.executable, script], "sweep", "train.py") == {}
