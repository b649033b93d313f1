// The example of the encyclopaedia: four words, each with two numbers that were chosen by hand (docs/attention.md).

/** @typedef {import("./types.js").EquationRow} EquationRow */

export const EXAMPLE_WORDS = ["See", "that", "girl", "run"];
/** What the two numbers of each word stand for. */
export const EXAMPLE_COMPONENTS = ["person", "act"];

const QUERIES = [[2, 1], [2, 0], [0, 2], [3, 0]];
const KEYS = [[-0.5, 0], [0.5, 0], [1, 0], [0, 1]];
const VALUES = [[0, 1], [0, 0], [1, 0], [0, 1]];

/**
 * The numbers for one word of the example.
 * @param {number} word
 * @returns {EquationRow}
 */
export function exampleRow(word) {
  const scale = Math.SQRT1_2;
  const scores = KEYS.map((key) => scale * (key[0] * QUERIES[word][0] + key[1] * QUERIES[word][1]));
  const powers = scores.map(Math.exp);
  const total = powers.reduce((sum, power) => sum + power, 0);
  const weights = powers.map((power) => power / total);
  return {
    module: "", head: 0, row: word, heads: 1, rows: QUERIES.length,
    query: QUERIES[word], keys: KEYS, values: VALUES, score: "dot", scale, vector: null, added: [0, 0, 0, 0],
    scores, allowed: [true, true, true, true], softmax_scale: 1, sink: null, weights,
    context: [0, 1].map((e) => weights.reduce((sum, weight, k) => sum + weight * VALUES[k][e], 0)),
    added_context: [0, 0], past: false,
  };
}
