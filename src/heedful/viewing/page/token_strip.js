// The tokens of the queries, one after the other: select one to see, and to hear, what it attends to.

import { element, focusItem, rovingTabindex } from "./elements.js";
import { windowAround } from "./matrices.js";

const MOST = 400;

export class TokenStrip {
  /** @param {(row: number, play: boolean) => void} chosen called for a selected token; the arrow keys select without playing */
  constructor(chosen) {
    this.chosen = chosen;
    /** @type {string[]} */
    this.tokens = [];
    this.first = -1;
    /** @type {HTMLButtonElement[]} */
    this.buttons = [];
    this.list = element("ol", { class: "heed-token-strip", "aria-label": "Tokens" });
    this.hint = element("p", { class: "heed-hint" });
    this.body = element("div", {}, this.list, this.hint);
    rovingTabindex(this.list, "button", () => 1, (item) => {
      this.chosen(this.first + this.buttons.indexOf(/** @type {HTMLButtonElement} */ (item)), false);
    });
  }

  /**
   * @param {string[]} tokens
   * @param {number} row the selected one
   * @param {boolean} playable whether there is a sound
   */
  show(tokens, row, playable) {
    const shown = windowAround(row, tokens.length, MOST);
    const focused = this.buttons.some((one) => one.matches(":focus"));
    if (tokens !== this.tokens || shown[0] !== this.first) this.build(tokens, shown);
    this.buttons.forEach((one, i) => {
      one.tabIndex = this.first + i === row ? 0 : -1;
      if (this.first + i === row) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
    });
    if (focused) focusItem(this.buttons, row - this.first);
    this.scrollTo(this.buttons[row - this.first]);
    const left = tokens.length - shown.length;
    this.hint.textContent = [
      playable ? "Select a token to hear the part of the sound that has 90 % of its weight." : "Select a token to see what it attends to.",
      left > 0 ? `Shows ${shown.length} of ${tokens.length.toLocaleString("en")} tokens.` : "",
    ].filter(Boolean).join(" ");
  }

  /** @param {string[]} tokens @param {number[]} shown */
  build(tokens, shown) {
    this.tokens = tokens;
    this.first = shown[0];
    this.buttons = shown.map((row) =>
      element("button", { type: "button", onclick: () => this.chosen(row, true) }, element("bdi", {}, tokens[row].trim() ? tokens[row] : "␣")));
    this.list.replaceChildren(...this.buttons.map((one) => element("li", {}, one)));
  }

  /**
   * Scroll the list, but not the page, to a token.
   * @param {HTMLElement | undefined} item
   */
  scrollTo(item) {
    if (!item) return;
    const [outer, inner] = [this.list.getBoundingClientRect(), item.getBoundingClientRect()];
    if (inner.top < outer.top) this.list.scrollTop -= outer.top - inner.top;
    else if (inner.bottom > outer.bottom) this.list.scrollTop += inner.bottom - outer.bottom;
  }
}
