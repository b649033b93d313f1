"""Correlations of predicted numbers with the right ones."""

from collections.abc import Sequence


def correlations(gold: Sequence[float], given: Sequence[float]) -> dict[str, float]:
    """Pearson's and Spearman's correlation coefficient, from −1 to 1, computed by SciPy.

    0 if one of both sides is constant or there are fewer than two numbers, because the coefficients
    are then undefined.

    Example:
        >>> found = correlations([1, 2, 3, 4], [1, 4, 9, 16])
        >>> round(found["pearson"], 3), round(found["spearman"], 3)
        (0.984, 1.0)
        >>> correlations([1, 2], [3, 3])
        {'pearson': 0.0, 'spearman': 0.0}
    """
    from scipy.stats import pearsonr, spearmanr  # takes longer to import than to use

    if len(set(gold)) < 2 or len(set(given)) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    pearson, spearman = pearsonr(gold, given).statistic, spearmanr(gold, given).statistic
    return {"pearson": float(pearson), "spearman": float(spearman)}
