"""Is the estimator the served model's? One clear warning where it is not, with the YAML that mends it."""

from typing import Any

from tessera.core.parts import Modality
from tessera.core.pricing.fit import Fit, best_fit, rule_error
from tessera.core.pricing.learning import Learning, Report, SizeSample
from tessera.core.pricing.robust import median
from tessera.core.types import Finding


class PriceCheck:
    """Watches what was learned, and speaks once for each model and modality until it changes.

    Memory: one row for each model and modality that was warned about and that
    ``Learning`` still knows, which bounds them.
    """

    def __init__(self, learned: Learning, warn_bias: float, min_samples: int) -> None:
        self._learned = learned
        self._warn_bias = warn_bias
        self._min_samples = min_samples
        self._warned: dict[tuple[str, Modality], tuple[int, Fit | None]] = {}

    def findings(self, report: Report, family: str | None) -> list[Finding]:
        """What an operator should read after a report."""
        kinds = {each.item.modality for each in report.items}
        return [text for kind in kinds if (text := self._finding(report.model, kind, family))]

    def table(self) -> list[dict[str, Any]]:
        """One row for each model and modality: reports, bias, typical error, what fits better."""
        rows: list[dict[str, Any]] = []
        for model, modality, ratio, spread, num_reports in self._learned.modalities():
            _, fit = self._warned.get((model, modality), (0, None))
            rows.append(
                {
                    "model": model,
                    "modality": str(modality),
                    "num_reports": num_reports,
                    "bias": 1 / ratio - 1,
                    "error_factor": spread,
                    "is_wrong": self._is_wrong(ratio, spread, num_reports),
                    "fits_better": fit.name if fit else None,
                    "yaml": fit.yaml if fit else None,
                }
            )
        for model, slope, template, num_reports in self._learned.text_lines():
            rows.append(
                {
                    "model": model,
                    "modality": "text",
                    "num_reports": num_reports,
                    "bytes_per_token": 1 / slope if slope else None,
                    "template_tokens": template,
                }
            )
        return rows

    def _is_wrong(self, ratio: float, spread: float, num_reports: int) -> bool:
        """A bias one way, or errors both ways that hide in a median."""
        is_off = abs(1 / ratio - 1) > self._warn_bias or spread - 1 > self._warn_bias
        return num_reports >= self._min_samples and is_off

    def _finding(self, model: str, modality: Modality, family: str | None) -> Finding | None:
        state = self._learned.modality(model, modality)
        if state is None or not self._is_wrong(state.ratio, state.spread, state.num_reports):
            return None
        resets = self._learned.num_resets(model)
        if (warned := self._warned.get((model, modality))) and warned[0] == resets:
            return None
        samples = self._learned.samples(model, modality)
        fit = best_fit(samples, model) if modality is Modality.IMAGE else None
        if fit and fit.error >= rule_error(samples):
            fit = None
        self._forget_unknown()
        self._warned[model, modality] = (resets, fit)
        bias = 1 / state.ratio - 1
        off = f"{bias:+.0%} off" if abs(bias) > self._warn_bias else f"off by a factor of {state.spread:.2f} either way"
        return Finding(message=_message(model, modality, family, off, samples, fit))

    def _forget_unknown(self) -> None:
        """Forget what was said of models that ``Learning`` has forgotten: they come back as new ones."""
        known = self._learned.modalities()
        kept = {(model, modality) for model, modality, *_ in known}
        self._warned = {key: said for key, said in self._warned.items() if key in kept}


def _message(
    model: str, modality: Modality, family: str | None, off: str, samples: tuple[SizeSample, ...], fit: Fit | None
) -> str:
    rule = f"family {family}" if family else "llm-d's rule"
    text = f"model {model!r}: {modality} items are priced {off} by {rule}"
    if samples:
        middle = median(sample.num_tokens for sample in samples)
        shown = min(samples, key=lambda sample: abs(sample.num_tokens - middle))
        size = f"{shown.width}x{shown.height}"
        text += f": {size} was priced {shown.priced} tokens, the engine counted {shown.num_tokens:.0f}"
    if fit:
        text += (
            f"; {fit.name} fits better (typical error {fit.error:.1%} over the sizes of {len(samples)} requests). "
            f"Set it: {{type: token-producer, parameters: {fit.yaml}}}"
        )
    else:
        text += "; no rule here fits. With token-producer's learning: {mode: apply} the counts set the price"
    return text
