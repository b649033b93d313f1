"""Speed of recurrent translation: heedful's Bahdanau model compared with Eole's and JoeyNMT's.

    python benchmarks/install_peers.py eole joeynmt
    python benchmarks/recurrent_speed.py [--repetitions 5] [--threads 2]

GRUs, embeddings and additive attention have width 256, one layer and a bidirectional encoder; beam
5. The benchmark measures sentences per second on test_2016 of Multi30k with exactly 16 target
tokens per sentence and a vocabulary of 8,000. Each side uses the batch size that is fastest for it.
The baseline is the first row.

- Eole: ``brnn``, ``global_attention: mlp``; the model is trained by Eole for two updates. The
  lengths are forced by ``min_length`` and ``max_length``. Unlike Bahdanau's, its decoder does not
  attend from the previous state. Sentences are passed as words.
- JoeyNMT: random weights, ``search`` with ``min_output_length`` and ``max_output_length``.
- ours: heedful's search, random weights.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any

import limits
import train_peers
from corpus import Corpus
from install_peers import peer_python
from reporting import machine, said
from sizes import SIZES, recurrent_operations
from turns import (
    SEARCHES,
    Starter,
    add_batches,
    measure_whole,
    parser_for,
    run,
    said_of,
    speeds_table,
    write_work,
)

BEAM = 5


def settings(width: int) -> dict[str, Any]:
    """The settings of heedful's model."""
    return {
        "kind": "recurrent",
        "cell": "gru",
        "attention": "bahdanau",
        "embedding_size": width,
        "hidden_size": width,
    }


def eole_model(corpus: Corpus, folder: Path, options: Any) -> Path:
    """The folder of a recurrent model that Eole trains for two updates.

    Raises:
        PeerError: Eole failed.
    """
    texts = train_peers.write_texts(corpus, folder)
    training = train_peers.Training(texts, SIZES["tiny"], 1024, 1, options.threads)
    width = options.width
    rnn = {"rnn_type": "GRU", "layers": 1, "hidden_size": width}
    model = {
        "architecture": "rnn",
        "hidden_size": width,
        "layers": 1,
        "embeddings": {"word_vec_size": width, "position_encoding_type": None},
        "encoder": {"encoder_type": "brnn", **rnn},
        "decoder": {"decoder_type": "rnn", "global_attention": "mlp", **rnn},
    }
    config = train_peers.eole_config(training, model)
    config["training"]["compute_dtype"] = "fp32"
    train_peers.train_eole(config, training)
    return folder / "eole"


def measure(options: Any, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Measure the sides in turns; returns speeds, ratios, versions, the machine's limits."""
    known, failed, more = limits.limits(options.threads), {}, {}
    threads = ["--threads", str(options.threads)]
    if not options.ours_only and peer_python("eole"):
        try:
            more["eole"] = str(eole_model(corpus, folder / "words", options))
        except train_peers.PeerError as error:
            failed["Eole"] = str(error)
    work = write_work(
        folder / "recurrent.json", settings(options.width), corpus.test, options, **more
    )
    with ExitStack() as stack:
        starter = Starter(stack, work, options)
        if not failed:
            starter.peer("Eole", "eole", "eole_worker.py", *threads)
        starter.peer("JoeyNMT", "joeynmt", "joeynmt_worker.py", *threads)
        starter.ours()
        rows = measure_whole(starter, BEAM, options.batch_tokens)
    source = mean(len(sentence) + 1 for sentence in corpus.test)
    operations = recurrent_operations(
        source, options.length, BEAM, options.vocabulary, options.width
    )
    return {
        "machine": machine(options.threads),
        "limits": limits.highest(known, limits.limits(options.threads)),
        "sentences": len(corpus.test),
        "length": options.length,
        "vocabulary": options.vocabulary,
        "width": options.width,
        "operations": operations,
        "sides": starter.facts,
        "left_out": failed | starter.left_out,
        "rows": rows,
    }


def report(found: dict[str, Any]) -> str:
    """The table, followed by versions and settings."""
    return "\n".join(
        [
            f"## Recurrent translation, Bahdanau, {SEARCHES[BEAM]}",
            "",
            speeds_table(found["rows"], found["sides"], found["operations"], found["limits"]),
            "",
            said_of(found["sides"], found["left_out"]),
            "",
            f"{found['sentences']:,} sentences, {found['length']} target tokens each, vocabulary "
            f"{found['vocabulary']:,}, width {found['width']}; {found['corpus']}.",
            limits.said(found["limits"]),
            said(found["machine"]),
        ]
    )


def parse(arguments: list[str] | None = None) -> Any:
    """The command line."""
    parser = parser_for(__doc__, sizes=())
    parser.add_argument("--width", type=int, default=256, help="all widths; default 256")
    add_batches(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    run(parse(), measure, report)


if __name__ == "__main__":
    sys.exit(main())
