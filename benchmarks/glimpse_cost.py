"""The cost of six glimpses, and of a convolutional network, in images of 28 to 512 pixels.

    python benchmarks/glimpse_cost.py [--rounds 7] [--threads 1]

Both classify a batch of 32 grey images, in turn; the figures are medians in milliseconds. The
convolutional network is the recipe ``mnist-convolutional``'s with a global mean in place of its
last layer's grid, so that its parameters do not grow with the image.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.models import ImageSettings, ImageShape, build_image_model
from reporting import machine, said

SIDES = (28, 64, 128, 256, 512)
ROWS = 32


class Convolutions(nn.Module):
    """Two convolutions of 7 × 7 with 16 channels and a pooling each, a mean and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 7, padding=3), nn.Conv2d(16, 16, 7, padding=3)
        self.output = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        values = images.permute(0, 3, 1, 2).float() / 127.5 - 1
        hidden = F.max_pool2d(F.relu(self.first(values)), 2)
        hidden = F.max_pool2d(F.relu(self.second(hidden)), 2)
        result: Tensor = self.output(hidden.mean((2, 3)))
        return result


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    settings = ImageSettings.model_validate({"kind": "glimpses", "test_samples": 0, "scales": 3})
    found: dict[str, object] = {"machine": machine(options.threads)}
    with torch.inference_mode():
        for side in options.sides:
            images = torch.randint(256, (ROWS, side, side, 1), dtype=torch.uint8)
            glimpses = build_image_model(settings, ImageShape(side, side, 1), 10).eval()
            convolutions = Convolutions().eval()
            times: dict[str, list[float]] = {"glimpses": [], "convolutions": []}
            for turn in range(options.rounds + 1):
                for name, model in (("glimpses", glimpses), ("convolutions", convolutions)):
                    took = seconds(partial(model, images))
                    if turn:
                        times[name].append(1000 * took)
            found[str(side)] = {name: statistics.median(own) for name, own in times.items()}
    print(said(machine(options.threads)), file=sys.stderr)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
