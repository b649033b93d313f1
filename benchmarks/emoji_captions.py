"""The pictures of ``heedful demo --task caption``: people of Noto Emoji with their CLDR names.

    tar -xJf images.tar.xz -C FOLDER
    python benchmarks/emoji_captions.py names.tsv.xz FOLDER src/heedful/tasks/captioning/emoji.zip

A name such as "woman firefighter: dark skin tone" has three parts. Kept are roles with pictures of
a man and a woman, and often of a person, in all five skin tones. One picture of each role and
gender is a test example: all of its words, but not their combination, are in the training examples.
The names become "woman firefighter with dark skin tone".
"""

import argparse
import lzma
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import babel

GENDERS = ("man", "woman", "person")
TONES = 5
LICENCE = """The pictures are Noto Emoji (https://github.com/googlefonts/noto-emoji), Copyright
Google LLC, Apache License 2.0; its text is the LICENSE of heedful.

Their names are from Unicode CLDR, as listed by emojibase (https://github.com/milesj/emojibase),
Copyright Miles Johnson, MIT License:

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

The licence of Unicode CLDR:

"""


def chosen(lines: list[str]) -> list[tuple[str, str, str]]:
    """Part, file and caption of each picture."""
    found: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        code, *_, name = line.split("\t")[:4]
        base, _, tone = name.partition(": ")
        gender, _, role = base.partition(" ")
        if gender in GENDERS and role and tone.endswith("skin tone") and "," not in tone:
            found[role][gender].append((code, f"{base} with {tone}"))
    rows = []
    for place, (_, genders) in enumerate(sorted(found.items())):
        complete = {gender: own for gender, own in genders.items() if len(own) == TONES}
        if not {"man", "woman"} <= complete.keys():
            continue
        for number, (_, own) in enumerate(sorted(complete.items())):
            for tone, (code, caption) in enumerate(own):
                part = "test" if tone == (place + 2 * number) % TONES else "train"
                rows.append((part, code, caption))
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Write the archive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    with lzma.open(options.names, "rt", encoding="utf-8") as file:
        rows = chosen(file.read().splitlines()[1:])
    with zipfile.ZipFile(options.out, "w") as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)

        unicode_licence = Path(babel.__file__).with_name("locale-data") / "LICENSE.unicode"
        add("LICENCE.txt", LICENCE.encode() + unicode_licence.read_bytes())
        for part in ("train", "test"):
            own = [f"{code}.webp\t{caption}" for which, code, caption in rows if which == part]
            add(f"{part}.tsv", ("\n".join(["image\tcaption", *own]) + "\n").encode())
            print(f"{part}: {len(own)} pictures")
        for _, code, _ in rows:
            add(f"images/{code}.webp", (options.images / f"{code}.webp").read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
