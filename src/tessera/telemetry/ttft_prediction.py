"""How far is the predicted time to first token from the measured one?"""

from prometheus_client import CollectorRegistry, Histogram

from tessera.core.matching.first_token import predicted_ttft_s
from tessera.core.types import Ending, FirstTokenSource, Outcome

ERROR_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 15.0, 60.0)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)


class TTFTPredictionMetrics:
    """Two histograms by how the first token was learned; silent where no producer predicts it.

    Compared is the prediction for the endpoint that served, and where stages were apart
    for those that were chosen, from the decision to the first token. Left out are first
    tokens that were predicted themselves, and requests that did not finish.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the families."""
        self._error = Histogram(
            "tessera_ttft_prediction_error_seconds",
            "Predicted less measured time to first token, without its sign.",
            ("source",),
            buckets=ERROR_BUCKETS,
            registry=registry,
        )
        self._ratio = Histogram(
            "tessera_ttft_prediction_error_ratio",
            "Predicted over measured time to first token.",
            ("source",),
            buckets=RATIO_BUCKETS,
            registry=registry,
        )

    def settled(self, outcome: Outcome) -> None:
        """Compare one request's prediction with what was seen."""
        decision, source = outcome.decision, outcome.first_token_source
        if decision is None or outcome.first_token_at is None or outcome.ending is not Ending.FINISHED:
            return
        if source is None or source is FirstTokenSource.PREDICTED:
            return
        predicted = predicted_ttft_s(decision, outcome.endpoint)
        measured = outcome.first_token_at - decision.at
        if predicted is None or measured <= 0:
            return
        self._error.labels(str(source)).observe(abs(predicted - measured))
        self._ratio.labels(str(source)).observe(predicted / measured)
