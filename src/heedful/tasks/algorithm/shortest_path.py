"""Shortest paths of random graphs, here small ones: Graves et al. 2016, "Hybrid computing using a
neural network with dynamic external memory".

Shapes: B rows, T steps, I width of the inputs, O width of the outputs. A batch has one size n.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from heedful.tasks.algorithm.problem import Array, Drawn, Problem, Widths, empty_arrays


class ShortestPath(Problem):
    """The edges of a directed graph, two of its nodes, and then the shortest path between them.

    One edge a step, then the question, steps without input to think, and one node of the path a
    step, without the first. Paths with n edges are drawn such that no other path is as short.
    Inputs: the nodes from and to as one-hot vectors, and channels for the question and the answer.
    T = edges + 1 + thinking + n.
    """

    kind: Literal["shortest-path"] = "shortest-path"
    nodes: int = Field(8, ge=3, le=64)
    edges: int = Field(12, ge=2, le=1000)
    thinking: int = Field(4, ge=0, le=1000)
    """Steps between the question and the answer."""
    sizes: tuple[int, int] = (1, 3)
    size_name = "edges of the path"

    def refused(self, size: int) -> str:
        if problem := super().refused(size):
            return problem
        if size > self.nodes - 1 or size > self.edges:
            return f"a path of {size} edges needs more nodes than {size}, and as many edges"
        # Edges back along the path, to its first node and from its last one are always possible.
        most = size * (size + 3) // 2 + 2 * (self.nodes - size - 1)
        most = most if size > 1 else self.nodes * (self.nodes - 1)
        if self.edges > most:
            return f"{self.edges} edges are too many for paths of {size}: give at most {most}"
        return ""

    @property
    def widths(self) -> Widths:
        return Widths(2 * self.nodes + 2, self.nodes)

    def steps(self, size: int) -> int:
        return self.edges + 1 + self.thinking + size

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        count, first = self.edges, self.edges + 1 + self.thinking
        inputs, targets, answered = empty_arrays(rows, self.steps(size), self.widths)
        for row in range(rows):
            edges, path = self._graph(rng, size)
            at = np.arange(count)
            inputs[row, at, edges[:, 0]] = inputs[row, at, self.nodes + edges[:, 1]] = 1
            inputs[row, count, [path[0], self.nodes + path[-1]]] = 1
            targets[row, first + np.arange(size), path[1:]] = 1
        inputs[:, count, -2] = inputs[:, first:, -1] = 1
        answered[first:] = True
        return Drawn(inputs, targets, answered)

    def _graph(self, rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        """Edges ``[E, 2]`` in random order, and a path of ``size`` edges, the only shortest one.

        A random path is drawn first, and then edges that make no path of its length or shorter.
        """
        path = rng.permutation(self.nodes)[: size + 1]
        edges = list(zip(path[:-1].tolist(), path[1:].tolist(), strict=True))
        others = [(a, b) for a in range(self.nodes) for b in range(self.nodes) if a != b]
        rng.shuffle(others)
        matrix = np.zeros((self.nodes, self.nodes), np.int64)
        matrix[tuple(np.array(edges).T)] = 1
        for edge in others:
            if len(edges) == self.edges:
                break
            if matrix[edge]:
                continue
            matrix[edge] = 1
            if self._is_only(matrix, path):
                edges.append(edge)
            else:
                matrix[edge] = 0
        return rng.permutation(np.array(edges)), path

    @staticmethod
    def _is_only(matrix: Array, path: Array) -> bool:
        """Whether no other path from the first to the last node is as short as ``path``."""
        ways = np.eye(len(matrix), dtype=np.int64)[path[0]]
        for _ in range(len(path) - 2):
            ways = ways @ matrix
            if ways[path[-1]]:
                return False
        return bool((ways @ matrix)[path[-1]] == 1)
