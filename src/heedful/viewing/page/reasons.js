// The importance of words for a decision: four measures, drawn over the text.

import { element, roving, segments } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { matrixOf, meanMatrix, rowOf, signed } from "./matrices.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Explained} Explained */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {{key: string, title: string, told: string, hint: string, values: number[]}} Measure */

const TEXTS = ["text", "first", "second"];
// Smaller maxima are not drawn in full colour, so that unimportant words do not look important.
const LEAST = 0.05;

export class Reasons {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {Explained | null} */
    this.found = null;
    /** @type {Measure[]} */
    this.measures = [];
    this.chosen = "fall";
    this.choices = element("div");
    this.first = element("p", { class: "heed-text heed-reasons", dir: "auto", role: "group" });
    this.second = element("p", { class: "heed-text heed-reasons", dir: "auto", role: "group" });
    this.readout = element("p", { class: "heed-readout" });
    this.hint = element("p", { class: "heed-hint" });
    this.heading = element("h2", {});
    for (const place of [this.first, this.second]) {
      roving(place, ".heed-word", () => 1);
      place.addEventListener("pointerover", (event) => this.tell(event.target));
      place.addEventListener("focusin", (event) => this.tell(event.target));
      place.addEventListener("pointerleave", () => this.tell(null));
    }
    this.body = element(
      "section", { class: "heed-why", "aria-label": "Importance of words" }, this.heading,
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
   * @param {string} label the explained label
   */
  show(found, label) {
    this.found = found;
    this.body.hidden = !found.words.length;
    this.heading.replaceChildren("Importance of words for ", element("strong", {}, element("bdi", {}, label)));
    this.measures = [{
      key: "fall", title: "Left out", told: "the probability falls by", values: found.words.map(({ fall }) => fall),
      hint: "How much the probability of the label falls without the word (orange: rises). This measure works for any "
        + "model, but it ignores interactions between words.",
    }];
    if (found.words.every(({ share }) => share !== null)) {
      this.measures.push({
        key: "gradient", title: "Attention × gradient", told: "attention × gradient", values: found.words.map(({ share }) => share ?? 0),
        hint: "The word’s share of attention × gradient for the label, over all layers. An indication, not a proof.",
      });
    }
    this.draw();
  }

  /**
   * Adds the measures from the maps of the trace.
   * @param {LoadedTrace} trace
   */
  async addMaps(trace) {
    const { found } = this;
    const made = [await rolledOut(trace), await attended(trace)];
    if (!found || found !== this.found) return;
    const whole = made.filter((one) => one !== null && one.values.length === found.words.length);
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
      this.choices.replaceChildren(options.length < 2 ? "" : segments("Measure", options, measure.key, (key) => {
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
    this.tell(null);
  }

  /** @param {HTMLElement} place @param {number} from @param {number} to @param {string} label */
  fill(place, from, to, label) {
    const { values } = this.measure;
    const most = Math.max(...values.map(Math.abs), LEAST);
    const words = /** @type {Explained} */ (this.found).words.slice(from, to);
    const focused = [...place.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    place.setAttribute("aria-label", `${label}: words with ${this.measure.title}`);
    place.replaceChildren(...words.flatMap(({ word }, i) => {
      const value = values[from + i];
      const strength = Math.abs(value) / most;
      const button = element("button", {
        type: "button", tabindex: i ? -1 : 0, "data-word": from + i, "aria-label": `${word}: ${this.told(from + i, this.measure)}`,
        class: `heed-word heed-partner${value < 0 ? " heed-rises" : ""}`, "data-value": value,
        // There is room for few numbers below words; the line below the text shows any of them.
        "data-strength": strength >= 0.25 && Math.abs(value) >= 0.01 ? signed(value, 2) : null,
      }, word);
      button.style.setProperty("--strength", strength.toFixed(3));
      return i ? [" ", button] : [button];
    }));
    if (focused >= 0) [...place.querySelectorAll("button")][focused]?.focus();
  }

  /** @param {number} word @param {Measure} measure */
  told(word, measure) {
    const value = measure.values[word];
    if (measure.key !== "fall") return `${measure.told} ${value.toFixed(3)}`;
    return `without it the probability ${value < 0 ? "rises" : "falls"} by ${Math.abs(value).toFixed(3)}`;
  }

  /** @param {EventTarget | null} target */
  tell(target) {
    const word = target instanceof HTMLElement ? target.dataset.word : undefined;
    this.readout.classList.toggle("heed-idle", word === undefined);
    if (word === undefined || !this.found) {
      this.readout.textContent = "Point at a word, or use Tab and the arrow keys, to see its numbers.";
      return;
    }
    const at = Number(word);
    this.readout.replaceChildren(
      element("bdi", {}, element("strong", {}, this.found.words[at].word)), ": ",
      this.measures.map((measure) => this.told(at, measure)).join(" · "),
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
 * Converts a row over tokens to a row over the words of all texts.
 * @param {LoadedTrace} trace
 * @param {{axis: string, row: ArrayLike<number>}[]} rows
 */
function overWords(trace, rows) {
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
 * The last layer of the rollout at the position of the label.
 * @param {LoadedTrace} trace
 * @returns {Promise<Measure | null>}
 */
async function rolledOut(trace) {
  const { maps } = trace.summary;
  const map = maps.findIndex((one) => one.kind === "rollout" && one.query_axis === "decision" && one.key_axis === "text");
  if (map < 0) return null;
  const matrix = await trace.head(map, maps[map].heads - 1);
  return {
    key: "rollout", title: "Rollout", told: "rollout", values: overWords(trace, [{ axis: "text", row: rowOf(matrix, 0) }]),
    hint: "The product of the layers’ mean weights with residual connections, at the position of the label. It does not depend on the label.",
  };
}

/**
 * The last attention over each text: from the position of the label, or from all positions.
 * @param {LoadedTrace} trace
 * @returns {Promise<Measure | null>}
 */
async function attended(trace) {
  const { maps } = trace.summary;
  /** @param {(facts: import("./types.js").MapFacts) => boolean} fits */
  const last = (fits) => maps.map((facts, map) => (facts.kind === "weights" && fits(facts) ? map : -1)).reduce((a, b) => Math.max(a, b), -1);
  const rows = [];
  const names = [];
  for (const axis of TEXTS) {
    const map = last((facts) => facts.key_axis === axis);
    if (map < 0) continue;
    const facts = maps[map];
    const matrix = await meanOf(trace, map);
    const above = TEXTS.includes(facts.query_axis) ? -1 : last((one) => one.key_axis === facts.query_axis && one.query_axis !== one.key_axis);
    const parts = above < 0 ? new Float32Array(matrix.rows).fill(1 / matrix.rows) : meanRow(await meanOf(trace, above));
    const own = facts.query_axis === "text" && axis === "text";
    rows.push({ axis, row: own ? rowOf(matrix, 0) : weighted(matrix, parts) });
    names.push(`${facts.name}${own ? ", what the first place reads" : ""}`);
  }
  if (!rows.length) return null;
  return {
    key: "attention", title: "Attention", told: "attention", values: overWords(trace, rows),
    hint: `The weights of ${names.join(" and ")}, mean of the heads. Attended words are not always used; the panel Heads shows all heads.`,
  };
}

/** @param {LoadedTrace} trace @param {number} map */
async function meanOf(trace, map) {
  const heads = Array.from({ length: trace.summary.maps[map].heads }, (_, head) => trace.head(map, head));
  return meanMatrix(await Promise.all(heads));
}

/** @param {Matrix} matrix */
function meanRow(matrix) {
  return weighted(matrix, new Float32Array(matrix.rows).fill(1 / matrix.rows));
}

/**
 * The weighted sum of the rows of a matrix.
 * @param {Matrix} matrix
 * @param {ArrayLike<number>} weights
 */
function weighted(matrix, weights) {
  const sum = new Float32Array(matrix.columns);
  for (let row = 0; row < matrix.rows; row++) rowOf(matrix, row).forEach((weight, i) => (sum[i] += weight * weights[row]));
  return sum;
}
