"""The worker of CTranslate2. It imports only the standard library and ctranslate2, so that no other
library starts threads.

The weights are those of heedful's model, written by heedful's exporter.
"""

import argparse
import json
import time
from pathlib import Path

import ctranslate2

from workers import Translating, serve

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
"""heedful's symbols (``heedful.basics.symbols``)."""


class Engine:
    """The exported folder, loaded.

    Args:
        folder: the exported folder, which also contains the names of symbols.
        compute_type: ``float32`` or ``int8``.
        inter: number of workers, each with its own batch.
        intra: threads per worker.
        length: length of every output.
    """

    def __init__(self, folder: Path, compute_type: str, inter: int, intra: int, length: int):
        self.translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type=compute_type,
            inter_threads=inter,
            intra_threads=intra,
        )
        file = next(folder.glob("*vocabulary.json"))
        self.names: list[str] = json.loads(file.read_text(encoding="utf-8"))
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self.length = length

    def translate(
        self, sentences: list[list[int]], beam: int, tokens: int
    ) -> tuple[list[list[int]], float]:
        """Outputs and seconds. Converting ids to names and back is not timed.

        All sentences are passed at once: CTranslate2 sorts them, builds batches of ``tokens``
        source tokens (times beam) and distributes them over its workers.
        """
        sources = [[self.names[token] for token in sentence] for sentence in sentences]
        began = time.perf_counter()
        results = self.translator.translate_batch(
            sources,
            max_batch_size=max(1, tokens // beam),
            batch_type="tokens",
            beam_size=beam,
            max_decoding_length=self.length,
            min_decoding_length=self.length,
            disable_unk=True,
        )
        seconds = time.perf_counter() - began
        outputs = [[self.number_of[name] for name in one.hypotheses[0]] for one in results]
        return outputs, seconds


def main() -> None:
    """Load the model, then handle requests for translations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="JSON: sentences, length, folder")
    parser.add_argument("--compute-type", default="float32")
    parser.add_argument("--inter", type=int, required=True, help="workers")
    parser.add_argument("--intra", type=int, required=True, help="threads per worker")
    options = parser.parse_args()
    work = json.loads(options.work.read_text(encoding="utf-8"))
    engine = Engine(
        Path(work["exported"]), options.compute_type, options.inter, options.intra, work["length"]
    )
    facts = {
        "versions": f"CTranslate2 {ctranslate2.__version__}",
        "precision": engine.translator.compute_type,
        "workers": f"workers: {options.inter}, threads per worker: {options.intra}",
        "our_weights": True,
    }
    serve(Translating(work, facts, engine.translate, END))


if __name__ == "__main__":
    main()
