// Attention at each step while a sentence is generated.

import { element, messageOf } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { around, rowEntropies } from "./matrices.js";
import { titles } from "./overview.js";
import { drawnTitle, placesOf } from "./places.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

const MILLISECONDS = 900;
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
    /** @type {import("./types.js").Places | null} */
    this.places = null;
    this.place = element("div");
    this.said = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.player = element("div", { class: "heed-player" }, this.playing, this.slider);
    this.hint = element("p", { class: "heed-hint" });
    this.field = element(
      "div", {}, this.player, this.writtenSoFar, this.said, this.place,
    );
    this.body = element(
      "div", { class: "heed-panel heed-steps" },
      element(
        "div", { class: "heed-tools" },
        this.hint,
        exportButtons(() => this.picture, () => "steps", page.announce, () => this.places?.drawing() ?? null),
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
      this.written = map.written && !map.step_axis;
      this.draws(trace, map);
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

  /**
   * The view on which the weights are drawn.
   * @param {LoadedTrace} trace
   * @param {import("./types.js").MapFacts} map
   */
  draws(trace, map) {
    const axis = trace.summary.kinds[map.key_axis];
    const own = map.query_axis === map.key_axis;
    this.places = placesOf(this.page, axis, trace.summary.labels[map.key_axis], own ? { pick: (place) => this.go(place) } : {});
    this.place.replaceChildren(this.places.body);
    this.player.hidden = map.steps * map.queries < 2;
    // Positions in a picture or in time are not a sentence.
    this.writtenSoFar.hidden = trace.summary.kinds[map.query_axis].extent.length > 0;
    this.hint.textContent = drawnTitle(axis) ? `What each ${own ? "position attends to; choose one in the picture" : "step attends to"}.`
      : "Each step generates one token. Bars show its attention weights; faint bars show those of the previous step.";
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
    this.places?.show(matrix, step, picture.rows);
    const { decided, decided_labels: labels, log_probabilities: all } = trace.summary;
    // In a single sequence, each input token is followed by another token.
    const follows = !this.written && decided.length === picture.rows.length;
    const surprise = this.written || follows ? all[step] : undefined;
    const what = this.written ? "writes " : "at ";
    const next = follows ? [", writes ", element("bdi", {}, element("strong", {}, (labels ?? decided)[step]))] : [];
    const confidence = surprise === undefined ? "" : `confidence ${Math.exp(surprise).toFixed(2)} · `;
    this.said.replaceChildren(
      `Step ${step + 1} of ${picture.rows.length}: ${what}`, element("bdi", {}, element("strong", {}, picture.rows[step])), ...next,
      ` · ${confidence}entropy ${(this.entropies?.[step] ?? 0).toFixed(2)} bits`,
    );
  }
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function stepsPanel(page) {
  const steps = new Steps(page);
  return { name: "steps", title: "Steps", body: steps.body, show: () => steps.show() };
}
