// The alignment panel: attention from generated tokens to source tokens.

import { element, messageOf, segments } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { hardMatrix, rowEntropies } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { titles } from "./overview.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

/**
 * @param {LoadedTrace} trace
 * @param {{hard: boolean, words: boolean}} how
 * @returns {Promise<Picture>}
 */
export async function alignmentPicture(trace, { hard, words }) {
  const found = await trace.alignmentMatrix();
  const taken = words ? await trace.wordAlignment() : found;
  const surprise = trace.summary.log_probabilities;
  const bars = [];
  const confidence = words
    ? meanOfWords(surprise, /** @type {{rowWords: number[]}} */ (taken).rowWords, taken.matrix.rows)
    : surprise.slice(0, taken.matrix.rows);
  // Rows that are not generated tokens, such as those of a pooling, have no probability.
  if (surprise.length && found.map.written) {
    bars.push({ title: "confidence", unit: "", values: confidence.map((one) => Math.exp(one)), most: 1 });
  }
  const entropies = rowEntropies(taken.matrix);
  bars.push({ title: "entropy", unit: " bits", values: entropies, most: Math.log2(Math.max(taken.matrix.columns, 2)) });
  const matrix = hard ? hardMatrix(taken.matrix) : taken.matrix;
  return {
    title: `Alignment: ${trace.summary.title}`,
    layers: [{ name: found.map.name, matrix, colour: null }],
    rows: taken.rows,
    columns: taken.columns,
    ...titles(found.map),
    bars,
  };
}

/**
 * @param {number[]} values
 * @param {number[]} words
 * @param {number} count
 */
function meanOfWords(values, words, count) {
  const sums = new Array(count).fill(0);
  const counts = new Array(count).fill(0);
  words.forEach((word, i) => {
    if (word < 0 || i >= values.length) return;
    sums[word] += values[i];
    counts[word] += 1;
  });
  return sums.map((sum, i) => (counts[i] ? sum / counts[i] : 0));
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function alignmentPanel(page) {
  const how = { hard: false, words: false };
  const view = new MatrixView(page, { label: "Alignment. Arrow keys move between cells." });
  const notice = element("p", { class: "heed-notice", role: "status" });
  const where = element("p", { class: "heed-where" });
  const notes = element(
    "div", { class: "heed-notes" }, where,
    element("p", { class: "heed-hint" }, "Confidence: the probability of each generated token; for a word, the geometric mean over its tokens."),
    element(
      "p", { class: "heed-hint" },
      "Entropy: how widely attention is spread. 0 bits: one position; 1 bit: two; 2 bits: four.",
    ),
  );
  /** @type {Picture | null} */
  let picture = null;

  let asked = 0;

  async function show() {
    const mine = ++asked;
    try {
      const trace = await page.session.current();
      const made = await alignmentPicture(trace, how);
      // Show the result of the last request only.
      if (mine !== asked) return;
      picture = made;
      notice.textContent = "";
      where.textContent = `From ${picture.layers[0].name}, ${headsOf(trace)}.`;
      view.body.hidden = notes.hidden = false;
      view.show(picture);
    } catch (error) {
      if (mine !== asked) return;
      picture = null;
      view.body.hidden = notes.hidden = true;
      where.textContent = "";
      notice.textContent = messageOf(error);
    }
  }

  const body = element(
    "div", { class: "heed-panel" },
    element(
      "div", { class: "heed-tools" },
      segments("Weights", [{ value: "soft", text: "Soft" }, { value: "hard", text: "Hard" }], "soft", (value) => {
        how.hard = value === "hard";
        show();
      }),
      segments("Units", [{ value: "tokens", text: "Tokens" }, { value: "words", text: "Words" }], "tokens", (value) => {
        how.words = value === "words";
        show();
      }),
      exportButtons(() => picture, () => `alignment-${how.hard ? "hard" : "soft"}`, page.announce),
    ),
    notice,
    element("div", { class: "heed-beside" }, view.body, notes),
  );
  return { name: "alignment", title: "Alignment", body, show };
}

/** @param {LoadedTrace} trace */
function headsOf(trace) {
  const heads = trace.alignment?.heads;
  const all = trace.alignment ? trace.summary.maps[trace.alignment.map].heads : 0;
  if (all === 1) return "its one head";
  if (!heads || heads.length === all) return `the mean of its ${all} heads`;
  return heads.length === 1 ? `head ${heads[0] + 1}` : `the mean of heads ${heads.map((head) => head + 1).join(", ")}`;
}
