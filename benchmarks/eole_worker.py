"""The worker of Eole's recurrent model, which runs in the Python of its own environment.

It imports only the standard library, torch and eole. The model is trained by Eole for a few
updates.
"""

import argparse
import json
import logging
import time
from pathlib import Path

import eole
import torch
from eole.config.run import PredictConfig
from eole.inference_engine import InferenceEnginePY

from workers import Translating, serve

END = 3


class Engine:
    """A trained model. Sentences are passed as words, as Eole requires.

    Args:
        model: the folder that Eole wrote.
        length: length of every output.
    """

    def __init__(self, model: Path, length: int) -> None:
        config = PredictConfig(
            model_path=[str(model)],
            src="unused",
            world_size=0,
            min_length=length,
            max_length=length,
            beam_size=5,
            batch_type="tokens",
            batch_size=4096,
            compute_dtype="fp32",
            skip_empty_level="silent",
        )
        self.engine = InferenceEnginePY(config)

    def translate(
        self, sentences: list[list[int]], beam: int, tokens: int
    ) -> tuple[list[list[int]], float]:
        """Outputs and seconds. Converting ids to words and back is not timed."""
        lines = [" ".join(map(str, sentence)) for sentence in sentences]
        self.engine.config.batch_size = max(1, tokens // beam)
        began = time.perf_counter()
        _, _, found = self.engine.infer_list(lines, settings={"beam_size": beam})
        seconds = time.perf_counter() - began
        return [[_number(word) for word in one[0].split()] for one in found], seconds


def _number(word: str) -> int:
    """The id of a word; 1 for Eole's symbol for unknown words."""
    return int(word) if word.isdigit() else 1


def main() -> None:
    """Load the model, then handle requests for translations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="JSON: sentences, length, eole")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    work = json.loads(options.work.read_text(encoding="utf-8"))
    torch.set_num_threads(options.threads)
    logging.disable(logging.INFO)
    engine = Engine(Path(work["eole"]), work["length"])
    facts = {
        "versions": f"Eole {eole.__version__}, PyTorch {torch.__version__}",
        "precision": "float32",
    }
    serve(Translating(work, facts, engine.translate, END))


if __name__ == "__main__":
    main()
