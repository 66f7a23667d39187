"""The set-up of run.sh, with a fake pip.

It happens once, from constraints.txt, within a time limit, and failures are reported.
"""

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rnn_scaling.system.entry import VERSION
from tests.support.faults import is_alive, wait_until
from tests.support.paths import ROOT

# A fake Python that notes the arguments of pip and of the suite, and creates virtual
# environments with itself as their Python.
PYTHON = """#!/bin/sh
case "$*" in
  -c*) exit 0 ;;
  --version) echo Python 3.12.0 ;;
  "-m pip --version") ;;
  *"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp --remove-destination "$0" "$last/bin/python" ;;
  "-m pip download"*) echo "$@" >>"$NOTES"; for word; do case $word in --dest=*) folder=${word#--dest=} ;; esac; done
    mkdir -p "$folder/horovod-0.28.1"; : >"$folder/horovod-0.28.1.tar.gz" ;;
  "-m pip install"*) echo "$@" >>"$NOTES"; echo Collecting everything; eval "$PIP" ;;
  "-m tarfile"*) ;;
  *) echo "$@" >>"$NOTES"; echo "$PWD|$1|$2" >"$NOTES.called" ;;
esac
"""


def execute(words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


@pytest.fixture
def run(tmp_path):
    """Return a function that runs run.sh with a fake pip.

    It returns the completed process with an additional attribute `notes`, the list of
    calls of Python.
    """
    python, notes = tmp_path / "python", tmp_path / "notes"
    python.write_text(PYTHON)
    python.chmod(0o755)
    always = {
        "PYTHON": str(python),
        "VENV": str(tmp_path / "venv"),
        "NOTES": str(notes),
    }

    def run(*words, pip="true", **variables):
        notes.write_text("")
        environment = {**os.environ, **always, "PIP": pip, **variables}
        done = execute([ROOT / "run.sh", *words], env=environment)
        done.notes = notes.read_text().splitlines()
        return done

    run.always = always
    return run


def test_what_was_installed_is_not_installed_again(run, tmp_path):
    first = run("setup")
    assert first.returncode == 0
    assert first.stderr.startswith(f"setting up {tmp_path}/venv with Python 3.12.0 (")
    line, compiled, checker, _ = first.notes
    assert compiled == f"-m compileall -qq -j0 {tmp_path}/venv/lib", (
        "nobody else does where PYTHONDONTWRITEBYTECODE is set"
    )
    assert "-r requirements.txt -r requirements-dev.txt" in line
    assert "--no-deps -r requirements-mlperf.txt" in checker
    again = run("setup")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert again.notes == []


def test_of_many_that_start_at_once_one_sets_up(run, tmp_path):
    """Start several processes at once, like mpirun and srun.

    After the set-up, each of them continues without the lock.
    """
    slow = f"[ -e {tmp_path}/installing ] && exit 7; touch {tmp_path}/installing; sleep 0.5; rm {tmp_path}/installing"
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda _: run("train", pip=slow), range(4)))
    assert [done.returncode for done in ended] == [0] * 4
    assert sum("setting up" in done.stderr for done in ended) == 1


def test_the_site_has_packages_of_its_own(run, tmp_path):
    notes = run("docs").notes
    assert sum("-r requirements-docs.txt" in line for line in notes) == 1
    assert notes[-1] == "-m mkdocs build --strict --quiet"
    assert run("docs", "serve").notes == ["-m mkdocs serve"], (
        "what was installed is not installed again"
    )


@pytest.mark.parametrize("words", [["netlab", "--workers=2"], ["sweeep"], ["--help"]])
def test_what_needs_no_environment_sets_none_up(run, tmp_path, words):
    done = run(*words)
    assert done.returncode == (0 if words == ["--help"] else 2)
    assert done.notes == []
    assert not (tmp_path / "venv").exists()


def test_a_version_is_one_line_and_a_misspelled_command_has_a_hint(run):
    version = run("--version")
    assert (version.returncode, version.stdout) == (0, f"rnn_scaling {VERSION}\n")
    misspelled = run("trian")
    assert misspelled.returncode == 2 and "train?" in misspelled.stderr
    unknown = run("xyzzy")
    assert unknown.returncode == 2 and "--help" in unknown.stderr
    assert version.notes == misspelled.notes == unknown.notes == []


