// Plays the link view: tokens are written one by one while their links grow.

import { element } from "./elements.js";

const TOKEN_MILLISECONDS = 620;
const FASTEST = 90;
const LONGEST_PLAY = 24_000;

export class LinksPlayer {
  /** @param {import("./links_view.js").LinksView} view */
  constructor(view) {
    this.view = view;
    this.count = 0;
    this.noun = "tokens";
    this.at = 0;
    /** @type {number | null} */
    this.frame = null;
    this.button = element("button", { type: "button", class: "heed-button heed-play", onclick: () => this.toggle() }, "Play");
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Tokens written", oninput: () => {
        this.stop();
        this.go(Number(this.slider.value));
      },
    });
    this.label = element("span", { class: "heed-number" });
    this.body = element("div", { class: "heed-player" }, this.button, this.slider, this.label);
  }

  /** @param {number} count number of queries @param {string} noun what they are */
  of(count, noun) {
    this.noun = noun;
    if (count !== this.count) this.stop();
    this.count = count;
    this.slider.max = String(count);
    if (this.frame === null) this.go(count);
  }

  /** @param {number} at number of queries that are written @param {number} [growth] part of the next one's links */
  go(at, growth = 0) {
    this.at = at;
    this.view.write(at >= this.count ? Infinity : at, growth);
    const label = `${at} of ${this.count} ${this.noun}`;
    if (this.label.textContent === label) return;
    this.slider.value = String(at);
    this.slider.setAttribute("aria-valuetext", label);
    this.label.textContent = label;
  }

  /** The time for each token, in milliseconds: long texts are written faster. */
  get pace() {
    return Math.max(FASTEST, Math.min(TOKEN_MILLISECONDS, LONGEST_PLAY / Math.max(this.count, 1)));
  }

  toggle() {
    if (this.frame !== null) return this.stop();
    const first = this.at >= this.count ? 0 : this.at;
    this.button.textContent = "Pause";
    // Without motion, links appear at once.
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const begun = performance.now();
    const { pace } = this;
    const step = () => {
      const share = (performance.now() - begun) / pace;
      const at = first + Math.floor(share);
      if (at >= this.count || !this.body.isConnected || !this.view.body.offsetParent) {
        this.go(this.count);
        return this.stop();
      }
      const growth = share % 1;
      this.go(at, still ? 0 : 1 - (1 - growth) ** 2);
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  stop() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.button.textContent = "Play";
    if (this.at < this.count) this.go(this.at);
  }
}
