// The importance of each word for a label, by four measures, drawn over the text.

import { element, focusedNear, radioGroup, rovingTabindex } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { matrixOf, meanMatrix, rowOf, formatSigned } from "./matrices.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Explained} Explained */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {{key: string, title: string, phrase: string, hint: string, values: number[]}} Measure */

const TEXTS = ["text", "first", "second"];
// The smallest value that can have the full colour, so that unimportant words are not highlighted.
const MIN_SCALE = 0.05;

export class WordImportance {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {Explained | null} */
    this.found = null;
    /** @type {Measure[]} */
    this.measures = [];
    this.chosen = "fall";
    this.choices = element("div");
    this.first = element("p", { class: "heed-text heed-importance-text", dir: "auto", role: "group" });
    this.second = element("p", { class: "heed-text heed-importance-text", dir: "auto", role: "group" });
    this.readout = element("p", { class: "heed-readout" });
    this.hint = element("p", { class: "heed-hint" });
    this.heading = element("h2", {});
    for (const place of [this.first, this.second]) {
      rovingTabindex(place, ".heed-word", () => 1);
      place.addEventListener("pointerover", (event) => this.showReadout(event.target));
      place.addEventListener("focusin", (event) => this.showReadout(event.target));
      place.addEventListener("pointerleave", () => this.showReadout(null));
    }
    this.body = element(
      "section", { class: "heed-importance", "aria-label": "Word importance" }, this.heading,
      element(
        "div", { class: "heed-tools" }, this.choices,
        exportButtons(() => this.picture(), () => `words-${this.chosen}`, page.announce),
      ),
      this.first, this.second, this.readout, this.hint,
    );
    this.body.hidden = true;
  }

  clear() {
    this.found = null;
    this.body.hidden = true;
  }

  /**
   * @param {Explained} found
   * @param {string} label the label to explain
   */
  show(found, label) {
    this.found = found;
    this.body.hidden = !found.words.length;
    this.heading.replaceChildren("Importance of each word for ", element("strong", {}, element("bdi", {}, label)));
    this.measures = [{
      key: "fall", title: "Effect of removal", phrase: "the probability falls by", values: found.words.map(({ fall }) => fall),
      hint: "The decrease of the label’s probability when the word is left out (orange: increase). This works for any model, "
        + "but does not measure the joint effect of several words.",
    }];
    if (found.words.every(({ share }) => share !== null)) {
      this.measures.push({
        key: "gradient", title: "Attention × gradient", phrase: "attention × gradient", values: found.words.map(({ share }) => share ?? 0),
        hint: "The word’s share of attention × gradient of the label, propagated through the layers. It is an indication, not a proof.",
      });
    }
    this.draw();
  }

  /**
   * Add the measures that are computed from the maps of a trace.
   * @param {LoadedTrace} trace
   */
  async addMaps(trace) {
    const { found } = this;
    const measures = [await rolloutMeasure(trace), await attentionMeasure(trace)];
    if (!found || found !== this.found) return;
    const whole = measures.filter((one) => one !== null && one.values.length === found.words.length);
    this.measures = [
      ...this.measures.filter(({ key }) => key === "fall" || key === "gradient"), .../** @type {Measure[]} */ (whole),
    ];
    this.draw();
  }

  get measure() {
    return this.measures.find(({ key }) => key === this.chosen) ?? this.measures[0];
  }

  draw() {
    const { found, measure } = this;
    if (!found) return;
    const options = this.measures.map(({ key, title }) => ({ value: key, text: title }));
    const same = this.choices.dataset.options === JSON.stringify(options);
    if (!same) {
      this.choices.dataset.options = JSON.stringify(options);
      this.choices.replaceChildren(options.length < 2 ? "" : radioGroup("Measure", options, measure.key, (key) => {
        this.chosen = key;
        this.draw();
      }));
    }
    const first = found.first_words;
    const pair = first < found.words.length;
    this.fill(this.first, 0, first, pair ? "First text" : "Text");
    this.fill(this.second, first, found.words.length, "Second text");
    this.second.hidden = !pair;
    this.hint.textContent = measure.hint;
    this.showReadout(null);
  }

  /** @param {HTMLElement} place @param {number} from @param {number} to @param {string} label */
  fill(place, from, to, label) {
    const { values } = this.measure;
    const maximum = Math.max(...values.map(Math.abs), MIN_SCALE);
    const words = /** @type {Explained} */ (this.found).words.slice(from, to);
    const focused = [...place.querySelectorAll("button")].indexOf(/** @type {any} */ (focusedNear(place)));
    place.setAttribute("aria-label", `${label}: words with ${this.measure.title}`);
    place.replaceChildren(...words.flatMap(({ word }, i) => {
      const value = values[from + i];
      const strength = Math.abs(value) / maximum;
      const button = element("button", {
        type: "button", tabindex: i ? -1 : 0, "data-word": from + i, "aria-label": `${word}: ${this.describe(from + i, this.measure)}`,
        class: `heed-word heed-linked${value < 0 ? " heed-negative" : ""}`, "data-value": value,
        // Show only large numbers below the words; the readout has all.
        "data-strength": strength >= 0.25 && Math.abs(value) >= 0.01 ? formatSigned(value, 2) : null,
      }, word);
      button.style.setProperty("--strength", strength.toFixed(3));
      return i ? [" ", button] : [button];
    }));
    if (focused >= 0) [...place.querySelectorAll("button")][focused]?.focus();
  }

  /** @param {number} word @param {Measure} measure */
  describe(word, measure) {
    const value = measure.values[word];
    if (measure.key !== "fall") return `${measure.phrase} ${formatSigned(value, 3)}`;
    return `without it the probability ${value < 0 ? "rises" : "falls"} by ${Math.abs(value).toFixed(3)}`;
  }

  /** @param {EventTarget | null} target */
  showReadout(target) {
    const word = target instanceof HTMLElement ? target.dataset.word : undefined;
    this.readout.classList.toggle("heed-idle", word === undefined);
    if (word === undefined || !this.found) {
      this.readout.textContent = "Point at a word, or move to it with Tab and the arrow keys, to see its numbers.";
      return;
    }
    const at = Number(word);
    this.readout.replaceChildren(
      element("bdi", {}, element("strong", {}, this.found.words[at].word)), ": ",
      this.measures.map((measure) => this.describe(at, measure)).join(" · "),
    );
  }

  /** @returns {Picture | null} */
  picture() {
    const { found, measure } = this;
    if (!found) return null;
    const matrix = matrixOf(1, measure.values.length, Float32Array.from(measure.values));
    return {
      title: this.heading.textContent ?? "", layers: [{ name: measure.title, matrix, colour: null }], rows: [measure.title],
      columns: found.words.map(({ word }) => word), rowTitle: "", columnTitle: "words", bars: [],
    };
  }
}