def test_only_the_tab_profile_brings_its_packages(run):
    flag = "--profile=true"
    assert "requirements-profile.txt" not in "".join(
        run("tensorboard", "--port=0").notes
    )
    installed, compiled, started = run("tensorboard", "--port=0", flag).notes
    assert compiled.startswith("-m compileall ")
    assert installed.endswith("-c constraints.txt -r requirements-profile.txt")
    assert started.endswith(f"{ROOT}/run.sh rnn_scaling tensorboard --port=0 {flag}")
    [again] = run("tensorboard", flag).notes
    assert again.endswith(f"{ROOT}/run.sh rnn_scaling tensorboard {flag}")


def test_without_a_network_it_says_what_can_be_done(run):
    failing = "echo ERROR: no such host; exit 1"
    done = run("setup", pip=failing)
    assert done.returncode == 1 and "\nERROR: no such host\nerror: " in done.stderr
    assert "PIP_INDEX_URL" in done.stderr and "set-up.log" in done.stderr
    assert len(run("setup").notes) == 4, "what failed is tried again"
    done = run("tensorboard", "--profile", pip=failing)
    assert done.returncode == 1 and len(done.notes) == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: without --profile")
    assert "./run.sh tensorboard" in last


def test_set_up_has_a_limit(run):
    done = run("setup", pip="exec sleep 50", SETUP_TIMEOUT="1")
    assert done.returncode == 1 and "took longer than SETUP_TIMEOUT=1" in done.stderr
    done = run("setup", SETUP_TIMEOUT="1h")
    assert done.returncode == 2 and done.notes == []
    assert done.stderr.startswith("error: SETUP_TIMEOUT=1h must be a")


AS_NOBODY = (
    []
    if os.geteuid()
    else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
)
COMPILERS = ("cmake", "g++", "make")
# Programs that run.sh and the Python above call.
USED = "bash cat cksum cp cut dirname env flock grep mkdir mv nproc rm sed sh sleep timeout"


def make_path(folder, *names):
    """Return a PATH with the programs that run.sh needs.

    Programs with these `names` are added; they do nothing.
    """
    folder.mkdir(exist_ok=True)
    for name in USED.split():
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name))
    for name in names:
        (folder / name).symlink_to(shutil.which("true"))
    return str(folder)


def test_horovod_is_built_once_with_what_is_there(run, tmp_path):
    run("setup")
    wanted = (
        'echo "$CXX with $HOROVOD_WITH_MPI, without $HOROVOD_WITHOUT_MPI" >>"$NOTES"'
    )
    done = run("setup-horovod", PATH=make_path(tmp_path / "bin", "make"))
    assert (done.returncode, done.notes) == (1, [])
    assert done.stderr.startswith("error: building Horovod needs cmake g++;")
    gloo = make_path(tmp_path / "bin", "cmake", "g++")
    done = run("setup-horovod", pip=wanted, PATH=gloo)
    downloaded, installed, compiler, compiled = done.notes
    assert downloaded.endswith(" horovod==0.28.1")
    assert compiled.startswith("-m compileall ")
    assert installed.endswith("-r requirements-horovod.txt")
    assert compiler == f"{ROOT}/tools/horovod-cxx with , without 1"
    assert "install libopenmpi-dev openmpi-bin" in done.stderr
    assert "with Gloo alone into" in done.stderr
    assert not (tmp_path / "venv/horovod-build").exists()
    assert run("setup-horovod", PATH=gloo).notes == [], (
        "what was built is not built again"
    )


def test_a_build_of_horovod_goes_on_where_it_stopped(run, tmp_path):
    run("setup")
    built = tmp_path / "venv/horovod-build/horovod-0.28.1/built"
    gloo = make_path(tmp_path / "bin", *COMPILERS)
    failing = f"echo half >{built}; echo ERROR: no compiler today; exit 1"
    done = run("setup-horovod", pip=failing, PATH=gloo)
    assert done.returncode == 1 and "\nERROR: no compiler today\nerror: " in done.stderr
    done = run("setup-horovod", pip=f"cat {built} >>$NOTES; exit 1", PATH=gloo)
    assert [line.split()[-1] for line in done.notes] == [
        "requirements-horovod.txt",
        "half",
    ], "it is not fetched again"
    mpi = make_path(tmp_path / "bin", "mpicxx")
    done = run(
        "setup-horovod",
        pip=f'test -e {built} || echo "with $HOROVOD_WITH_MPI" >>$NOTES',
        PATH=mpi,
    )
    assert done.returncode == 0 and done.notes[2] == "with 1", (
        "what was built otherwise is of no use"
    )


