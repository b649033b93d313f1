// The logit lens: what each layer of a model would predict, as a table of layers and output tokens.

import { element, rovingTabindex } from "./elements.js";
import { formatWeight, windowAround } from "./matrices.js";
import { colourStrength } from "./painting.js";

/** @typedef {import("./types.js").Lens} Lens */
/** @typedef {import("./types.js").LayerPrediction} LayerPrediction */

const MOST_COLUMNS = 12;
const ABOUT = "If the model’s output read the states of an earlier layer, it would predict these tokens (the logit lens). The colour is the probability; the number is the rank of the token that the model chose in the end.";

export class LensView {
  constructor() {
    /** @type {Lens | null} */
    this.lens = null;
    this.column = 0;
    /** Tokens that are shown. */
    this.columns = 1;
    this.table = element("table", { class: "heed-lens" });
    rovingTabindex(this.table, "tbody td", () => this.columns);
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.earlier = element("button", { type: "button", class: "heed-button", onclick: () => this.move(-MOST_COLUMNS) }, "Earlier tokens");
    this.later = element("button", { type: "button", class: "heed-button", onclick: () => this.move(MOST_COLUMNS) }, "Later tokens");
    this.body = element(
      "section", { class: "heed-lens-section", "aria-label": "What each layer would predict", hidden: true },
      element("h3", { class: "heed-picture-title" }, "What each layer would predict"), element("p", { class: "heed-hint" }, ABOUT),
      element("div", { class: "heed-lens-field", tabindex: 0, role: "region", "aria-label": "Predictions of all layers" }, this.table),
      element("div", { class: "heed-player" }, this.earlier, this.later, this.readout),
    );
  }

  /** @param {Lens | null} lens */
  show(lens) {
    this.lens = lens;
    this.body.hidden = lens === null;
    this.column = 0;
    this.draw();
  }

  /** @param {number} steps */
  move(steps) {
    if (!this.lens) return;
    this.column = Math.min(Math.max(this.column + steps, 0), this.lens.decided.length - 1);
    const [pressed, other] = steps < 0 ? [this.earlier, this.later] : [this.later, this.earlier];
    const focused = pressed.matches(":focus");
    this.draw();
    // A disabled button loses the focus.
    if (focused && pressed.disabled) other.focus();
  }

  draw() {
    const { lens } = this;
    if (!lens) return;
    const shown = windowAround(this.column, lens.decided.length, MOST_COLUMNS);
    this.columns = shown.length;
    const few = lens.decided.length <= MOST_COLUMNS;
    this.earlier.hidden = this.later.hidden = few;
    this.earlier.disabled = shown[0] === 0;
    this.later.disabled = shown[shown.length - 1] === lens.decided.length - 1;
    this.readout.textContent = "Point at a cell, or focus it, to read its five most probable tokens.";
    const head = element("tr", {}, element("td", {}), ...shown.map((place) => element("th", { scope: "col", dir: "auto" }, lens.decided[place])));
    // The last layer is next to the tokens that it decides.
    const rows = lens.predictions.map((predictions, layer) => element(
      "tr", {}, element("th", { scope: "row" }, `Layer ${layer + 1}`), ...shown.map((place) => this.cell(layer, place, predictions[place])),
    )).reverse();
    this.table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
    const cell = /** @type {HTMLElement | null} */ (this.table.querySelector("tbody td"));
    if (cell) cell.tabIndex = 0;
  }

  /** @param {number} layer @param {number} place @param {LayerPrediction} found */
  cell(layer, place, found) {
    const best = found.probabilities[0];
    const say = () => this.say(layer, place, found);
    const cell = element(
      "td", { class: found.rank === 1 ? "heed-lens-right" : "", tabindex: -1, onpointerenter: say, onfocus: say },
      element("bdi", {}, found.labels[0]), element("span", { class: "heed-number" }, found.rank.toLocaleString("en")),
    );
    cell.style.setProperty("--strength", colourStrength(best).toFixed(3));
    return cell;
  }

  /** @param {number} layer @param {number} place @param {LayerPrediction} found */
  say(layer, place, found) {
    const decided = this.lens?.decided[place] ?? "";
    const parts = found.labels.map((label, i) => [i ? ", " : " ", element("bdi", {}, element("strong", {}, label)), ` ${formatWeight(found.probabilities[i])}`]);
    this.readout.replaceChildren(
      `Layer ${layer + 1}, in the place of `, element("bdi", {}, element("strong", {}, decided)), ` (rank ${found.rank.toLocaleString("en")}, ${formatWeight(found.probability)}):`, ...parts.flat(),
    );
  }
}
