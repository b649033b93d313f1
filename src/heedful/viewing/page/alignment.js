// The alignment panel: the attention of each output token over the source tokens.

import { element, messageOf, radioGroup } from "./elements.js";
import { term } from "./glossary.js";
import { exportButtons } from "./exporting.js";
import { FramePlayer } from "./frame_player.js";
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
  const chosen = words ? await trace.wordAlignment() : found;
  const logProbabilities = trace.summary.log_probabilities;
  const bars = [];
  const confidence = words
    ? wordMeans(logProbabilities, /** @type {{rowWords: number[]}} */ (chosen).rowWords, chosen.matrix.rows)
    : logProbabilities.slice(0, chosen.matrix.rows);
  // Only rows of output tokens have a probability; those of a pooling layer have none.
  if (logProbabilities.length && found.map.written) {
    bars.push({ title: "confidence", unit: "", values: confidence.map((one) => Math.exp(one)), max: 1 });
  }
  const entropies = rowEntropies(chosen.matrix);
  bars.push({ title: "entropy", unit: " bits", values: entropies, max: Math.log2(Math.max(chosen.matrix.columns, 2)) });
  const matrix = hard ? hardMatrix(chosen.matrix) : chosen.matrix;
  return {
    title: `Alignment: ${trace.summary.title}`,
    layers: [{ name: found.map.name, matrix, colour: null }],
    rows: chosen.rows,
    columns: chosen.columns,
    ...(words ? {} : { rowWords: found.rowWords, columnWords: found.columnWords }),
    ...titles(found.map),
    bars,
    whole: trace.summary.kinds[found.map.key_axis].kind === "time",
  };
}

/**
 * @param {number[]} values
 * @param {number[]} words
 * @param {number} count
 */
function wordMeans(values, words, count) {
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
  /** @type {MatrixView} */
  const view = new MatrixView(page, {
    label: "Alignment. Use the arrow keys to move between cells.", titled: true, chosen: (row) => frames.play([row, row]),
  });
  const frames = new FramePlayer(view.body);
  const notice = element("p", { class: "heed-notice", role: "status" });
  const where = element("p", { class: "heed-detail" });
  const confidence = element("p", { class: "heed-hint" }, "Confidence: the probability of each output token; for a word, the geometric mean over its tokens.");
  const notes = element(
    "div", { class: "heed-notes" }, where,
    confidence,
    element(
      "p", { class: "heed-hint" },
      term("entropy", "Entropy"), ": how many positions the attention is spread over. 0 bits means one position, 1 bit two, 2 bits four.",
    ),
  );
  /** @type {Picture | null} */
  let picture = null;

  let requests = 0;

  async function show() {
    const request = ++requests;
    try {
      const trace = await page.session.current();
      const picture_ = await alignmentPicture(trace, how);
      // Ignore the result of an earlier request.
      if (request !== requests) return;
      picture = picture_;
      notice.textContent = "";
      if (trace.alignment) frames.of(trace.summary.kinds[trace.summary.maps[trace.alignment.map].query_axis]);
      where.textContent = `From ${picture.layers[0].name}, ${describeHeads(trace)}.`;
      view.body.hidden = notes.hidden = false;
      confidence.hidden = !picture.bars.some(({ title }) => title === "confidence");
      view.show(picture);
    } catch (error) {
      if (request !== requests) return;
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
      radioGroup("Show", [{ value: "soft", text: "Weights" }, { value: "hard", text: "Links" }], "soft", (value) => {
        how.hard = value === "hard";
        show();
      }),
      radioGroup("Units", [{ value: "tokens", text: "Tokens" }, { value: "words", text: "Words" }], "tokens", (value) => {
        how.words = value === "words";
        show();
      }),
      exportButtons(() => picture, () => `alignment-${how.hard ? "hard" : "soft"}`, page.announce),
    ),
    notice,
    element("div", { class: "heed-with-notes" }, view.body, notes),
  );
  return { name: "alignment", title: "Alignment", body, show };
}

/** @param {LoadedTrace} trace */
function describeHeads(trace) {
  const heads = trace.alignment?.heads;
  const all = trace.alignment ? trace.summary.maps[trace.alignment.map].heads : 0;
  if (all === 1) return "its only head";
  if (!heads || heads.length === all) return `the mean of its ${all} heads`;
  return heads.length === 1 ? `head ${heads[0] + 1}` : `the mean of heads ${heads.map((head) => head + 1).join(", ")}`;
}