@pytest.mark.parametrize("ended", ["killed", "late"])
def test_compilers_end_with_the_set_up(run, tmp_path, ended):
    run("setup")
    number = tmp_path / "number"
    environment = {
        **os.environ,
        **run.always,
        "SETUP_TIMEOUT": "100" if ended == "killed" else "2",
        "PATH": make_path(tmp_path / "bin", *COMPILERS),
        "PIP": f"sleep 100 & echo $! >{number}.new; mv {number}.new {number}; wait",
    }
    command = [ROOT / "run.sh", "setup-horovod"]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(number.exists, "a compiler")
        if ended == "killed":
            process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if ended == "killed" else 1)
    assert ("interrupted; " if ended == "killed" else "SETUP_TIMEOUT=2 ") in said
    wait_until(lambda: not is_alive(int(number.read_text())), "the compiler's end")


def test_each_framework_has_an_environment_of_its_own_once_it_is_asked_for(
    run, tmp_path
):
    run("setup")
    done = run("setup-frameworks", "torch", "tesnorflow")
    assert done.returncode == 2 and done.notes == []
    assert done.stderr.startswith("error: setup-frameworks ")
    done = run("setup-frameworks", "torch", "jax")
    assert done.returncode == 0, done.stderr
    installed = [line for line in done.notes if line.startswith("-m pip install")]
    assert [line.split(" -c ")[1] for line in installed] == [
        f"constraints.txt -r requirements/{name}.txt" for name in ("torch", "jax")
    ]
    assert (tmp_path / "venv-torch/bin/python").exists()
    assert (tmp_path / "venv-jax/.installed").exists()
    assert run("setup-frameworks", "jax", "torch").notes == [], (
        "what was installed is not installed again"
    )
    done = run("setup-frameworks", pip="echo ERROR: no keras today; exit 1")
    assert done.returncode == 1
    assert "installing requirements/keras.txt failed" in done.stderr
    assert len(done.notes) == 1


