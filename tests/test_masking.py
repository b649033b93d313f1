"""Pre-training examples: nothing lost, nothing special hidden, the right shares, the same again."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data import masking
from heedful.data.document_store import EncodedDocuments, SentenceEncoder, write_documents
from heedful.data.masking import STRETCH, MaskedBatch, SentencePairs
from heedful.data.positions import Position
from heedful.data.readers import read_documents
from heedful.data.store import INDEX
from heedful.data.store_encoder import write_store
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings, train_vocabulary

DATA = Path(__file__).parents[1] / "../shared/data"
LONGEST, ROW = 14, 31
Document = list[str]


def make_documents(count: int, seed: int = 1) -> list[Document]:
    """Documents of 1 to 9 sentences (one of far more) whose first word says which they are."""
    random = np.random.default_rng(seed)
    documents = []
    for document in range(count):
        sentences = 2 * STRETCH + 3 if document == 3 else int(random.integers(1, 10))
        documents.append(
            [
                " ".join(
                    [f"d{document}s{place}"]
                    + [f"w{word}" for word in random.integers(0, 50, random.integers(0, 13))]
                )
                for place in range(sentences)
            ]
        )
    return documents


def words_of(documents: Sequence[Document], **values: object) -> SavedVocabulary:
    settings = VocabularySettings.model_validate(
        {"kind": "words", "vocabulary_size": 20000, "mask": True, "split": "spaces", **values}
    )
    texts = [line for lines in documents for line in lines]
    return train_vocabulary(lambda: texts, settings, seed=1, where="the test")


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return make_documents(150)


@pytest.fixture(scope="module")
def vocabulary(documents: list[Document]) -> SavedVocabulary:
    return words_of(documents)


@pytest.fixture(scope="module")
def corpus(
    documents: list[Document],
    vocabulary: SavedVocabulary,
    tmp_path_factory: pytest.TempPathFactory,
) -> EncodedDocuments:
    folder = tmp_path_factory.mktemp("corpus") / "it"
    write_documents(documents, vocabulary, folder, longest=LONGEST)
    return EncodedDocuments.open(folder)


def pairs(corpus: EncodedDocuments, vocabulary: SavedVocabulary, **values: object) -> SentencePairs:
    given: dict[str, object] = {"max_tokens": ROW, "batch_tokens": 600, **values}
    return SentencePairs(corpus, vocabulary, **given)  # type: ignore[arg-type]  # keyword by name


def epoch(
    source: SentencePairs, seed: int = 1, number: int = 0
) -> Iterator[tuple[Position, MaskedBatch]]:
    for position, batch in source.batches(Position(seed, number, 0)):
        yield position, batch
        if position.epoch != number:
            return


def restored(batch: MaskedBatch) -> torch.Tensor:
    """The rows as they were before tokens were hidden."""
    tokens = batch.sequences.tokens.clone()
    tokens[batch.places[:, 0], batch.places[:, 1]] = batch.labels
    return tokens


def parts(batch: MaskedBatch) -> Iterator[tuple[list[int], list[int], int]]:
    """First and second segment of each row, and whether the second is random."""
    assert batch.next_labels is not None
    rows = zip(restored(batch), *batch.sequences[1:], batch.next_labels.tolist(), strict=True)
    for tokens, length, segment, label in rows:
        row, of = tokens[:length].tolist(), segment[:length].tolist()
        first = of.index(1)
        assert row[0] == BEGIN
        assert row[first - 1] == row[-1] == END
        assert of == [0] * first + [1] * (len(row) - first)
        assert not tokens[length:].any()
        assert not segment[length:].any()
        yield row[1 : first - 1], row[first:-1], label


def named(vocabulary: SavedVocabulary, tokens: list[int]) -> list[tuple[int, int]]:
    """Document and sentence of each sentence that begins in ``tokens``."""
    names = [name for name in vocabulary.pieces(tokens) if name.startswith("d")]
    return [(int(d), int(s)) for d, s in (name[1:].split("s") for name in names)]


def test_documents_are_stored_whole(
    documents: list[Document], vocabulary: SavedVocabulary, corpus: EncodedDocuments
) -> None:
    assert len(corpus) == len(documents)
    assert corpus.tokens == sum(len(line.split()) for lines in documents for line in lines)
    for number, lines in enumerate(documents):
        own = range(int(corpus.starts[number]), int(corpus.starts[number + 1]))
        assert [vocabulary.decode(corpus.sentences[i]["tokens"].tolist()) for i in own] == lines


@pytest.mark.parametrize("seed", [1, 2])
def test_every_sentence_is_used_once_and_in_its_order(
    documents: list[Document],
    vocabulary: SavedVocabulary,
    corpus: EncodedDocuments,
    seed: int,
) -> None:
    used: Counter[tuple[int, int]] = Counter()
    labels = []
    for _, batch in epoch(pairs(corpus, vocabulary), seed):
        assert batch.weight == len(batch.sequences.tokens)
        for first, second, label in parts(batch):
            ahead, behind = named(vocabulary, first), named(vocabulary, second)
            assert ahead
            assert second
            both = ahead + behind
            if label:
                assert {document for document, _ in ahead} != {document for document, _ in behind}
            else:
                assert behind
                assert both == [(both[0][0], both[0][1] + place) for place in range(len(both))]
            for run in (ahead, behind):
                assert run == [(run[0][0], run[0][1] + place) for place in range(len(run))]
            used.update(ahead if label else both)
            labels.append(label)
    everything = {(d, s) for d, lines in enumerate(documents) for s in range(len(lines))}
    assert used == Counter(everything)
    assert sum(labels) / len(labels) == pytest.approx(0.5, abs=0.06)


def test_random_segments_are_as_long_as_true_ones(
    vocabulary: SavedVocabulary, corpus: EncodedDocuments
) -> None:
    sizes: dict[int, list[int]] = {0: [], 1: []}
    whole = total = 0
    for number in range(6):
        for _, batch in epoch(pairs(corpus, vocabulary), number=number):
            for _, second, label in parts(batch):
                sizes[label].append(len(second))
                if label:
                    total += 1
                    whole += vocabulary.pieces(second[:1])[0].startswith("d")
    assert whole == total  # each begins where a sentence does
    means = [sum(sizes[label]) / len(sizes[label]) for label in (0, 1)]
    assert means[1] == pytest.approx(means[0], rel=0.1)


def test_batches_are_a_function_of_their_position(
    vocabulary: SavedVocabulary, corpus: EncodedDocuments
) -> None:
    source = pairs(corpus, vocabulary)
    run = list(itertools.islice(source.batches(Position(5)), 80))
    assert run[-1][0].epoch >= 1
    for start in (0, 7, 30, len(run) - 2):
        position = run[start][0]
        again = itertools.islice(pairs(corpus, vocabulary).batches(position), 2)
        for (ours, batch), (theirs, expected) in zip(again, run[start + 1 :], strict=False):
            assert ours == theirs
            assert torch.equal(batch.sequences.tokens, expected.sequences.tokens)
            assert torch.equal(batch.places, expected.places)
            assert torch.equal(batch.labels, expected.labels)
    with pytest.raises(UserError, match=r"there is no batch at \(5, 0, 1000\)"):
        next(source.batches(Position(5, 0, 1000)))
    with pytest.raises(UserError, match="there is no batch"):
        next(source.batches(Position(5, 0, 1 << 40)))


def test_masks_and_pairs_are_drawn_anew(
    vocabulary: SavedVocabulary, corpus: EncodedDocuments
) -> None:
    source = pairs(corpus, vocabulary)
    seen = {
        tuple(tuple(part[0]) + tuple(part[1]) for part in parts(batch))
        for seed, number in ((1, 0), (1, 1), (2, 0))
        for _, batch in itertools.islice(epoch(source, seed, number), 3)
    }
    assert len(seen) == 9
    one, two = list(source.once()), list(source.once())
    for batch, again in zip(one, two, strict=True):
        assert torch.equal(batch.sequences.tokens, again.sequences.tokens)
    used = Counter[tuple[int, int]]()
    for batch in one:
        for first, second, label in parts(batch):
            used.update(named(vocabulary, first) + ([] if label else named(vocabulary, second)))
    assert set(used.values()) == {1}
    assert len(used) == len(corpus.sentences)


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_shares_of_what_is_hidden(
    documents: list[Document], tmp_path: Path, whole_words: bool, kind: str
) -> None:
    size = {"words": 20000, "bpe": 400}[kind]
    vocabulary = words_of(documents, kind=kind, vocabulary_size=size, minimum_count=2)
    write_documents(documents, vocabulary, tmp_path / "it", longest=40)
    source = pairs(
        EncodedDocuments.open(tmp_path / "it"),
        vocabulary,
        max_tokens=83,
        batch_tokens=4000,
        whole_words=whole_words,
        short=0.0,
    )
    hidden = usual = 0
    actions: Counter[str] = Counter()
    for number in range(4):
        for _, batch in epoch(source, number=number):
            tokens, before = batch.sequences.tokens, restored(batch)
            special = (before <= END) | (before == vocabulary.mask)
            put = tokens[batch.places[:, 0], batch.places[:, 1]]
            assert not special[batch.places[:, 0], batch.places[:, 1]].any()
            assert (batch.labels > END).all()
            assert ((put > END) & (put < vocabulary.size)).all()
            assert len(torch.unique(batch.places, dim=0)) == len(batch.places)
            rows = torch.bincount(batch.places[:, 0], minlength=batch.weight)
            can = (~special).sum(dim=1)
            assert ((rows > 0) == (can > 0)).all()
            if not whole_words:
                wanted = (0.15 * can).round().clamp(min=1)
                assert torch.equal(rows[can > 0], wanted[can > 0].long())
            hidden += len(put)
            usual += int(can.sum())
            is_mask, same = put == vocabulary.mask, put == batch.labels
            actions.update(mask=int(is_mask.sum()), same=int(same.sum()), all=len(put))
    assert hidden / usual == pytest.approx(0.15, abs=0.012)
    assert actions["mask"] / actions["all"] == pytest.approx(0.8, abs=0.02)
    assert actions["same"] / actions["all"] == pytest.approx(0.1, abs=0.02)


def test_whole_words_are_hidden_whole(documents: list[Document], tmp_path: Path) -> None:
    vocabulary = words_of(documents, kind="bpe", vocabulary_size=400)
    write_documents(documents, vocabulary, tmp_path / "it", longest=40)
    corpus = EncodedDocuments.open(tmp_path / "it")
    source = pairs(corpus, vocabulary, max_tokens=83, whole_words=True)
    several = 0
    for _, batch in epoch(source):
        chosen = torch.zeros_like(batch.sequences.tokens, dtype=torch.bool)
        chosen[batch.places[:, 0], batch.places[:, 1]] = True
        for tokens, found in zip(restored(batch), chosen, strict=True):
            cut = [0, *(torch.nonzero(tokens == END)[:, 0] + 1).tolist()]
            for begin, end in itertools.pairwise(cut):
                run = tokens[begin:end].tolist()
                of: dict[int, set[bool]] = {}
                for word, is_chosen in zip(
                    vocabulary.word_indices(run), found[begin:end].tolist(), strict=True
                ):
                    of.setdefault(word, set()).add(is_chosen)
                    several += is_chosen
                assert all(len(each) == 1 for each in of.values())
    assert several > 100


def test_rows_without_pairs(
    documents: list[Document], vocabulary: SavedVocabulary, corpus: EncodedDocuments
) -> None:
    used: Counter[tuple[int, int]] = Counter()
    for _, batch in epoch(pairs(corpus, vocabulary, next_sentence=False)):
        assert batch.next_labels is None
        assert not batch.sequences.segments.any()
        for tokens, length in zip(restored(batch), batch.sequences.lengths, strict=True):
            row = tokens[:length].tolist()
            assert (row[0], row[-1]) == (BEGIN, END)
            assert len(row) <= ROW
            found = named(vocabulary, row[1:-1])
            assert len({document for document, _ in found}) == 1
            used.update(found)
    assert sum(used.values()) == len(used) == sum(map(len, documents))


def test_batches_are_filled(vocabulary: SavedVocabulary, corpus: EncodedDocuments) -> None:
    taken = real = 0
    for _, batch in epoch(pairs(corpus, vocabulary)):
        rows, width = batch.sequences.tokens.shape
        assert rows * width <= 600
        assert width <= ROW
        assert batch.sequences.lengths.max() == width
        taken += rows * width
        real += int(batch.sequences.lengths.sum())
        moved = batch.to("cpu")
        assert torch.equal(moved.labels, batch.labels)
    assert real / taken > 0.93


def test_unknown_tokens_are_never_hidden(documents: list[Document], tmp_path: Path) -> None:
    vocabulary = words_of(documents, minimum_count=2)
    write_documents(documents, vocabulary, tmp_path / "it", longest=LONGEST)
    source = pairs(EncodedDocuments.open(tmp_path / "it"), vocabulary)
    unknown = 0
    for _, batch in epoch(source):
        assert not (batch.labels == UNKNOWN).any()
        unknown += int((batch.sequences.tokens == UNKNOWN).sum())
    assert unknown


def test_long_sentences_are_cut_and_nothing_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [["", "a b " * 30, "c"], ["", " "], ["x"]]
    vocabulary = words_of([["a b c x"]])
    write_documents(lines, vocabulary, tmp_path / "it", longest=7)
    assert "split lines of more than 7 tokens: 1" in capfd.readouterr().err
    corpus = EncodedDocuments.open(tmp_path / "it")
    assert len(corpus) == 2
    found = [vocabulary.decode(row["tokens"].tolist()) for row in corpus.sentences]
    assert max(len(text.split()) for text in found) == 7
    assert " ".join(found).split() == ("a b " * 30 + "c x").split()
    for empty in ([], [[]], [[""]]):
        with pytest.raises(UserError, match="the documents have no text"):
            write_documents(empty, vocabulary, tmp_path / "other", longest=7)
    assert not (tmp_path / "other").exists()


def test_what_does_not_fit_is_refused(
    vocabulary: SavedVocabulary, corpus: EncodedDocuments, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"up to 14 tokens do not fit .* longest=13, or raise"):
        pairs(corpus, vocabulary, max_tokens=30)
    other = words_of([["quite other words"]])
    with pytest.raises(UserError, match="encoded with another vocabulary"):
        pairs(corpus, other)
    plain = words_of([["a b"]], mask=False)
    write_documents([["a b"], ["b"]], plain, tmp_path / "plain", longest=5)
    with pytest.raises(UserError, match="the vocabulary has no mask"):
        pairs(EncodedDocuments.open(tmp_path / "plain"), plain)
    one = words_of([["a b"]])
    write_documents([["a b", "b"]], one, tmp_path / "one", longest=5)
    with pytest.raises(UserError, match="only one document"):
        pairs(EncodedDocuments.open(tmp_path / "one"), one)
    assert len(
        list(pairs(EncodedDocuments.open(tmp_path / "one"), one, next_sentence=False).once())
    )


def test_damaged_files_are_refused(vocabulary: SavedVocabulary, tmp_path: Path) -> None:
    write_documents([["w1"], ["w2", "w3"]], vocabulary, tmp_path / "it", longest=5)
    path = tmp_path / "it" / "00000.begins.values"
    content = path.read_bytes()
    for damaged in (content[:-1], bytes(len(content)), b"\1\0" * (len(content) // 2)):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="the file is damaged"):
            EncodedDocuments.open(tmp_path / "it")
    path.write_bytes(content)
    index = tmp_path / "it" / INDEX
    values = json.loads(index.read_text())
    del values["facts"]["documents"]
    index.write_text(json.dumps(values))
    with pytest.raises(UserError, match="not a corpus of documents"):
        EncodedDocuments.open(tmp_path / "it")


@pytest.mark.skipif(not DATA.exists(), reason="the folder of real data is not here")
def test_wikitext(tmp_path: Path) -> None:
    path = DATA / "wikitext-2/valid.txt"
    lines = list(read_documents(path, document="wikitext", sentences="en"))
    settings = VocabularySettings(kind="bytes", vocabulary_size=2000, mask=True)
    texts = [line for document in lines for line in document]
    vocabulary = train_vocabulary(lambda: texts, settings, seed=1, where="it")
    write_documents(lines, vocabulary, tmp_path / "it", longest=62)
    corpus = EncodedDocuments.open(tmp_path / "it")
    source = pairs(corpus, vocabulary, max_tokens=128, batch_tokens=4096)
    rows = ones = tokens = 0
    for _, batch in epoch(source):
        assert batch.next_labels is not None
        rows += batch.weight
        ones += int(batch.next_labels.sum())
        for first, second, label in parts(batch):
            tokens += len(first) + (0 if label else len(second))
        assert not (batch.sequences.tokens == PAD)[:, 0].any()
    assert tokens == corpus.tokens
    assert ones / rows == pytest.approx(0.5, abs=0.04)


def test_windows_read_few_shards_and_use_every_sentence_once(
    vocabulary: SavedVocabulary,
    documents: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "POOL", 6)
    encoder = SentenceEncoder(vocabulary, LONGEST)
    encoder.shard_size = 1000
    short = ["\n".join(lines) for lines in documents if len(lines) < STRETCH]
    write_store(short, encoder, tmp_path / "it")
    corpus = EncodedDocuments.open(tmp_path / "it")
    shards = corpus.sentences.starts
    assert len(shards) > 12
    source = pairs(corpus, vocabulary, window=2 * int(corpus.sentences.shard_sizes.max()))
    used, foreign, pools = list[int](), 0, dict[str, set[int]]()
    for after, (rows, key) in source.order(Position(1)):
        pool = pools.setdefault(key.rsplit(" ", 1)[0], set())
        for first, second, is_random in zip(rows.first, rows.second, rows.random, strict=True):
            used += range(*first)
            if not is_random:
                used += range(*second)
                continue
            one, other = (
                np.searchsorted(corpus.starts, part[0], "right") for part in (first, second)
            )
            assert one != other
            foreign += 1
            pool.add(int(np.searchsorted(shards, second[0], "right")))
        if after.epoch:
            break
    assert sorted(used) == list(range(len(corpus.sentences)))
    assert foreign > 50
    assert max(map(len, pools.values())) <= 4  # a pool may be in two windows
