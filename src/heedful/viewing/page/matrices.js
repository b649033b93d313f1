// Functions of matrices of weights, independent of the page.

/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./types.js").MapFacts} MapFacts */

/**
 * @param {number} rows
 * @param {number} columns
 * @param {Float32Array} values
 * @param {number} [peak]
 * @returns {Matrix}
 */
export function matrixOf(rows, columns, values, peak) {
  let maximum = peak ?? 0;
  if (peak === undefined) for (const value of values) if (Math.abs(value) > maximum) maximum = Math.abs(value);
  return { rows, columns, values, peak: maximum };
}

/**
 * Decode one head of a map. With steps, the rows are the queries of the first step, then those of the second, …
 * @param {Uint8Array} bytes [heads, steps, queries, keys]
 * @param {MapFacts} map
 * @param {number} head
 * @returns {Matrix}
 */
export function headMatrix(bytes, map, head) {
  const rows = map.steps * map.queries;
  const size = rows * map.keys;
  const part = bytes.subarray(head * size, (head + 1) * size);
  const values = new Float32Array(size);
  const scale = map.scale[head];
  for (let i = 0; i < size; i++) {
    values[i] = map.negative ? ((part[i] - 128) / 127) * scale : (part[i] / 255) * scale;
  }
  return matrixOf(rows, map.keys, values, scale);
}

/**
 * @param {Matrix[]} matrices all of the same shape
 * @returns {Matrix}
 */
export function meanMatrix(matrices) {
  const [first] = matrices;
  const values = new Float32Array(first.values.length);
  for (const one of matrices) for (let i = 0; i < values.length; i++) values[i] += one.values[i] / matrices.length;
  return matrixOf(first.rows, first.columns, values);
}

/**
 * Rows become columns.
 * @param {Matrix} matrix
 * @returns {Matrix}
 */
export function transposed({ rows, columns, values, peak }) {
  const turned = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) turned[column * rows + row] = values[row * columns + column];
  }
  return matrixOf(columns, rows, turned, peak);
}

/**
 * @param {Matrix} matrix
 * @param {number} from
 * @param {number} to
 * @returns {Matrix}
 */
export function sliceRows(matrix, from, to) {
  const { columns } = matrix;
  return matrixOf(to - from, columns, matrix.values.slice(from * columns, to * columns));
}

/**
 * @param {Matrix} matrix
 * @param {number} row
 * @returns {Float32Array}
 */
export function rowOf(matrix, row) {
  return matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);
}

/**
 * The index of the largest weight of a row; -1 if none is positive.
 * @param {Matrix} matrix
 * @param {number} row
 */
export function argmax(matrix, row) {
  const values = rowOf(matrix, row);
  let best = -1;
  for (let i = 0; i < values.length; i++) if (values[i] > (best < 0 ? 0 : values[best])) best = i;
  return best;
}

/**
 * The first and last index of the central part of some weights, which has at least a share of their sum; null if all are 0.
 * @param {ArrayLike<number>} weights
 * @param {number} share
 * @returns {[number, number] | null}
 */
export function centralPart(weights, share) {
  const all = Array.from(weights, Math.abs).reduce((sum, one) => sum + one, 0);
  if (!all) return null;
  const edge = (all * (1 - share)) / 2;
  let [first, last] = [0, weights.length - 1];
  for (let sum = Math.abs(weights[first]); sum <= edge; sum += Math.abs(weights[first])) first += 1;
  for (let sum = Math.abs(weights[last]); sum <= edge && last > first; sum += Math.abs(weights[last])) last -= 1;
  return [first, last];
}

/**
 * A matrix with 1 at the largest weight of each row and 0 elsewhere.
 * @param {Matrix} matrix
 * @returns {Matrix}
 */
export function hardMatrix(matrix) {
  const values = new Float32Array(matrix.values.length);
  for (let row = 0; row < matrix.rows; row++) {
    const best = argmax(matrix, row);
    if (best >= 0) values[row * matrix.columns + best] = 1;
  }
  return matrixOf(matrix.rows, matrix.columns, values, 1);
}

/**
 * Weights between words: summed over the tokens of a column's word, averaged over those of a row's word.
 * @param {Matrix} matrix
 * @param {number[]} rowWords the word of each row; -1 for none
 * @param {number[]} columnWords
 * @returns {Matrix}
 */