def test_horovods_compiler_leaves_out_what_newer_tensorflow_breaks(tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\necho "$*"\n')
    compiler.chmod(0o755)

    version = "-DTENSORFLOW_VERSION=2021000000"

    def compiles(file):
        words = [ROOT / "tools/horovod-cxx", version, "-c", file]
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return execute(words, env=environment, check=True).stdout.strip()

    assert compiles("/x/mpi_ops.cc") == f"{version} -c /x/mpi_ops.cc"
    changed = "-UTENSORFLOW_VERSION -DTENSORFLOW_VERSION=0"
    assert compiles("/x/xla_mpi_ops.cc").endswith(changed)


@pytest.mark.parametrize(
    "folder, typed, pasted",
    [
        ("", "bash run.sh", "./run.sh"),
        ("my runs", "../suite/run.sh", "../suite/run.sh"),
        ("my runs", "'{root}/run.sh'", "{root}/run.sh"),
    ],
)
def test_paths_and_commands_to_paste_are_those_of_the_caller(
    run, tmp_path, folder, typed, pasted
):
    run("setup")
    root = tmp_path / "the suite" if "{root}" in typed else tmp_path / "suite"
    root.symlink_to(ROOT)
    here = tmp_path / folder if folder else root
    here.mkdir(exist_ok=True)
    command = ["bash", "-c", f"{typed.format(root=root)} report a/b"]
    execute(command, cwd=here, env={**os.environ, **run.always}, check=True)
    place, path, program = (tmp_path / "notes.called").read_text().strip().split("|")
    assert os.path.realpath(place) == os.path.realpath(here)
    assert program == pasted.format(root=str(root).replace(" ", "\\ "))
    assert os.path.realpath(path) == str(START)


def test_an_environment_whose_python_is_gone_is_made_anew(run, tmp_path):
    run("setup")
    python = tmp_path / "venv/bin/python"
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    done = run("setup")
    assert done.returncode == 0 and "-m pip install" in done.notes[0], done.stderr


@pytest.mark.parametrize(
    "case, reason",
    [
        ("gone", "No such file"),
        ("refused", "Permission denied"),
        ("other", "packages"),
        ("none", "not exist"),
    ],
)
def test_an_environment_that_is_anothers_is_told_with_a_remedy(run, case, reason):
    """Use an environment that belongs to root, to another user, or is read-only."""
    run("setup")
    with tempfile.TemporaryDirectory() as folder:
        clone, mine = Path(folder, "clone"), Path(folder, "mine")
        for path in (clone / "rnn_scaling", clone / "requirements", mine):
            path.mkdir(parents=True)
        for name in ("run.sh", "rnn_scaling/__main__.py", "constraints.txt"):
            shutil.copy(ROOT / name, clone / name)
        for path in ROOT.glob("requirements*.txt"):
            shutil.copy(path, clone)
        python = clone / ".venv/bin/python"
        if case != "none":
            python.parent.mkdir(parents=True)
            shutil.copy(run.always["PYTHON"], python)
            stamp = "of another version" if case == "other" else ""
            (clone / ".venv/.installed").write_text(stamp)
        if case == "gone":
            python.unlink()
            python.symlink_to(clone / "gone")
        if case == "refused":
            python.chmod(0o600)
        shutil.copy(run.always["PYTHON"], mine / "python")
        read_only = (Path(folder), clone, clone / "rnn_scaling")
        for path in (*read_only, *clone.rglob(".venv/**")):
            path.chmod(0o555)
        mine.chmod(0o777)
        environment = {
            **os.environ,
            "PIP": "true",
            "NOTES": str(mine / "notes"),
            "PYTHON": str(mine / "python"),
        }
        environment.pop("VENV", None)
        command = [*AS_NOBODY, clone / "run.sh", "setup"]
        done = execute(command, env=environment)
        Path(folder).chmod(0o755)
        assert done.returncode == 1, done.stderr
        assert "VENV=" in done.stderr and "python3-venv" not in done.stderr
        assert reason in done.stderr
        remedy = {**environment, "VENV": str(mine / "venv")}
        assert execute(command, env=remedy).returncode == 0, "the remedy works"


@pytest.fixture
def kernels(run, tmp_path):
    """Return a function that runs run.sh in a small checkout.

    It returns the lines of stderr and the builds that Python was called for. Its
    attribute `folder` is models/extension of the checkout, and `path` has the programs.
    """
    suite = tmp_path / "suite"
    extension = suite / "models/extension"
    without_libraries = shutil.ignore_patterns("*.so*")
    shutil.copytree(ROOT / "models/extension", extension, ignore=without_libraries)
    for name in ("run.sh", "constraints.txt", "rnn_scaling/commands/table.py"):
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, suite / name)
    for path in ROOT.glob("requirements*.txt"):
        shutil.copy(path, suite)
    bin = Path(make_path(tmp_path / "path", "cc"))

    def kernels(*words, path=str(bin), **variables):
        Path(run.always["NOTES"]).write_text("")
        environment = {
            **os.environ,
            **run.always,
            "PIP": "true",
            "PATH": path,
            **variables,
        }
        environment["RNN_SCALING_OPERATORS"] = variables.get("SWITCH", "")
        done = execute([suite / "run.sh", *(words or ("setup",))], env=environment)
        assert done.returncode == 0, done.stderr
        notes = Path(run.always["NOTES"]).read_text().splitlines()
        lines = done.stderr.splitlines()
        says = [line for line in lines if line.startswith("faster CPU kernels: ")]
        return says, [line for line in notes if "extension" in line]

    kernels.folder = extension
    kernels.path = bin
    return kernels


START = ROOT / "rnn_scaling/system/processes/start.py"
BUILDS = ["-m rnn_scaling.models.extension.build"]
on_x86 = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the operators are for x86-64"
)


