"""BLEU of captions with several references, as papers on captions give it."""

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.evaluation.outcome import Figure
from heedful.evaluation.statistics import collect, percentile_interval

_ORDERS = 4
_RESAMPLES, _SEED = 1000, 12345


def measures(references: Sequence[Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Figure → how it is computed, for :func:`heedful.evaluation.statistics.measure`.

    sacreBLEU with n-grams of up to n words, lower case, and no tokenising beyond the spaces.
    """
    common = {"kind": "bleu", "tokenise": "none", "lowercase": True}
    own = list(map(list, references))
    return {
        f"BLEU-{order}": {**common, "order": order, "references": own}
        for order in range(1, _ORDERS + 1)
    }


def caption_figures(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> Mapping[str, Figure]:
    """BLEU-1 to BLEU-4 with 95 % intervals, and each without the brevity penalty."""
    found: dict[str, Figure] = {}
    for name, how in measures(references).items():
        given = {key: value for key, value in how.items() if key not in ("kind", "references")}
        statistics = collect("bleu", outputs, references, **given)
        low, high = percentile_interval(statistics.resampled(_RESAMPLES, _SEED))
        score: Any = statistics.score()
        signature = str(statistics.metric.get_signature())
        found[name] = Figure(score.score, low=low, high=high, signature=signature)
        plain = score.score / score.bp if score.bp else 0.0
        found[f"{name} without brevity penalty"] = Figure(plain)
    return found
