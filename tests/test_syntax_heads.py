"""Heads against dependency arcs: trees, weights between words, accuracies, shares and maps."""

import lzma
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon, pdist, squareform

from heedful.basics.errors import UserError
from heedful.data.readers.trees import ROOT, Tree, read_trees
from heedful.evaluation.head_shares import HeadShares
from heedful.evaluation.scaling import scaled_to
from heedful.evaluation.syntax_heads import (
    ALL,
    DIRECTIONS,
    TO_DEPENDENT,
    TO_HEAD,
    ArcCounts,
    count_arcs,
    relation_scores,
    strongest_words,
)
from heedful.inference.word_reader import BOUNDARY, word_weights

CONLLU = """# text = The dog's barks
1-2\tThe dog\t_\t_\t_\t_\t_\t_\t_\t_
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\t_\t_\t4\tnmod:poss\t_\t_
2.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_
3\t's\t's\tPART\t_\t_\t2\tcase\t_\t_
4\tbarks\tbark\tNOUN\t_\t_\t0\troot\t_\t_

"""


def test_trees_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu.xz"
    path.write_bytes(lzma.compress((CONLLU * 2).encode()))
    trees = list(read_trees(path))
    assert len(trees) == 2
    assert trees[1] == Tree(
        ("The", "dog", "'s", "barks"),
        ("DET", "NOUN", "PART", "NOUN"),
        (1, 3, 1, ROOT),
        ("det", "nmod:poss", "case", "root"),
    )
    assert trees[0].depths() == [2, 1, 2, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t2\tdet", "\t9\tdet", "sentence 1: the head '9' is not the number"),
        ("\t2\tdet", "\tx\tdet", "sentence 1: the head 'x' is not the number"),
        ("\t0\troot", "\t2\troot", "sentence 1: the arcs of this sentence have a cycle"),
        ("\t2\tdet", "\t_\tdet", "has no head"),
        ("\t2\tdet", "\t2\t_", "has no deprel"),
    ],
)
def test_wrong_trees_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        list(read_trees(path))


def test_weights_between_words_are_sums_and_means() -> None:
    torch.manual_seed(1)
    words = [BOUNDARY, 0, 0, 1, 2, 2, 2, BOUNDARY]
    weights = torch.rand(3, 8, 8, dtype=torch.double)
    found = word_weights(weights, words)
    for head in range(3):
        for i in range(3):
            for j in range(3):
                rows = [
                    sum(float(weights[head, q, k]) for k in range(8) if words[k] == j)
                    for q in range(8)
                    if words[q] == i
                ]
                assert float(found[head, i, j]) == pytest.approx(sum(rows) / len(rows), abs=1e-12)


def random_tree(words: int, generator: torch.Generator) -> Tree:
    heads = [ROOT]
    for word in range(1, words):
        heads.append(int(torch.randint(word, (1,), generator=generator)))
    order = torch.randperm(words, generator=generator).tolist()
    place = {old: new for new, old in enumerate(order)}
    moved = [ROOT if heads[old] == ROOT else place[heads[old]] for old in order]
    names = ["det", "nsubj", "punct"]
    relations = tuple(
        "root" if head == ROOT else names[int(torch.randint(3, (1,), generator=generator))]
        for head in moved
    )
    return Tree(("w",) * words, ("X",) * words, tuple(moved), relations)