@on_x86
def test_operators_are_built_once_and_again_when_what_they_depend_on_changes(
    kernels, tmp_path
):
    assert kernels() == ([], BUILDS) and kernels() == ([], [])
    assert kernels("report") == ([], []), "any command would"
    with open(kernels.folder / "lstm.h", "a") as file:
        file.write("/* new */\n")
    assert kernels()[1] == BUILDS and kernels()[1] == []
    other = tmp_path / "other/cc"
    other.parent.mkdir()
    other.symlink_to(shutil.which("true"))
    assert kernels(CC=f"{other} -m64")[1] == BUILDS
    (kernels.folder / "kernels-1-0.so").write_text("as if it was built")
    assert kernels()[1] == BUILDS and kernels()[1] == []
    (kernels.folder / "kernels-1-0.so").write_text("as if it was")
    assert kernels()[1] == BUILDS, "a library that was cut short is built again"
    assert kernels()[1] == []
    (kernels.folder / "kernels-1-0.so").unlink()
    assert kernels()[1] == BUILDS, "what is gone is built again"


@on_x86
@pytest.mark.parametrize("kind", ["not UTF-8", "fifo", "folder"])
def test_a_stamp_of_the_set_up_that_is_something_else(kernels, tmp_path, kind):
    """Check the operators again without hanging; one line names the remedy."""
    assert kernels() == ([], BUILDS)
    [stamp] = (tmp_path / "venv").glob(".kernels-*")
    stamp.unlink()
    if kind == "fifo":
        os.mkfifo(stamp)
    elif kind == "folder":
        stamp.mkdir()
    else:
        stamp.write_bytes(b"\xff\0\n")
    says, notes = kernels()
    assert notes == BUILDS
    if kind in ("fifo", "folder"):
        [line] = says
        assert str(stamp) in line and "remove it" in line
    else:
        assert says == [] and kernels() == ([], [])


@on_x86
def test_a_library_that_is_a_fifo_hangs_nothing(kernels):
    os.mkfifo(kernels.folder / "kernels-1-0.so")
    assert kernels()[1] == BUILDS and kernels()[1] == []


@on_x86
def test_operators_that_nobody_wants_are_not_built(kernels):
    assert kernels(SWITCH="off") == ([], [])
    assert kernels("docs") == ([], [])
    assert kernels()[1] == BUILDS


@on_x86
def test_without_a_compiler_one_line_names_the_remedy_once(kernels):
    (kernels.path / "cc").unlink()
    (line,), notes = kernels()
    assert "apt-get install gcc" in line and notes == []
    assert kernels() == ([], [])
    (kernels.path / "cc").symlink_to(shutil.which("true"))
    assert kernels()[1] == BUILDS, "once there is one, it is used"


@on_x86
def test_a_library_that_is_there_needs_no_compiler(kernels):
    (kernels.path / "cc").unlink()
    (kernels.folder / "kernels-1-0.so").write_text("")
    assert kernels() == ([], BUILDS)


@on_x86
def test_a_build_that_dies_is_one_line_and_hurts_nobody(kernels, run, tmp_path):
    kernels("setup", SWITCH="off")
    python = tmp_path / "venv/bin/python"
    python.write_text(
        PYTHON.replace(
            "case", 'case "$*" in *extension.build) kill -SEGV $$ ;; esac\ncase', 1
        )
    )
    library = kernels.folder / "kernels-1-0.so"
    library.write_text("as if its test had ended it")
    (line,), _ = kernels("report")
    assert "not used" in line and "kernels.log" in line
    assert not library.exists(), "or the same would end each run"
    assert kernels("report") == ([], [])


def test_other_processors_are_one_line(kernels, tmp_path):
    (line,), notes = kernels(HOSTTYPE="aarch64")
    assert "not supported yet on aarch64" in line and notes == []
    assert kernels(HOSTTYPE="aarch64") == ([], [])


@on_x86
def test_of_many_that_start_at_once_one_builds(kernels, run, tmp_path):
    kernels("setup", SWITCH="off")
    noting = 'case "$*" in *extension.build) sleep 0.3; echo built >>"$NOTES.built" ;; esac\ncase'
    (tmp_path / "venv/bin/python").write_text(PYTHON.replace("case", noting, 1))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: kernels("report"), range(4)))
    assert Path(run.always["NOTES"] + ".built").read_text() == "built\n"