export function poolByWord(matrix, rowWords, columnWords) {
  const rows = rowWords.reduce((maximum, word) => Math.max(maximum, word), -1) + 1;
  const columns = columnWords.reduce((maximum, word) => Math.max(maximum, word), -1) + 1;
  const counts = new Array(rows).fill(0);
  for (const word of rowWords) if (word >= 0) counts[word] += 1;
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < Math.min(matrix.rows, rowWords.length); row++) {
    const word = rowWords[row];
    if (word < 0) continue;
    for (let column = 0; column < Math.min(matrix.columns, columnWords.length); column++) {
      const other = columnWords[column];
      if (other < 0) continue;
      values[word * columns + other] += matrix.values[row * matrix.columns + column] / counts[word];
    }
  }
  return matrixOf(rows, columns, values);
}

/**
 * The entropy of each row, normalised to a sum of 1, in bits.
 * @param {Matrix} matrix
 * @returns {number[]}
 */
export function rowEntropies(matrix) {
  return Array.from({ length: matrix.rows }, (_, row) => {
    let sum = 0;
    let weighted = 0;
    for (const weight of rowOf(matrix, row)) {
      if (weight <= 0) continue;
      sum += weight;
      weighted += weight * Math.log2(weight);
    }
    return sum > 0 ? Math.max(Math.log2(sum) - weighted / sum, 0) : 0;
  });
}

/**
 * Max pooling over blocks of `down` × `across` cells, by absolute value.
 * @param {Matrix} matrix
 * @param {number} down
 * @param {number} across
 * @returns {Matrix}
 */
export function maxPool(matrix, down, across) {
  if (down <= 1 && across <= 1) return matrix;
  const rows = Math.ceil(matrix.rows / down);
  const columns = Math.ceil(matrix.columns / across);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < matrix.rows; row++) {
    const to = Math.floor(row / down) * columns;
    const from = row * matrix.columns;
    for (let column = 0; column < matrix.columns; column++) {
      const place = to + Math.floor(column / across);
      const value = matrix.values[from + column];
      if (Math.abs(value) > Math.abs(values[place])) values[place] = value;
    }
  }
  return matrixOf(rows, columns, values, matrix.peak);
}

/**
 * The indices of the `count` largest absolute values, in ascending order.
 * @param {ArrayLike<number>} values
 * @param {number} count
 * @returns {number[]}
 */
export function topIndices(values, count) {
  const places = Array.from({ length: values.length }, (_, i) => i);
  places.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);
  return places.slice(0, count).sort((a, b) => a - b);
}

/**
 * At most `count` indices around one.
 * @param {number} at
 * @param {number} all
 * @param {number} count
 */
export function windowAround(at, all, count) {
  const first = Math.max(0, Math.min(at - Math.floor(count / 2), all - count));
  return Array.from({ length: Math.min(count, all) }, (_, i) => first + i);
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]|[\ud802-\ud803\ud83a-\ud83b]/g;

/**
 * Whether most letters belong to scripts that are written from right to left.
 * @param {string[]} texts
 */
export function isRightToLeft(texts) {
  let right = 0;
  let all = 0;
  for (const text of texts) {
    if (/^<.*>$/.test(text)) continue;
    right += (text.match(RIGHT_TO_LEFT) ?? []).length;
    all += (text.match(/\p{L}/gu) ?? []).length;
  }
  return right * 2 > all;
}

/**
 * Format a number with a typographic minus sign.
 * @param {number} value
 * @param {number} places
 */
export function formatSigned(value, places) {
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/**
 * Format a weight with the precision of its encoding in one byte.
 * @param {number} weight
 */
export function formatWeight(weight) {
  if (weight === 0) return "0";
  return (Math.abs(weight) >= 0.01 ? weight.toFixed(3) : weight.toPrecision(2)).replace(/^-/, "−");
}

/**
 * The labels of words, whose pieces are joined.
 * @param {string[]} labels
 * @param {number[]} words
 */
export function joinLabels(labels, words) {
  /** @type {string[]} */
  const joined = [];
  labels.forEach((label, i) => {
    if (words[i] >= 0) joined[words[i]] = (joined[words[i]] ?? "") + label.replace(/^·/, "");
  });
  return Array.from(joined, (label) => label ?? "");
}
