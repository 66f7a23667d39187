"""The selection and order of tests, and four logical CPU devices for all of them.

The devices are set before TensorFlow starts.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Container images set this, and each of the hundreds of processes under test would
# then compile the suite again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# TensorFlow's default depends on the processor.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ["RNN_SCALING_DEBUG"] = "1"  # a fault under test prints its traceback
# The operators that set-up may have built here are tested in test_extension.py.
os.environ["RNN_SCALING_OPERATORS"] = "off"

import pytest

sys.dont_write_bytecode = False
# The tests write thousands of files, and each would wait 10 ms or more for the disk.
# test_record.py checks that records do call fsync.
os.fsync = lambda descriptor: None

# A shell that starts the tests in the background makes them ignore SIGINT (nohup:
# SIGHUP), and their children inherit this, although they must obey these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).parent
RENEW_GOLDEN = "--renew_golden"
MAX_GRADIENTS = 100  # custom gradients of traced graphs that are kept
# Files that --quick leaves out: they load TensorFlow, open a browser, run commands as
# processes or take more than 3 s of CPU. The longest come first, so that two processes,
# which take one file after the other, end at about the same time. Files that compute
# alternate with files that wait for other processes, so that both cores have work.
SLOW = (
    "training/test_variable_update.py",
    "test_faults.py",
    "data/test_sources.py",
    "training/test_cluster.py",
    "verification/test_network_check.py",
    "test_launchers.py",
    "inspection/test_step_counts.py",
    "test_train.py",
    "models",
    "training/test_servers.py",
    "commands",
    "browser",
    "training",
    "frameworks",
    "verification",
    "data",
    "links",
    "inspection/test_inspection.py",
    "reports/test_graph_view.py",
    "test_hostile_files.py",
    "test_keras.py",
    "cluster/test_failures.py",
    "system/processes/test_start.py",
    "sweeps/test_suite_trainer.py",
    "test_api.py",
    "test_wheel.py",
    "reports/test_cluster.py",
    "analysis/audit/test_corpus.py",
    "sweeps/test_programs.py",
    "test_suite.py",
    "analysis/audit/test_work.py",
    "sweeps/test_program_copies.py",
    "test_run_sh.py",
    "sweeps/test_printed_rates.py",
    "test_documents.py",
    "records/importers/test_printed_extremes.py",
    "reports/test_page.py",
    "reports/test_oracle.py",
    "reports/test_training_differences.py",
    "reports/test_prediction_page.py",
)
# Files that --quick runs and that take seconds. They come first, so that neither of the
# two processes is still busy with one when the other has finished.
LONG = ("system/test_entry.py", "sweeps")

# Files that start clusters of TensorFlow processes, each of which takes seconds to
# load. They run only with --clusters.
CLUSTERS = (
    "test_faults.py",
    "test_launchers.py",
    "training/test_cluster.py",
    "training/test_horovod.py",
    "training/test_servers.py",
    "training/test_server_faults.py",
)


def pytest_addoption(parser):
    """Add --quick, --clusters and --renew_golden."""
    parser.addoption(
        RENEW_GOLDEN,
        action="store_true",
        help="write what the tests made to tests/golden; read the difference with git",
    )
    parser.addoption(
        "--clusters",
        action="store_true",
        help="also what starts clusters of TensorFlow processes",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="a minute: only what loads no TensorFlow and takes little time",
    )


def pytest_configure(config):
    """Distribute files in their order, and make TensorFlow unusable under --quick.

    pytest-xdist would otherwise sort the files by their number of tests.
    """
    config.option.loadscopereorder = False
    if config.getoption("quick"):
        sys.modules["tensorflow"] = None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect no garbage meanwhile: modules and tests live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_ignore_collect(collection_path, config):
    """Skip slow files under --quick, and unnamed cluster files without --clusters.

    Skipped files are not even imported.
    """
    if config.getoption("quick") and _rank(collection_path) < len(SLOW):
        return True
    named = any(collection_path.name in str(word) for word in config.args)
    is_clusters = (
        collection_path.is_relative_to(TESTS)
        and collection_path.relative_to(TESTS).as_posix() in CLUSTERS
    )
    return True if is_clusters and not (config.getoption("clusters") or named) else None


def pytest_collection_modifyitems(config, items):
    """Slow and long files first; under --quick, tests of other files that need TensorFlow are left out."""
    items.sort(key=lambda item: _rank(item.path))
    if config.getoption("quick"):
        slow = [item for item in items if "tf" in item.fixturenames]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def _rank(path):
    """Return a file's index in SLOW and LONG, or their length if it is in neither."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    named = (*SLOW, *LONG)
    return next(
        (
            rank
            for rank, slow in enumerate(named)
            if name == slow or name.startswith(slow + "/")
        ),
        len(named),
    )


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Free the graphs that tests traced, at the end of a file or if there are many.

    TensorFlow's registry of gradients keeps the closure of every custom gradient, and
    with it the graph. Without this, a process grows to several GiB. The C library keeps
    what was freed until it is told to return it.
    """
    ops = sys.modules.get("tensorflow.python.framework.ops")
    if ops is None:
        return
    gradients = ops.gradient_registry._registry
    names = [name for name in gradients if name.startswith("CustomGradient-")]
    is_last = nextitem is None or nextitem.path != item.path
    if is_last or len(names) > MAX_GRADIENTS:
        for name in names:
            del gradients[name]
        gc.collect()
        if is_last:
            gc.freeze()  # caches and modules that the file has left
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def is_golden(request):
    """Return a function that compares a text with a file of tests/golden.

    With --renew_golden, it writes the text to the file instead.
    """

    def compare(name, text):
        file = TESTS / "golden" / name
        if request.config.getoption(RENEW_GOLDEN):
            file.write_bytes(text.encode())
        return file.read_bytes().decode() == text

    return compare


@pytest.fixture
def quiet_machine(monkeypatch):
    """Record no load of other processes, for which reports would correct the rates."""
    from rnn_scaling.system.machine.load import LoadMeter

    monkeypatch.setattr(LoadMeter, "read", lambda self: None)


@pytest.fixture(scope="session")
def tf():
    """TensorFlow with the logical devices CPU:0 to CPU:3."""
    import tensorflow

    cpu = tensorflow.config.list_physical_devices("CPU")[0]
    if tensorflow.config.get_logical_device_configuration(cpu) is None:
        four = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(4)]
        tensorflow.config.set_logical_device_configuration(cpu, four)
    # Its half a million objects are nobody's garbage. Yet to collect rarely would keep data pipelines alive, for whose
    # threads others then wait.
    gc.freeze()
    return tensorflow


@pytest.fixture(scope="session")
def devices(tf):
    """Return the names of the four logical devices."""
    return [device.name for device in tf.config.list_logical_devices("CPU")]


@pytest.fixture
def as_built(tf):
    """Run graphs as Python built them.

    Rewriting a small graph takes TensorFlow half of the graph's first call.
    """
    with keep_as_built(tf):
        yield


@contextlib.contextmanager
def keep_as_built(tf):
    """Do what the fixture `as_built` does, for fixtures with module scope."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
