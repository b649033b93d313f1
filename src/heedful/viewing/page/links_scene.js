// Links between tokens: which are shown, and their curves. This module knows no page and no canvas.

/** @typedef {import("./types.js").Matrix} Matrix */

/** @typedef {{name: string, colour: string, matrix: Matrix}} Strand the weights of one head, or of several, in one colour */

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/**
 * Where the tokens are. In "rows", keys are above queries; in "columns", keys are left of queries. In arcs, queries and
 * keys are the same tokens.
 * @typedef {object} Scene
 * @property {"rows" | "columns" | "arcs" | "column-arcs"} layout
 * @property {Box[]} keys
 * @property {Box[]} queries
 * @property {number} reach height of the longest arc
 * @property {boolean} mirrored whether the text runs from right to left
 * @property {number} thick width of a link with the largest weight
 */

/**
 * Links that are drawn, ordered from weak to strong.
 * @typedef {object} Links
 * @property {Uint32Array} query
 * @property {Uint32Array} key
 * @property {Uint16Array} strand
 * @property {Float32Array} weight
 * @property {Uint8Array} level strength of the drawing, 0 to LEVELS − 1
 * @property {number} all the number of links, including hidden ones
 */

export const LEVELS = 24;
export const THRESHOLDS = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];
// The default threshold shows at most this number of links.
const MANY = 2000;

/**
 * @param {Strand[]} strands
 * @param {number} threshold smallest weight that is shown, as a share of `scale`
 * @param {number} scale the weight with the full width
 * @param {boolean} causal whether links to later tokens do not exist
 * @returns {Links}
 */
export function collectLinks(strands, threshold, scale, causal) {
  const least = threshold * scale;
  let all = 0;
  /** @type {number[][]} */
  const found = Array.from({ length: LEVELS }, () => []);
  strands.forEach(({ matrix }, strand) => {
    for (let query = 0; query < matrix.rows; query++) {
      const end = causal ? query + 1 : matrix.columns;
      all += end;
      for (let key = 0; key < end; key++) {
        const weight = Math.abs(matrix.values[query * matrix.columns + key]);
        if (weight > 0 && weight >= least) found[levelOf(weight / scale)].push(strand, query, key);
      }
    }
  });
  const count = found.reduce((sum, own) => sum + own.length / 3, 0);
  const links = {
    query: new Uint32Array(count), key: new Uint32Array(count), strand: new Uint16Array(count),
    weight: new Float32Array(count), level: new Uint8Array(count), all,
  };
  let at = 0;
  found.forEach((own, level) => {
    for (let i = 0; i < own.length; i += 3) {
      const { matrix } = strands[own[i]];
      links.strand[at] = own[i];
      links.query[at] = own[i + 1];
      links.key[at] = own[i + 2];
      links.weight[at] = matrix.values[own[i + 1] * matrix.columns + own[i + 2]];
      links.level[at] = level;
      at += 1;
    }
  });
  return links;
}

/**
 * The smallest threshold that leaves a readable number of links.
 * @param {Strand[]} strands
 * @param {number} scale
 */
export function defaultThreshold(strands, scale) {
  const shares = THRESHOLDS.slice(1);
  return shares.find((share) => {
    let shown = 0;
    for (const { matrix } of strands) for (const weight of matrix.values) if (Math.abs(weight) >= share * scale) shown += 1;
    return shown <= MANY;
  }) ?? shares[shares.length - 1];
}

/** @param {number} share of the largest weight */
function levelOf(share) {
  return Math.min(LEVELS - 1, Math.floor(Math.min(share, 1) * LEVELS));
}

/**
 * The width and opacity of a link.
 * @param {number} level
 * @param {number} thick
 */
export function bandStyle(level, thick) {
  const share = (level + 0.5) / LEVELS;
  return { width: Math.max(0.75, share * thick), opacity: 0.1 + 0.78 * Math.pow(share, 0.7) };
}

/**
 * The curve of a link from its key to its query: x and y of the start, two control points and the end.
 * @param {Scene} scene
 * @param {number} query
 * @param {number} key
 * @param {number} spread the place of the strand, −0.5 to 0.5
 * @param {Float64Array} out
 */
