// A slider for the step of a map with a step axis; it can also play the steps.

import { element } from "./elements.js";

const STEP_MILLISECONDS = 1200;

export class StepChooser {
  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    this.step = 0;
    /** @type {string[]} */
    this.labels = [];
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Step", oninput: () => this.go(Number(this.slider.value)),
    });
    this.playButton = element("button", { type: "button", class: "heed-button", onclick: () => this.toggle() }, "Play");
    this.name = element("bdi", { class: "heed-step-name" });
    this.body = element("div", { class: "heed-player" }, this.playButton, this.slider, this.name);
    this.body.hidden = true;
  }

  /**
   * Set the labels of the steps and return the current step; null if there are no steps.
   * @param {string[] | null} labels
   * @returns {number | null}
   */
  of(labels) {
    this.labels = labels ?? [];
    this.body.hidden = !labels;
    if (!labels) {
      this.stop();
      return null;
    }
    this.step = Math.min(this.step, labels.length - 1);
    this.slider.max = String(labels.length - 1);
    this.slider.value = String(this.step);
    this.slider.setAttribute("aria-valuetext", this.label);
    this.name.textContent = this.label;
    return this.step;
  }

  /** The label of the current step; empty without steps. */
  get label() {
    return this.labels[this.step] ?? "";
  }

  /** @param {number} step */
  go(step) {
    this.step = step;
    this.changed();
  }

  toggle() {
    if (this.timer !== undefined) return this.stop();
    if (this.step >= this.labels.length - 1) this.go(0);
    this.playButton.textContent = "Pause";
    this.timer = window.setInterval(() => {
      if (this.step >= this.labels.length - 1 || !this.body.isConnected || !this.body.offsetParent) this.stop();
      else this.go(this.step + 1);
    }, STEP_MILLISECONDS);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = undefined;
    this.playButton.textContent = "Play";
  }
}
