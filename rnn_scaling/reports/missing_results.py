"""Why a command has no result, and what helps.

Commands that found no usable run print the result of `format_message`.
"""

from collections.abc import Collection

from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.terminal import format_count


def format_message(missing: str, records: Collection[RunRecord], remedy: str) -> str:
    """Return an error that names the reason and the remedy.

    Args:
      missing: The missing result, such as "no run was counted".
      records: The runs of the command.
      remedy: The remedy if no run failed.
    """
    failed = [record for record in records if record.status != "ok"]
    if not failed:
        return f"{missing}, although {format_count(len(records), 'run')} ended well; {remedy}"
    error = failed[0].error
    reason = " ".join((error.message if error else failed[0].status).split())
    return (
        f"{missing}: {len(failed)} of {format_count(len(records), 'run')} failed, the first "
        f'with "{reason}"; remove the cause and repeat the command with --retry_failed'
    )
