"""The links.json of an earlier measurement -> the links of one machine, by all-reduce."""

import math
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Link
from rnn_scaling.analysis.prediction.from_rows import ALGORITHM
from rnn_scaling.files import input_files
from rnn_scaling.links.series import ALL_REDUCE

SCHEMA = "rnn_scaling.links/1"


def read(path: Path) -> dict[str, Link]:
    """The link behind each all-reduce that was measured and fitted, by its name; "": the fastest one.

    Raises Refusal with a line that names the file.
    """
    try:
        fields = input_files.parse_json(input_files.read_text(path))
        if fields["schema"] != SCHEMA:
            raise ValueError
        series = [one for one in fields["series"] if one["kind"] == ALL_REDUCE and one["fit"] and not one["error"]]
        found = {one["name"].partition("#")[0]: _link(one, fields["device"]) for one in series}
        return {**found, "": max(found.values(), key=lambda link: link.bytes_per_s)}
    except OSError as e:
        raise entry.Refusal(f"--links={path}: {e.strerror or e}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        rule = f"expected {SCHEMA} with a fitted all-reduce; ./run.sh links --measure=all_reduce --out=DIR makes one"
        raise entry.Refusal(f"--links={path}: {rule}") from None


def _link(series: dict[str, Any], device: str) -> Link:
    """The link with which the same algorithm over the same ranks takes alpha + bytes / beta, as the fit says."""
    ranks, fit = series["ranks"], series["fit"]
    algorithm = ALGORITHM.get(series["name"].partition("#")[0], "ring")
    messages = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(1.0, math.inf)])
    sent = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(0.0, 1.0)])  # bytes one after the other, for each byte
    alpha_s, bytes_per_s = 1e-6 * fit["alpha_us"] / messages, 1e9 * fit["beta_gb_per_s"] * sent
    return Link(max(0.0, alpha_s), bytes_per_s, ranks if device == "gpu" else None)
