"""Four logical CPU devices for every test, set before TensorFlow starts."""

import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

# A shell that starts the tests in the background lets SIGINT be ignored, by their children too, which are to obey it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tf():
    """TensorFlow with the logical devices CPU:0 to CPU:3."""
    import tensorflow

    _split_cpu(tensorflow)
    return tensorflow


def _split_cpu(tensorflow) -> None:
    cpu = tensorflow.config.list_physical_devices("CPU")[0]
    if tensorflow.config.get_logical_device_configuration(cpu) is None:
        tensorflow.config.set_logical_device_configuration(
            cpu, [tensorflow.config.LogicalDeviceConfiguration() for _ in range(4)]
        )


@pytest.fixture(scope="session")
def devices(tf):
    """Names of the four logical devices."""
    return [device.name for device in tf.config.list_logical_devices("CPU")]