/**
 * Sum the weights of tokens by word, over all texts.
 * @param {LoadedTrace} trace
 * @param {{axis: string, row: ArrayLike<number>}[]} rows
 */
function sumByWord(trace, rows) {
  /** @type {number[]} */
  const values = [];
  let before = 0;
  for (const { axis, row } of rows) {
    const words = trace.summary.words[axis] ?? [];
    words.forEach((word, i) => {
      if (word >= 0) values[before + word] = (values[before + word] ?? 0) + row[i];
    });
    before = values.length;
  }
  return Array.from(values, (value) => value ?? 0);
}

/**
 * The rollout of the last layer at the position that predicts the label.
 * @param {LoadedTrace} trace
 * @returns {Promise<Measure | null>}
 */
async function rolloutMeasure(trace) {
  const { maps } = trace.summary;
  const map = maps.findIndex((one) => one.kind === "rollout" && one.query_axis === "decision" && one.key_axis === "text");
  if (map < 0) return null;
  const matrix = await trace.head(map, maps[map].heads - 1);
  return {
    key: "rollout", title: "Rollout", phrase: "rollout", values: sumByWord(trace, [{ axis: "text", row: rowOf(matrix, 0) }]),
    hint: "The product of the layers’ mean weights, with residual connections, at the position that predicts the label. It is the same for every label.",
  };
}

/**
 * The last attention over each text: that of the position that predicts the label, or the mean of all queries.
 * @param {LoadedTrace} trace
 * @returns {Promise<Measure | null>}
 */
async function attentionMeasure(trace) {
  const { maps } = trace.summary;
  /** @param {(facts: import("./types.js").MapFacts) => boolean} fits */
  const last = (fits) => maps.map((facts, map) => (facts.kind === "weights" && fits(facts) ? map : -1)).reduce((a, b) => Math.max(a, b), -1);
  const rows = [];
  const names = [];
  for (const axis of TEXTS) {
    const map = last((facts) => facts.key_axis === axis);
    if (map < 0) continue;
    const facts = maps[map];
    const matrix = await meanOverHeads(trace, map);
    const above = TEXTS.includes(facts.query_axis) ? -1 : last((one) => one.key_axis === facts.query_axis && one.query_axis !== one.key_axis);
    const parts = above < 0 ? new Float32Array(matrix.rows).fill(1 / matrix.rows) : meanRow(await meanOverHeads(trace, above));
    const own = facts.query_axis === "text" && axis === "text";
    rows.push({ axis, row: own ? rowOf(matrix, 0) : weightedSum(matrix, parts) });
    names.push(`${facts.name}${own ? ", first position" : ""}`);
  }
  if (!rows.length) return null;
  return {
    key: "attention", title: "Attention", phrase: "attention", values: sumByWord(trace, rows),
    hint: `The weights of ${names.join(" and ")}, averaged over heads. Attended tokens are not necessarily used; see Heads for each head.`,
  };
}

/** @param {LoadedTrace} trace @param {number} map */
async function meanOverHeads(trace, map) {
  const heads = Array.from({ length: trace.summary.maps[map].heads }, (_, head) => trace.head(map, head));
  return meanMatrix(await Promise.all(heads));
}

/** @param {Matrix} matrix */
function meanRow(matrix) {
  return weightedSum(matrix, new Float32Array(matrix.rows).fill(1 / matrix.rows));
}

/**
 * The weighted sum of the rows of a matrix.
 * @param {Matrix} matrix
 * @param {ArrayLike<number>} weights
 */
function weightedSum(matrix, weights) {
  const sum = new Float32Array(matrix.columns);
  for (let row = 0; row < matrix.rows; row++) rowOf(matrix, row).forEach((weight, i) => (sum[i] += weight * weights[row]));
  return sum;
}
