// How attention moves from step to step while a sentence is written.

import { element, messageOf } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { around, largest, rowOf, rowEntropies, written } from "./matrices.js";
import { titles } from "./overview.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

const MILLISECONDS = 900;
const MOST_BARS = 60;
const MOST_WORDS = 60;

class Steps {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.step = 0;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {Picture | null} */
    this.picture = null;
    /** Whether the picture's rows were written, not read. */
    this.written = false;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Step", oninput: () => this.go(Number(this.slider.value)),
    });
    this.playing = element("button", { type: "button", class: "heed-quiet", onclick: () => this.toggle() }, "Play");
    this.writtenSoFar = element("p", { class: "heed-sentence", dir: "auto" });
    this.bars = element("ol", { class: "heed-bars", "aria-label": "Weights over what is read" });
    this.said = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.field = element(
      "div", {}, element("div", { class: "heed-player" }, this.playing, this.slider), this.writtenSoFar, this.said, this.bars,
    );
    this.body = element(
      "div", { class: "heed-panel heed-steps" },
      element(
        "div", { class: "heed-tools" },
        element("p", { class: "heed-hint" }, "Each step writes one token; the bars show what it reads meanwhile, the faint ones what the step before read."),
        exportButtons(() => this.picture, () => "steps", page.announce),
      ),
      this.notice, this.field,
    );
  }

  async show() {
    const { subject } = this.page.session;
    try {
      const trace = await this.page.session.current();
      if (trace === this.trace) return;
      const { matrix, rows, columns, map } = await trace.stepMatrix();
      if (subject !== this.page.session.subject) return;
      this.stop();
      this.trace = trace;
      this.picture = {
        title: `Steps: ${trace.summary.title}`, layers: [{ name: map.name, matrix, colour: null }], rows, columns,
        ...titles(map), bars: [],
      };
      this.written = map.written;
      this.entropies = rowEntropies(matrix);
      this.slider.max = String(matrix.rows - 1);
      this.notice.textContent = "";
      this.field.hidden = false;
      this.go(0);
    } catch (error) {
      if (subject !== this.page.session.subject) return;
      this.trace = null;
      this.picture = null;
      this.field.hidden = true;
      this.notice.textContent = messageOf(error);
    }
  }

  toggle() {
    if (this.timer !== undefined) return this.stop();
    if (this.picture && this.step >= this.picture.rows.length - 1) this.go(0);
    this.playing.textContent = "Pause";
    this.timer = window.setInterval(() => {
      const last = !this.picture || this.step >= this.picture.rows.length - 1 || !this.body.isConnected || this.body.hidden;
      if (last) this.stop();
      else this.go(this.step + 1);
    }, MILLISECONDS);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = undefined;
    this.playing.textContent = "Play";
  }

  /** @param {number} step */
  go(step) {
    const { picture, trace } = this;
    if (!picture || !trace) return;
    this.step = step;
    this.slider.value = String(step);
    this.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${picture.rows.length}: ${picture.rows[step]}`);
    const shown = around(step, picture.rows.length, MOST_WORDS);
    this.writtenSoFar.replaceChildren(
      shown[0] > 0 ? element("span", { class: "heed-later" }, "…") : "",
      ...shown.map((row) =>
        element("bdi", { class: row < step ? "heed-done" : row === step ? "heed-now" : "heed-later" }, picture.rows[row])),
      shown[shown.length - 1] < picture.rows.length - 1 ? element("span", { class: "heed-later" }, "…") : "",
    );
    const { matrix } = picture.layers[0];
    const weights = rowOf(matrix, step);
    const before = step ? rowOf(matrix, step - 1) : new Float32Array(weights.length);
    const strongest = Float32Array.from(weights, (weight, i) => Math.max(Math.abs(weight), Math.abs(before[i])));
    const places = largest(strongest, MOST_BARS);
    this.bars.replaceChildren(...places.map((place) => bar(picture.columns[place], weights[place], before[place])));
    const { decided, decided_labels: labels, log_probabilities: all } = trace.summary;
    // Of one sequence that is read and written, each token that is read has one that follows.
    const follows = !this.written && decided.length === picture.rows.length;
    const surprise = this.written || follows ? all[step] : undefined;
    const what = this.written ? "writes " : "at ";
    const next = follows ? [", writes ", element("bdi", {}, element("strong", {}, (labels ?? decided)[step]))] : [];
    const confidence = surprise === undefined ? "" : `confidence ${Math.exp(surprise).toFixed(2)} · `;
    const left = weights.length - places.length;
    this.said.replaceChildren(
      `Step ${step + 1} of ${picture.rows.length}: ${what}`, element("bdi", {}, element("strong", {}, picture.rows[step])), ...next,
      ` · ${confidence}entropy ${(this.entropies?.[step] ?? 0).toFixed(2)} bits`
        + (left > 0 ? ` · the ${places.length} heaviest of ${weights.length.toLocaleString("en")} places` : ""),
    );
  }
}

/**
 * @param {string} label
 * @param {number} weight
 * @param {number} before
 */
function bar(label, weight, before) {
  const now = element("i", { class: "heed-bar-now" });
  now.style.inlineSize = `${Math.min(Math.abs(weight), 1) * 100}%`;
  const then = element("i", { class: "heed-bar-before" });
  then.style.inlineSize = `${Math.min(Math.abs(before), 1) * 100}%`;
  return element(
    "li", {}, element("span", { class: "heed-bar-label", dir: "auto" }, label),
    element("span", { class: "heed-bar", "aria-hidden": "true" }, then, now),
    element("span", { class: "heed-number" }, written(weight)),
  );
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function stepsPanel(page) {
  const steps = new Steps(page);
  return { name: "steps", title: "Steps", body: steps.body, show: () => steps.show() };
}
