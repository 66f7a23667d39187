"""The links.json of an earlier measurement -> the links of one machine, by all-reduce."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Link
from rnn_scaling.analysis.prediction.from_rows import ALGORITHM
from rnn_scaling.files import input_files
from rnn_scaling.links.series import ALL_REDUCE

SCHEMA = "rnn_scaling.links/1"
REMEDY = "./run.sh links --measure=all_reduce --out=DIR makes one"


def read(path: Path) -> dict[str, Link]:
    """The link behind each all-reduce that was measured and fitted, by its name; "": that of the fastest one.

    Raises Refusal with a line that names the file.
    """
    try:
        fields = input_files.parse_json(input_files.read_text(path))
    except OSError as e:
        raise entry.Refusal(f"--links={path}: {e.strerror or e}") from None
    except input_files.JsonError as e:
        raise entry.Refusal(f"--links={path}: {e}; expected {SCHEMA}; {REMEDY}") from None
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise entry.Refusal(f"--links={path}: expected schema {SCHEMA}; {REMEDY}")
    every = fields.get("series")
    series = [one for one in every if isinstance(one, dict)] if isinstance(every, list) else []
    is_gpu = fields.get("device") == "gpu"
    found = {
        str(one["name"]).partition("#")[0]: link
        for one in series
        if one.get("kind") == ALL_REDUCE and "name" in one and not one.get("error") and (link := _link(one, is_gpu))
    }
    if not found:
        raise entry.Refusal(f"--links={path}: no all-reduce with a fit; {REMEDY}")
    return {**found, "": max(found.values(), key=lambda link: link.bytes_per_s)}


def _link(series: Mapping[str, Any], is_gpu: bool) -> Link | None:
    """The link with which the same algorithm over the same ranks takes alpha + bytes / beta, as the fit says.

    None where numbers are missing.
    """
    fit, ranks = series.get("fit"), series.get("ranks")
    if not isinstance(fit, dict) or type(ranks) is not int or ranks < 2:
        return None
    alpha_us, beta = fit.get("alpha_us"), fit.get("beta_gb_per_s")
    if not isinstance(alpha_us, (int, float)) or not isinstance(beta, (int, float)) or not beta > 0:
        return None
    algorithm = ALGORITHM.get(str(series["name"]).partition("#")[0], "ring")
    messages = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(1.0, math.inf)])
    sent = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(0.0, 1.0)])  # bytes one after the other, for each byte
    return Link(max(0.0, 1e-6 * alpha_us / messages), 1e9 * beta * sent, ranks if is_gpu else None)
