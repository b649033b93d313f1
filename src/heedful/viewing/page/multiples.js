// Small multiples: a picture for each of several heads, with one scale of colours.

import { element, rovingTabindex } from "./elements.js";
import { Drawing, computeLayout, panelsOf } from "./picture.js";
import { themeOf } from "./painting.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */

const LEAST_WIDTH = 190;
const MOST_WIDTH = 420;
const FEW = 6;

export class MultiplesView {
  /**
   * @param {Page} page
   * @param {(place: number) => void} chosen
   */
  constructor(page, chosen) {
    this.page = page;
    this.chosen = chosen;
    /** @type {Picture | null} */
    this.picture = null;
    this.body = element("div", { class: "heed-multiples", role: "group", "aria-label": "The selected heads: select one to enlarge it" });
    rovingTabindex(this.body, "button", () => this.across);
    this.across = 1;
    this.width = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.body.clientWidth - this.width) > 1) this.draw();
    }).observe(this.body);
    page.onTheme(() => this.draw());
  }

  /** @param {Picture | null} picture null to remove the drawings */
  show(picture) {
    this.picture = picture;
    this.draw();
  }

  draw() {
    const { picture } = this;
    this.width = this.body.clientWidth;
    if (!picture || !this.width) return this.body.replaceChildren();
    const panels = panelsOf(picture);
    this.across = Math.max(1, Math.min(panels.length, Math.floor(this.width / (panels.length > FEW ? LEAST_WIDTH : LEAST_WIDTH * 1.4))));
    const width = Math.min(MOST_WIDTH, Math.floor(this.width / this.across) - 18);
    this.body.replaceChildren(...panels.map((panel, place) => this.panel(panel, place, width)));
    const first = this.body.querySelector("button");
    if (first) first.tabIndex = 0;
  }

  /** @param {Picture} panel @param {number} place @param {number} width */
  panel(panel, place, width) {
    const theme = themeOf(this.page.root);
    const canvas = element("canvas", { "aria-hidden": "true" });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const layout = computeLayout(context, panel, { width, height: width * 1.2, cell: 30, font: 11, family: theme.font });
    const pixelRatio = window.devicePixelRatio || 1;
    canvas.width = Math.round(layout.totalWidth * pixelRatio);
    canvas.height = Math.round(layout.totalHeight * pixelRatio);
    canvas.style.width = `${layout.totalWidth}px`;
    context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    new Drawing(panel, layout, theme).draw(context, { zoom: 1, x: 0, y: 0 }, null);
    return element(
      "button", { type: "button", tabindex: -1, "aria-label": `${panel.title}: enlarge`, onclick: () => this.chosen(place) },
      element("span", {}, panel.title), canvas,
    );
  }
}