export function linkCurve(scene, query, key, spread, out) {
  const from = scene.keys[key];
  const to = scene.queries[query];
  if (scene.layout === "rows") {
    const [x0, x1] = [middle(from.x, from.width, spread), middle(to.x, to.width, spread)];
    const [y0, y1] = [from.y + from.height, to.y];
    set(out, x0, y0, x0, y0 + (y1 - y0) * 0.5, x1, y0 + (y1 - y0) * 0.5, x1, y1);
  } else if (scene.layout === "columns") {
    const [y0, y1] = [middle(from.y, from.height, spread), middle(to.y, to.height, spread)];
    const [x0, x1] = scene.mirrored ? [from.x, to.x + to.width] : [from.x + from.width, to.x];
    set(out, x0, y0, x0 + (x1 - x0) * 0.5, y0, x0 + (x1 - x0) * 0.5, y1, x1, y1);
  } else arcCurve(scene, query, key, spread, out);
}

/**
 * An arc above the line (or to the right of the column) to an earlier token, below it to a later one.
 * @param {Scene} scene
 * @param {number} query
 * @param {number} key
 * @param {number} spread
 * @param {Float64Array} out
 */
function arcCurve(scene, query, key, spread, out) {
  const across = scene.layout === "arcs";
  const from = scene.keys[key];
  const to = scene.queries[query];
  const later = key > query;
  const [fromAt, fromSize, toAt, toSize] = across ? [from.x, from.width, to.x, to.width] : [from.y, from.height, to.y, to.height];
  const own = query === key ? Math.min(toSize * 0.3, 12) : 0;
  const a = middle(fromAt, fromSize, spread) - own;
  const b = middle(toAt, toSize, spread) + own;
  const first = scene.queries[0];
  const last = scene.queries[scene.queries.length - 1];
  const longest = across ? Math.abs(last.x - first.x) : Math.abs(last.y - first.y);
  const height = own ? 16 : 14 + (scene.reach - 14) * Math.pow(Math.abs(b - a) / Math.max(longest, 1), 0.75);
  // A cubic curve reaches three quarters of the height of its control points.
  if (across) {
    const edge = later ? to.y + to.height : to.y;
    const top = later ? edge + height / 0.75 : edge - height / 0.75;
    set(out, a, edge, a, top, b, top, b, edge);
  } else {
    const right = later === scene.mirrored;
    const side = (/** @type {Box} */ box) => (right ? box.x + box.width : box.x);
    const far = (right ? Math.max(side(from), side(to)) : Math.min(side(from), side(to))) + (right ? height : -height) / 0.75;
    set(out, side(from), a, far, a, far, b, side(to), b);
  }
}

/**
 * @param {number} from
 * @param {number} size
 * @param {number} spread
 */
function middle(from, size, spread) {
  return from + size / 2 + spread * Math.min(size * 0.7, 26);
}

/**
 * @param {Float64Array} out
 * @param {number} a @param {number} b @param {number} c @param {number} d
 * @param {number} e @param {number} f @param {number} g @param {number} h
 */
function set(out, a, b, c, d, e, f, g, h) {
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
  out[4] = e;
  out[5] = f;
  out[6] = g;
  out[7] = h;
}

/**
 * Shorten a curve to its first part.
 * @param {Float64Array} curve is changed
 * @param {number} share 0 to 1
 */
export function cutCurve(curve, share) {
  for (const axis of [0, 1]) {
    const mix = (/** @type {number} */ a, /** @type {number} */ b) => a + (b - a) * share;
    const [a, b, c, d] = [curve[axis], curve[axis + 2], curve[axis + 4], curve[axis + 6]];
    const [ab, bc, cd] = [mix(a, b), mix(b, c), mix(c, d)];
    const [abc, bcd] = [mix(ab, bc), mix(bc, cd)];
    curve[axis + 2] = ab;
    curve[axis + 4] = abc;
    curve[axis + 6] = mix(abc, bcd);
  }
}

/**
 * The place of a strand among several, −0.5 to 0.5.
 * @param {number} strand
 * @param {number} count
 */
export function strandSpread(strand, count) {
  return count > 1 ? strand / (count - 1) - 0.5 : 0;
}

/**
 * The links of one token: those that it reads, and those by which it is read.
 * @param {Links} links
 * @param {{query: number, key: number}} token −1 for none
 * @returns {Uint32Array} indices of links, from weak to strong
 */
export function linksOf(links, { query, key }) {
  const found = [];
  for (let i = 0; i < links.query.length; i++) if (links.query[i] === query || links.key[i] === key) found.push(i);
  return Uint32Array.from(found);
}
