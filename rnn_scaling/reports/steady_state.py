"""The steady state of a run's batch times, in one sentence.

Runs and reports print the same sentence.
"""

from rnn_scaling.analysis import steady_state
from rnn_scaling.analysis.steady_state import SteadyState
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.wording import write_sentence


def run_text(record: RunRecord) -> str:
    """Analyse the batch times of a run, and return the sentence about them."""
    return state_text(steady_state.analyse_run(record), record)


def state_text(state: SteadyState, record: RunRecord) -> str:
    """Return the sentence about a run whose batch times were analysed before."""
    num_batches = len(steady_state.count_analysed_batches(record))
    statements = steady_state.make_statements(
        state, num_batches, record.batches.warmup, record.unit
    )
    return "; ".join(map(write_sentence, statements))
