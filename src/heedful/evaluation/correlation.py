"""Correlations of predicted numbers with the right ones."""

from collections.abc import Sequence


def correlations(gold: Sequence[float], given: Sequence[float]) -> dict[str, float]:
    """Pearson's and Spearman's correlation coefficient, from −1 to 1, computed by SciPy.

    0 if one of both sides is constant except for rounding, or there are fewer than two numbers,
    because the coefficients are then undefined.

    Example:
        >>> found = correlations([1, 2, 3, 4], [1, 4, 9, 16])
        >>> round(found["pearson"], 3), round(found["spearman"], 3)
        (0.984, 1.0)
        >>> correlations([1, 2], [3, 3])
        {'pearson': 0.0, 'spearman': 0.0}
    """
    from scipy.stats import pearsonr, spearmanr  # takes longer to import than to use

    if is_constant(gold) or is_constant(given):
        return {"pearson": 0.0, "spearman": 0.0}
    pearson, spearman = pearsonr(gold, given).statistic, spearmanr(gold, given).statistic
    return {"pearson": float(pearson), "spearman": float(spearman)}


def is_constant(numbers: Sequence[float]) -> bool:
    """Whether all numbers are equal, except for rounding.

    Example:
        >>> is_constant([0.1 + 0.2, 0.3]), is_constant([1e-9, 2e-9])
        (True, False)
    """
    if len(numbers) < 2:
        return True
    return max(numbers) - min(numbers) <= 1e-12 * max(map(abs, numbers))
