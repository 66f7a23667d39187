"""Which tests run and in which order; four logical CPU devices for every test, set before TensorFlow starts."""

import contextlib
import gc
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Images of containers set it; then each of the hundreds of processes under test would compile the suite anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault(
    "TF_ENABLE_ONEDNN_OPTS", "1"
)  # TensorFlow's default depends on the processor
os.environ["RNN_SCALING_DEBUG"] = "1"  # a fault under test shows where it is
os.environ["RNN_SCALING_OPERATORS"] = (
    "off"  # what set-up built here has tests of its own, test_extension.py
)

import pytest

sys.dont_write_bytecode = False
# Of thousands of files each would wait for the disk, 10 ms and more; that records do is asked in test_record.py.
os.fsync = lambda descriptor: None

# A shell that starts the tests in the background (nohup: SIGHUP) lets these be ignored, by their children too, which
# are to obey them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).parent
RENEW_GOLDEN = "--renew_golden"
# What loads TensorFlow, opens a browser, runs commands as processes or takes long: all that --quick leaves out. Longest
# first: so two processes, which take file by file, come to their ends together. Files that compute and files that wait
# for other processes take turns: then both cores have work.
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
)
# What takes seconds of the rest, which --quick runs: neither of the two processes is to be left alone with it.
LONG = (
    "system/test_entry.py",
    "test_suite.py",
    "test_wheel.py",
    "reports/test_cluster.py",
    "sweeps",
)

# What starts clusters of TensorFlow processes, each of which takes seconds to load: --clusters runs it too.
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
        help="only what loads no TensorFlow and runs no long process",
    )


def pytest_configure(config):
    """Processes take files in the order below and not by how many tests each has; --quick cannot load TensorFlow."""
    config.option.loadscopereorder = False
    if config.getoption("quick"):
        sys.modules["tensorflow"] = None


def pytest_ignore_collect(collection_path, config):
    """Under --quick, slow files are not even imported; without --clusters, those of clusters unless they are named."""
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


def _rank(path: Path) -> int:
    """Place of a file in SLOW and LONG; their length where it is in neither."""
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


@pytest.fixture
def is_golden(request):
    """Return a function that compares a text with a file of tests/golden.

    With --renew_golden, it writes the text to the file instead.
    """

    def compare(name: str, text: str) -> bool:
        file = TESTS / "golden" / name
        if request.config.getoption(RENEW_GOLDEN):
            file.write_bytes(text.encode())
        return file.read_bytes().decode() == text

    return compare


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
    """Names of the four logical devices."""
    return [device.name for device in tf.config.list_logical_devices("CPU")]


@pytest.fixture
def as_built(tf):
    """Graphs run as Python built them: rewriting a small one takes TensorFlow half of its first call."""
    with unrewritten(tf):
        yield


@contextlib.contextmanager
def unrewritten(tf):
    """As the fixture `as_built`, for fixtures of a module."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
