"""How straight a row of figures is."""

from collections.abc import Sequence
from statistics import fmean, linear_regression


def straightness(sizes: Sequence[float], costs: Sequence[float]) -> dict[str, float]:
    """The line of least squares, what the costs are off it, and the most that twice the size costs.

    `off_line` is the root of the mean square of the distances, as a part of the mean cost.
    """
    line = linear_regression(sizes, costs)
    squares = [(line.intercept + line.slope * size - cost) ** 2 for size, cost in zip(sizes, costs, strict=True)]
    by_size = dict(zip(sizes, costs, strict=True))
    doubles = [cost / by_size[size / 2] for size, cost in by_size.items() if size / 2 in by_size]
    return {
        "base_us": line.intercept,
        "slope_us": line.slope,
        "off_line": fmean(squares) ** 0.5 / fmean(costs),
        "for_double": max(doubles),
    }
