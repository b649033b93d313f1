// The Similarity panel: several texts, and the cosines of their vectors as a matrix.

import { element } from "./elements.js";
import { formatWeight, matrixOf } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { TextInput } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Embedded} Embedded */

const PAIRS = 5;
const LABEL = { wide: 34, narrow: 16 };
const NARROW = 560;

class Embed {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    /** @type {string[]} */
    this.texts = [];
    /** The number of the text that is selected after the next result. */
    this.wanted = 0;
    this.textInput = new TextInput(page, "embed", readers, {
      label: "Texts, one per line", placeholder: "Type several texts, one per line…",
      submit: (text, signal) => this.submit(text, signal), clear: () => this.show([], []),
      busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.textInput.input.rows = 8;
    this.matrix = new MatrixView(page, {
      label: "Cosines of the texts. Use the arrow keys to move between cells; Enter selects the text of a row.",
      height: 520, titled: true, chosen: (row) => this.choose(row),
    });
    this.pairs = element("ol", { class: "heed-pairs", "aria-label": "The most similar texts" });
    this.detail = element("p", { class: "heed-detail" });
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Most similar" },
      element("h2", {}, "Most similar"), this.pairs, this.detail,
    );
    this.hint = element("p", { class: "heed-hint", role: "status" });
    this.figure = element(
      "section", { class: "heed-below", "aria-label": "Similarity of all texts" },
      element("h2", {}, "Similarity of all texts"), this.matrix.body, this.hint,
    );
    const { textInput } = this;
    this.body = element(
      "div", { class: "heed-panel heed-embed" }, textInput.tools,
      element(
        "div", { class: "heed-columns" },
        element("section", { class: "heed-input" }, element("h2", {}, "Texts"), textInput.input),
        this.output,
      ),
      textInput.notice, this.figure,
    );
    page.onTheme(() => this.matrix.resize());
    this.show([], []);
  }

  /** @param {string} typed @param {AbortSignal} signal @returns {Promise<void>} */
  async submit(typed, signal) {
    const { model } = this.textInput;
    const texts = typed.split("\n").filter((line) => line.trim());
    const { results } = await this.page.provider.predict(model, { inputs: texts }, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    this.show(texts, /** @type {Embedded[]} */ (/** @type {unknown} */ (results)));
    this.choose(Math.min(this.wanted, texts.length - 1));
    this.wanted = 0;
  }

  /**
   * Replace one of the texts, and select it.
   * @param {string} text
   * @param {string} before
   */
  replaceText(text, before) {
    const line = text.replace(/\s*\n\s*/g, " ");
    const at = this.texts.indexOf(before);
    const texts = at < 0 ? [...this.texts, line] : this.texts.map((one, i) => (i === at ? line : one));
    this.wanted = at < 0 ? texts.length - 1 : at;
    this.textInput.setText(texts.join("\n"));
  }

  /**
   * Select the text whose attention other panels show.
   * @param {number} row
   */
  choose(row) {
    this.textInput.setSubject({ model: this.textInput.model, source: this.texts[row] });
    this.hint.textContent = this.texts.length < 2 ? "" : `The other panels show text ${row + 1}. Select a row of the matrix for another text.`;
  }

  /** @param {string[]} texts @param {Embedded[]} results */
  show(texts, results) {
    this.texts = texts;
    const count = texts.length;
    this.output.hidden = this.figure.hidden = !count;
    if (!count) return;
    const values = cosines(results.map(({ vector }) => vector));
    const pairs = [];
    for (let i = 0; i < count; i += 1) {
      for (let j = i + 1; j < count; j += 1) pairs.push({ i, j, cosine: values[i * count + j] });
    }
    pairs.sort((one, other) => other.cosine - one.cosine);
    this.pairs.replaceChildren(...pairs.slice(0, PAIRS).map(({ i, j, cosine }) => element(
      "li", {}, element("span", { class: "heed-number" }, formatWeight(cosine)),
      element("span", {}, element("bdi", {}, texts[i]), " — ", element("bdi", {}, texts[j])),
    )));
    const long = results.filter(({ windows }) => windows > 1).length;
    const width = results[0].vector.length;
    this.detail.textContent = (count < 2 ? "Type a second text on a line of its own to compare it. " : "")
      + `Each text has a vector of ${width} numbers. The similarity of two texts is the cosine of their vectors, which is at most 1.`
      + (long ? ` ${long} longer than the model reads at once: their vectors are means over windows.` : "");
    const most = this.page.root.clientWidth < NARROW ? LABEL.narrow : LABEL.wide;
    this.matrix.show({
      title: "Cosine of each two texts", unit: "Cosine", peak: 1, whole: true, bars: [],
      layers: [{ name: "cosine", matrix: matrixOf(count, count, values, 1), colour: null }],
      rows: texts.map((text, i) => `${i + 1} ${shortened(text, most)}`), columns: texts.map((_, i) => `${i + 1}`),
      rowTitle: "text", columnTitle: "text",
    });
    if (pairs.length) this.page.announce(`Most similar: texts ${pairs[0].i + 1} and ${pairs[0].j + 1}, ${formatWeight(pairs[0].cosine)}`);
  }
}

/**
 * The cosines of all pairs, row by row; 0 where a vector is zero.
 * @param {number[][]} vectors
 */
function cosines(vectors) {
  const lengths = vectors.map((vector) => Math.hypot(...vector) || 1);
  const found = new Float32Array(vectors.length ** 2);
  vectors.forEach((one, i) => vectors.forEach((other, j) => {
    const product = one.reduce((sum, value, at) => sum + value * other[at], 0);
    found[i * vectors.length + j] = product / lengths[i] / lengths[j];
  }));
  return found;
}

/** @param {string} text @param {number} most */
function shortened(text, most) {
  const characters = [...text.trim()];
  return characters.length <= most ? characters.join("") : `${characters.slice(0, most - 1).join("")}…`;
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const embed = new Embed(page, readers);
  const { textInput } = embed;
  if (start.text && !page.savedInputs.get("embed")) textInput.input.value = start.text;
  textInput.run();
  return {
    name: "embed", title: "Similarity", body: embed.body, hasInput: true, unit: "",
    show: () => {
      textInput.restoreSubject();
      embed.matrix.resize();
    },
    setText: (text, before) => embed.replaceText(text, before),
  };
}
