"""The scores of the search for change points on measured series."""

import json

import numpy as np
import pytest

from benchmarks import real_histories


@pytest.mark.parametrize(
    "marked, found, count", [({0, 50}, {0, 56}, 1), ({0, 50, 52}, {0, 51}, 2)]
)
def test_each_found_change_proves_one_marked_change(marked, found, count):
    assert real_histories.count_true_positives(marked, found) == count


def test_asv_results_are_read_in_the_order_of_commits(tmp_path):
    for number in range(60):
        result = {
            "env_name": "py3",
            "date": 1000 - number,
            "results": {
                "a.time_sort": [[number + 1.0, None]],
                "a.track_size": [[5.0]],
                "a.time_other": None,
            },
        }
        (tmp_path / f"{number:02}.json").write_text(json.dumps(result))
    other = {"env_name": "py2", "date": 1, "results": {"a.time_sort": [[9.0]]}}
    (tmp_path / "x.json").write_text(json.dumps(other))
    (tmp_path / "machine.json").write_text("{}")
    [series] = real_histories.read_asv(tmp_path)
    np.testing.assert_allclose(np.exp(series), np.arange(60, 0, -1))
