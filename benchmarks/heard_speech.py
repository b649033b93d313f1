"""How well a recogniser understands what a voice speaks, beside the recordings of the same texts.

    python benchmarks/heard_speech.py runs/voice runs/recogniser FOLDER/test.tsv

The recogniser should be trained on recordings of the same speaker. The texts are those of a table
with the columns path and text.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import heedful
from heedful.data.readers.sounds import as_flac
from heedful.tasks.sound_input import Heard, heard_in
from heedful.tasks.transcription.errors import error_figures
from heedful.tasks.transcription.texts import ready
from reporting import table

FIGURES = ("word error", "character error", "exact")


def measure(voice: Path, recogniser: Path, path: Path) -> dict[str, Any]:
    """The figures of the recordings and of the voice."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    reader: Any = heedful.load(recogniser)
    texts = [ready(row["text"], reader.known) for row in rows]
    speaker: Any = heedful.load(voice)
    spoken = speaker.predict([{"text": row["text"]} for row in rows])
    sounds = {
        "recordings": [heard_in(str(path.parent / row["path"])) for row in rows],
        "voice": [Heard(sound=as_flac(one.sound)) for one in spoken],
    }
    found: dict[str, Any] = {}
    for name, own in sounds.items():
        figures = error_figures([one.text for one in reader.predict(own)], texts)
        found[name] = {key: [figures[key].value, *figures[key][3:5]] for key in FIGURES}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("voice", type=Path)
    parser.add_argument("recogniser", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    given = parser.parse_args()
    found = measure(given.voice, given.recogniser, given.table)
    if given.json:
        print(json.dumps(found))
        return
    rows = [
        [name, *(f"{value:.1f} [{low:.1f}, {high:.1f}]" for value, low, high in own.values())]
        for name, own in found.items()
    ]
    print(table(["%", *FIGURES], rows))


if __name__ == "__main__":
    main()
