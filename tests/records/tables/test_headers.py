"""The quantity and the number of devices of headers."""

import pytest

from rnn_scaling.records.tables import headers

# A header, its quantity, and its number of devices.
HEADERS = """
# GPUs | devices | None
p | devices | None
Throughput (img/s) | rate | None
GFLOPS | rate | None
Peak GFLOPS | aside | None
images/sec/GPU | each | None
Speed-up | speedup | None
Ideal speedup | aside | None
Ep = Sp/p | efficiency | None
ms/step | seconds | None
Global batch size | global_batch | None
8x V100 | | 8
2 nodes x 8 GPUs | | 16
1 GPU time (s) | seconds | 1
"""


@pytest.mark.parametrize("line", HEADERS.strip().splitlines())
def test_the_meaning_of_a_header(line):
    header, quantity, devices = (cell.strip() for cell in line.split("|"))
    meaning = headers.read_header(header)
    assert meaning.quantity == quantity
    assert str(meaning.devices) == devices
