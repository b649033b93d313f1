// The Steps panel: the attention of each decoding step.

import { element, messageOf } from "./elements.js";
import { colourScale } from "./colour_scale.js";
import { exportButtons } from "./exporting.js";
import { FramePlayer } from "./frame_player.js";
import { windowAround, rowEntropies, transposed } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { themeOf } from "./painting.js";
import { isSound } from "./time_layers.js";
import { TokenStrip } from "./token_strip.js";
import { titles } from "./overview.js";
import { isPath, viewTitle, makeAxisView } from "./axis_views.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

const STEP_MILLISECONDS = 900;
const MAX_WORDS = 60;

class Steps {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.step = 0;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {Picture | null} one column per step */
    this.picture = null;
    /** @type {import("./types.js").Matrix | null} one row per step */
    this.matrix = null;
    /** Whether rows are output tokens, not input tokens. */
    this.written = false;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Step", oninput: () => this.go(Number(this.slider.value)),
    });
    this.playButton = element("button", { type: "button", class: "heed-button", onclick: () => this.toggle() }, "Play");
    this.sentence = element("p", { class: "heed-sentence", dir: "auto" });
    /** @type {import("./types.js").AxisView | null} */
    this.view = null;
    this.viewField = element("div");
    this.tokens = new TokenStrip((row, play) => {
      this.go(row);
      if (play) this.view?.playPart?.();
    });
    this.strip = new MatrixView(page, {
      label: "The attention of all steps: one column per step. The left and right arrow keys move between steps.",
      height: 420, scrubbed: (column) => this.go(column), chosen: (_, column) => this.frames.play([column, column]),
    });
    this.heading = element("h3", { class: "heed-picture-title" });
    this.scale = element("div");
    /** Plays the steps, if they are frames of a sound. */
    this.frames = new FramePlayer(this.strip.body);
    page.onTheme(() => {
      this.showScale();
      const { picture, matrix, step } = this;
      if (picture && matrix) this.view?.show(matrix, step, picture.columns);
    });
    this.readout = element("p", { class: "heed-readout heed-step-readout", "aria-live": "polite" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.player = element("div", { class: "heed-player" }, this.playButton, this.slider);
    this.hint = element("p", { class: "heed-hint" });
    this.field = element(
      "div", {}, this.heading, this.scale, this.strip.body, this.player, this.sentence, this.tokens.body, this.readout, this.viewField,
    );
    this.body = element(
      "div", { class: "heed-panel heed-steps" },
      element(
        "div", { class: "heed-tools" },
        this.hint,
        exportButtons(() => this.picture, () => "steps", page.announce, () => this.view?.drawing() ?? null),
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
      const named = titles(map);
      this.picture = {
        title: `Steps: ${trace.summary.title}`, layers: [{ name: map.name, matrix: transposed(matrix), colour: null }],
        rows: columns, columns: rows, rowTitle: named.columnTitle, columnTitle: named.rowTitle, bars: [], marked: 0,
        whole: trace.summary.kinds[map.key_axis].kind === "slots",
      };
      this.matrix = matrix;
      this.written = map.written && !map.step_axis;
      this.setView(trace, map);
      this.entropies = rowEntropies(matrix);
      this.slider.max = String(matrix.rows - 1);
      this.notice.textContent = "";
      this.field.hidden = false;
      this.heading.textContent = this.picture.title;
      this.showScale();
      if (!this.strip.body.hidden) this.strip.show(this.picture);
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
   * Create the view for the axis of the keys.
   * @param {LoadedTrace} trace
   * @param {import("./types.js").MapFacts} map
   */
  setView(trace, map) {
    const axis = trace.summary.kinds[map.key_axis];
    const own = map.query_axis === map.key_axis;
    const labels = trace.summary.labels[map.key_axis];
    const drawn = viewTitle(axis, labels) !== undefined;
    const queries = trace.summary.kinds[map.query_axis];
    const path = isPath(queries);
    if (!map.step_axis) this.frames.of(queries);
    this.view = makeAxisView(this.page, axis, labels, own ? { pick: (place) => this.go(place) } : { path });
    this.viewField.replaceChildren(this.view.body);
    this.player.hidden = map.steps * map.queries < 2;
    this.strip.body.hidden = this.scale.hidden = drawn;
    this.viewField.hidden = !drawn && axis.kind === "slots"; // the picture shows them
    this.playable = isSound(axis);
    // Cells of an image and frames of a sound are not a sentence.
    const texts = queries.extent.length === 0;
    this.tokens.body.hidden = axis.kind !== "time" || !texts;
    this.sentence.hidden = !texts || !this.tokens.body.hidden;
    this.hint.textContent = drawn ? own ? "Shows the attention of each position; select one in the picture." : "Shows the attention of each step."
      : `${this.written ? "Each step generates one token." : "Each step is one query."} One column per step: drag over the picture, or use the slider.${isSound(queries) && !map.step_axis ? " Click to hear a frame." : ""}`;
  }

  showScale() {
    if (this.picture) this.scale.replaceChildren(colourScale(this.picture, themeOf(this.page.root)));
  }

  toggle() {
    if (this.timer !== undefined) return this.stop();
    if (this.picture && this.step >= this.picture.columns.length - 1) this.go(0);
    this.playButton.textContent = "Pause";
    this.timer = window.setInterval(() => {
      const last = !this.picture || this.step >= this.picture.columns.length - 1 || !this.body.isConnected || this.body.hidden;
      if (last) this.stop();
      else this.go(this.step + 1);
    }, STEP_MILLISECONDS);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = undefined;
    this.playButton.textContent = "Play";
  }

  /** @param {number} step */
  go(step) {
    const { picture, trace, matrix } = this;
    if (!picture || !trace || !matrix) return;
    const tokens = picture.columns;
    this.step = step;
    this.slider.value = String(step);
    this.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${tokens.length}: ${tokens[step]}`);
    const shown = windowAround(step, tokens.length, MAX_WORDS);
    this.sentence.replaceChildren(
      shown[0] > 0 ? element("span", { class: "heed-upcoming" }, "…") : "",
      ...shown.map((row) =>
        element("bdi", { class: row < step ? "heed-previous" : row === step ? "heed-current" : "heed-upcoming" }, tokens[row])),
      shown[shown.length - 1] < tokens.length - 1 ? element("span", { class: "heed-upcoming" }, "…") : "",
    );
    if (!this.tokens.body.hidden) this.tokens.show(tokens, step, this.playable === true);
    this.strip.mark(step);
    this.view?.show(matrix, step, tokens);
    const { decided, decided_labels: labels, log_probabilities: all } = trace.summary;
    // In a language model, each input token is followed by an output token.
    const follows = !this.written && decided.length === tokens.length;
    const logProbability = this.written || follows ? all[step] : undefined;
    const what = this.written ? "output " : "at ";
    const next = follows ? [", output ", element("bdi", {}, element("strong", {}, (labels ?? decided)[step]))] : [];
    const confidence = logProbability === undefined ? "" : `confidence ${Math.exp(logProbability).toFixed(2)} · `;
    this.readout.replaceChildren(
      `Step ${step + 1} of ${tokens.length}: ${what}`, element("bdi", {}, element("strong", {}, tokens[step])), ...next,
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
