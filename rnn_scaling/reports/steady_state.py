"""What the times of a run's batches show, in one sentence."""

from rnn_scaling.analysis import steady_state
from rnn_scaling.analysis.steady_state import SteadyState
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.wording import sentence


def run_text(record: RunRecord) -> str:
    """Return the sentence about a run; its batches are judged again."""
    batches = record.batches
    state = steady_state.analyse(batches.seconds, batches.items, batches.warmup)
    return state_text(state, record)


def state_text(state: SteadyState, record: RunRecord) -> str:
    """Return the sentence about a run that was judged before."""
    batches = record.batches
    statements = steady_state.statements(
        state, len(batches.seconds), batches.warmup, record.unit
    )
    return "; ".join(map(sentence, statements))
