"""Numbers are read from the cells of tables."""

import pytest

from rnn_scaling.records import cell_numbers

# Text, value, step of the last digit, and unit.
NUMBERS = """
1,281.5 img/s | 1281.5 | 0.1 | img/s
**88 %** | 88 | 1 | %
1.95x | 1.95 | 0.01 | x
x2.5 | 2.5 | 0.1 | x
55.4k | 55400 | 100 |
1h 20m | 4800 | 60 | s
1:02:30 | 3750 | 1 | s
3.2 ms | 0.0032 | 0.0001 | s
1.63 ± 0.02 | 1.63 | 0.01 |
29 911 | 29911 | 1 |
.9 | 0.9 | 0.1 |
-5 | -5 | 1 |
[1.5](https://x) | 1.5 | 0.1 |
2e3 | 2000 | 1000 |
12<sup>a</sup> | 12 | 1 |
**25x slower** | 0.04 | 0.0016 | x
0.52x slower | 0.52 | 0.01 | x
1.5x faster | 1.5 | 0.1 | x
"""


@pytest.mark.parametrize("line", NUMBERS.strip().splitlines())
def test_value_and_last_digit(line):
    text, value, step, unit = (cell.strip() for cell in line.split("|"))
    number = cell_numbers.parse_cell(text)
    assert number.value == pytest.approx(float(value))
    assert number.resolution == pytest.approx(float(step))
    assert number.unit == unit
    assert number.low < number.value < number.high


@pytest.mark.parametrize(
    "text",
    ["", "n/a", "OOM", "2 x 4", "V100", "-", "nan", "1e999", "9" * 400, "1.2.3.4"],
)
def test_other_texts_are_not_numbers(text):
    assert cell_numbers.parse_cell(text) is None