@pytest.mark.parametrize("causal", [False, True])
def test_accuracies_are_those_of_loops(causal: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    trees = [random_tree(size, generator) for size in (1, 2, 7, 12, 9)]
    weights = []
    for tree in trees:
        own = torch.rand(4, len(tree.words), len(tree.words), generator=generator)
        weights.append(own.tril() if causal else own)
    chosen = ((i, strongest_words(w, causal=causal)) for i, w in enumerate(weights))
    counts = count_arcs(trees, chosen, 4, causal=causal)
    for direction in DIRECTIONS:
        for relation in ("det", "nsubj", "punct", ALL):
            right, arcs = [0] * 4, 0
            for tree, own in zip(trees, weights, strict=True):
                for word, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
                    wanted_relation = name != "punct" if relation == ALL else name == relation
                    if head == ROOT or not wanted_relation:
                        continue
                    asked, wanted = (word, head) if direction == TO_HEAD else (head, word)
                    if causal and wanted > asked:
                        continue
                    arcs += 1
                    for number in range(4):
                        others = [
                            (float(own[number, asked, other]), -other)
                            for other in range(asked if causal else len(tree.words))
                            if other != asked
                        ]
                        right[number] += -max(others)[1] == wanted
            assert counts.arcs[direction, relation] == arcs > 0
            assert counts.accuracy(direction, relation).tolist() == pytest.approx(
                [one / arcs for one in right]
            )


def test_heads_and_offsets_are_chosen_on_other_sentences() -> None:
    tree = Tree(tuple("abcd"), ("X",) * 4, (1, ROOT, 1, 2), ("det", "root", "obj", "det"))
    other = Tree(tuple("abcd"), ("X",) * 4, (1, ROOT, 3, 1), ("det", "root", "det", "obj"))
    following = torch.tensor([[1, 2, 3, 2], [3, 3, 0, 2]])  # the next word; something else
    first, second = ArcCounts(2), ArcCounts(2)
    first.add(following, tree)  # det: words 0 and 3, heads 1 and 2: both heads find word 3's
    second.add(following, other)  # det: words 0 and 2, heads 1 and 3: only the first head is right
    found = {(one.relation, one.direction): one for one in relation_scores(first, second, 1)}
    det = found["det", TO_HEAD]
    # Head 1 finds both arcs of the first sentence (0 → 1, 3 → 2), and both of the second.
    assert (det.arcs, det.head, det.accuracy) == (2, 0, 1.0)
    # The offsets +1 and −1 are equally good there; the smaller one is chosen, and is never right.
    assert (det.offset, det.baseline) == (-1, 0.0)
    assert ("root", TO_HEAD) not in found
    assert found[ALL, TO_DEPENDENT].arcs == 3
    assert not relation_scores(first, second, 4)


def test_counts_of_other_sentences_are_refused() -> None:
    tree = Tree(tuple("ab"), ("X",) * 2, (1, ROOT), ("det", "root"))
    with pytest.raises(ValueError, match="predictions for 2 words"):
        ArcCounts(2).add(torch.zeros(2, 3, dtype=torch.long), tree)


def test_heads_that_look_at_one_place_have_a_share_of_one() -> None:
    length = 5
    eye = torch.eye(length)
    first, last = torch.zeros(2, length, length)
    first[:, 0], last[:, -1] = 1, 1
    even = torch.full((length, length), 1 / length)
    previous, following = eye.roll(-1, 1), eye.roll(1, 1)
    previous[0], following[-1] = even[0], even[0]
    shares = HeadShares(6, causal=False)
    shares.add(torch.stack([previous, following, eye, first, last, even]))
    means = shares.means()
    for head, name in enumerate(("previous", "next", "same", "first", "separator")):
        assert float(means[name][head]) == pytest.approx(1)
        assert float(means[name][5]) == pytest.approx(1 / length)
    assert means["largest"].tolist() == pytest.approx([0.84, 0.84, 1, 1, 1, 0.2])
    assert float(means["entropy"][5]) == pytest.approx(math.log(5))
    assert means["relative entropy"].tolist() == pytest.approx([0.2, 0.2, 0, 0, 0, 1])
    distances = shares.distances()
    assert float(distances[2, 3]) == pytest.approx(0.8)  # equal for the first token only
    assert float(distances[3, 4]) == pytest.approx(1)
    assert float(distances[3, 5]) == pytest.approx(jensenshannon(first[0], even[0], base=2))


def test_shares_of_causal_heads_and_means_over_texts() -> None:
    shares = HeadShares(1, causal=True)
    even = torch.ones(3, 3).tril()
    shares.add((even / even.sum(1, keepdim=True))[None])
    shares.add(torch.ones(1, 1, 1))
    means = shares.means()
    assert "next" not in means
    assert "separator" not in means
    assert float(means["relative entropy"]) == pytest.approx(1)
    assert float(means["entropy"]) == pytest.approx((math.log(2) + math.log(3)) / 4)
    assert float(means["same"]) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1) / 4)
    assert float(means["previous"]) == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_points_are_recovered_from_their_distances() -> None:
    points = np.random.default_rng(1).normal(size=(9, 2))
    distances = squareform(pdist(points))
    found = scaled_to(torch.tensor(distances))
    assert found.stress < 1e-9
    assert squareform(pdist(found.points.numpy())) == pytest.approx(distances, abs=1e-9)
    # In three dimensions, the plane of largest variance is kept.
    deep = np.random.default_rng(2).normal(size=(9, 3)) * [5, 2, 0.1]
    flat = scaled_to(torch.tensor(squareform(pdist(deep))))
    assert 0 < flat.stress < 0.05
    centred = deep - deep.mean(0)
    values = np.linalg.svd(centred, compute_uv=False)
    assert flat.points.norm(dim=0).numpy() == pytest.approx(values[:2])
