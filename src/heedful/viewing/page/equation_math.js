// The attention equation for one query, in numbers that can be changed: every later step is computed from them.

/** @typedef {import("./types.js").EquationRow} EquationRow */

/**
 * Numbers that the user changed; a step that is not changed is computed from the steps before it.
 * @typedef {object} Edits
 * @property {Map<number, number>} query component → number
 * @property {Map<string, number>} keys "key component" → number
 * @property {Map<number, number>} products key → qᵀk
 * @property {number | null} scale
 * @property {Map<number, number>} added key → number
 * @property {Map<number, boolean>} allowed key → whether the query may attend to it
 * @property {Map<number, number>} weights key → weight
 */

/**
 * All steps for one query.
 * @typedef {object} Steps
 * @property {number[]} query
 * @property {number[][]} keys
 * @property {number[]} products qᵀk of each key, or vᵀ tanh(q + k)
 * @property {number} scale
 * @property {number[]} scaled
 * @property {number[]} scores with what positions and masks add
 * @property {boolean[]} allowed
 * @property {number[]} powers exp of the scores, relative to the largest
 * @property {number} total the sum of the powers
 * @property {number} largest the score that powers are relative to
 * @property {number[]} weights
 * @property {number[]} context
 */

/** @returns {Edits} */
export function noEdits() {
  return {
    query: new Map(), keys: new Map(), products: new Map(), scale: null, added: new Map(), allowed: new Map(), weights: new Map(),
  };
}

/** @param {Edits} edits */
export function countEdits(edits) {
  const { scale, ...maps } = edits;
  return Object.values(maps).reduce((sum, one) => sum + one.size, scale === null ? 0 : 1);
}

/**
 * @param {EquationRow} row
 * @param {Edits} edits
 * @returns {Steps}
 */
export function computeSteps(row, edits) {
  const query = row.query.map((number, d) => edits.query.get(d) ?? number);
  const keys = row.keys.map((key, k) => (edits.keys.size ? key.map((number, d) => edits.keys.get(`${k} ${d}`) ?? number) : key));
  const scale = edits.scale ?? row.scale;
  const products = keys.map((key, k) => edits.products.get(k) ?? productOf(row, query, key, k));
  const scaled = products.map((product) => product * scale);
  const scores = scaled.map((number, k) => number + (edits.added.get(k) ?? row.added[k]));
  const allowed = row.allowed.map((may, k) => edits.allowed.get(k) ?? may);
  const { powers, total, largest } = exponentials(row, scores, allowed);
  // Weights of another normalizer are not computed here.
  const normalised = row.softmax_scale === null ? row.weights : powers.map((power) => (total ? power / total : 0));
  const weights = normalised.map((weight, k) => edits.weights.get(k) ?? weight);
  const context = row.context.map((_, e) => weights.reduce((sum, weight, k) => sum + weight * row.values[k][e], row.added_context[e]));
  return { query, keys, products, scale, scaled, scores, allowed, powers, total, largest, weights, context };
}

/**
 * @param {EquationRow} row
 * @param {number[]} query
 * @param {number[]} key
 * @param {number} k
 */
function productOf(row, query, key, k) {
  if (row.score === "other") return row.scores[k];
  return contributions(row, query, key).reduce((sum, number) => sum + number, 0);
}

/**
 * The terms of the sum qᵀk, or vᵀ tanh(q + k): one for each component.
 * @param {EquationRow} row
 * @param {number[]} query
 * @param {number[]} key
 */
export function contributions(row, query, key) {
  const { vector } = row;
  if (row.score === "additive" && vector) return query.map((number, d) => vector[d] * Math.tanh(number + key[d]));
  return query.map((number, d) => number * key[d]);
}

/**
 * @param {EquationRow} row
 * @param {number[]} scores
 * @param {boolean[]} allowed
 */
function exponentials(row, scores, allowed) {
  const factor = row.softmax_scale ?? 1;
  const sink = row.sink ?? -Infinity;
  // The largest score is subtracted, so that no power overflows.
  const largest = Math.max(sink, ...scores.filter((_, k) => allowed[k]));
  const powers = scores.map((score, k) => (allowed[k] ? Math.exp(factor * (score - largest)) : 0));
  const total = powers.reduce((sum, power) => sum + power, Number.isFinite(sink) ? Math.exp(factor * (sink - largest)) : 0);
  return { powers, total, largest };
}

/**
 * The keys with the largest weights, in their order.
 * @param {number[]} weights
 * @param {number} count
 */
export function largestKeys(weights, count) {
  const order = weights.map((_, k) => k).sort((one, other) => Math.abs(weights[other]) - Math.abs(weights[one]) || one - other);
  return order.slice(0, count).sort((one, other) => one - other);
}
