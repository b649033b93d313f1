"""Recurrent translation speed: heedful's Bahdanau model against Eole's and JoeyNMT's.

    python benchmarks/install_peers.py eole joeynmt
    python benchmarks/recurrent_speed.py [--repetitions 5] [--threads 2]

GRUs, embeddings and additive attention 256 wide, a bidirectional encoder, one layer each, beam 5;
sentences a second on test_2016 of Multi30k, exactly 16 target tokens a sentence, vocabulary 8,000.
Each side takes the batches that it is fastest with. The ratios are to the first row.

- Eole: ``brnn``, ``global_attention: mlp``; the model is what two updates of its training wrote.
  The lengths are forced by ``min_length`` and ``max_length``. It has no decoder that attends from
  the state before, as Bahdanau's does, and takes sentences as words.
- JoeyNMT: random weights, ``search`` with ``min_output_length`` and ``max_output_length``.
- ours: random weights, heedful's search.
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
    """Of our model."""
    return {
        "kind": "recurrent",
        "cell": "gru",
        "attention": "bahdanau",
        "embedding_size": width,
        "hidden_size": width,
    }


def eole_model(corpus: Corpus, folder: Path, options: Any) -> Path:
    """The folder of a recurrent model that Eole has trained for two updates.

    Raises:
        PeerError: it could not.
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
    """Let the sides take turns; speeds, ratios, versions, the machine's limits."""
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
    """The table, and under it what it depends on."""
    return "\n".join(
        [
            f"## Recurrent translation, Bahdanau, {SEARCHES[BEAM]}",
            "",
            speeds_table(found["rows"], found["sides"], found["operations"], found["limits"]),
            "",
            said_of(found["sides"], found["left_out"]),
            "",
            f"{found['sentences']:,} sentences, {found['length']} target tokens each, vocabulary "
            f"{found['vocabulary']:,}, {found['width']} wide; {found['corpus']}.",
            limits.said(found["limits"]),
            said(found["machine"]),
        ]
    )


def parse(arguments: list[str] | None = None) -> Any:
    """The command line."""
    parser = parser_for(__doc__, sizes=())
    parser.add_argument("--width", type=int, default=256, help="of everything (default 256)")
    add_batches(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    run(parse(), measure, report)


if __name__ == "__main__":
    sys.exit(main())
