"""The steady state of a run's batch times, in one sentence."""

from rnn_scaling.analysis import steady_state
from rnn_scaling.analysis.steady_state import SteadyState
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.wording import sentence


def run_text(record: RunRecord) -> str:
    """Analyse the batch times of a run, and return the sentence about them."""
    batches = record.batches
    state = steady_state.analyse(batches.seconds, batches.items, batches.warmup)
    return state_text(state, record)


def state_text(state: SteadyState, record: RunRecord) -> str:
    """Return the sentence about a run whose batch times were analysed before."""
    batches = record.batches
    statements = steady_state.statements(
        state, len(batches.seconds), batches.warmup, record.unit
    )
    return "; ".join(map(sentence, statements))
