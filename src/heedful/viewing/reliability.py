"""The reliability diagram: accuracy and confidence of predictions, by confidence."""

from matplotlib.figure import Figure

from heedful.evaluation.calibration import Calibration
from heedful.viewing.figures import new_figure

# Blue and orange of a palette for all types of colour vision (Okabe and Ito, 2008).
_ACCURACY, _GAP, _COUNT = "#0072b2", "#d55e00", "#999999"


def reliability_figure(found: Calibration, title: str) -> Figure:
    """Draw a calibration as Guo et al. 2017, figure 1, do.

    A bar for each bin of confidence has the height of the accuracy of its predictions; a mark shows
    their mean confidence. Perfect probabilities lie on the diagonal. Below, the number of
    predictions in each bin.
    """
    figure = new_figure(4.8, 5.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    shown = [own for own in found.bins if own.count]
    left = [own.low for own in shown]
    width = 1 / len(found.bins)
    bars = {"width": width, "align": "edge", "edgecolor": "white"}
    above.bar(left, [own.accuracy for own in shown], color=_ACCURACY, label="accuracy", **bars)
    above.plot([0, 1], [0, 1], linestyle="--", linewidth=1, color="black")
    above.plot(
        [own.confidence for own in shown],
        [own.accuracy for own in shown],
        "D",
        markersize=4,
        color=_GAP,
        label="at the mean confidence",
    )
    error = f"expected calibration error {100 * found.expected_error:.1f} %"
    above.set_title(f"{title}\n{error}", fontsize=10)
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    above.legend(loc="upper left", fontsize=8, frameon=False)
    below.bar(left, [own.count for own in shown], color=_COUNT, **bars)
    below.set(xlabel="confidence", ylabel="predictions")
    figure.tight_layout()
    return figure
