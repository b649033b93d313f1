"""Flickr8k (Hodosh et al. 2013) as tables for the recipes ``flickr8k-*``.

    python benchmarks/flickr8k.py captions.tsv.gz FOLDER
    tar -xJf images.tar.xz -C FOLDER/images
    heedful train flickr8k-soft --data FOLDER --out runs/flickr8k-soft

The input has a line ``name.jpg TAB number TAB split TAB caption`` for each caption; splits are the
official ones. The images are ``name.webp``.
"""

import argparse
import gzip
import sys
from pathlib import Path

PARTS = {"train": "train", "dev": "validation", "test": "test"}


def main(arguments: list[str] | None = None) -> int:
    """Write train.tsv, validation.tsv and test.tsv."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("captions", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    tables: dict[str, list[str]] = {part: ["image\tcaption"] for part in PARTS.values()}
    with gzip.open(options.captions, "rt", encoding="utf-8") as file:
        for line in file:
            name, _, split, caption = line.rstrip("\n").split("\t")
            if split in PARTS:
                image = Path(name).with_suffix(".webp")
                tables[PARTS[split]].append(f"{image}\t{caption}")
    (options.folder / "images").mkdir(parents=True, exist_ok=True)
    for part, lines in tables.items():
        path = options.folder / f"{part}.tsv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{path}: {len(lines) - 1:,} captions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
