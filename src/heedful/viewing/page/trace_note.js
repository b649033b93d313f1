// A note above the panels that look inside, if the trace has only a part of the input.

import { element } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */

export class TraceNote {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.body = element("p", { class: "heed-detail heed-trace-note", role: "status", hidden: true });
  }

  /**
   * Show the note of the subject of the session.
   * @param {Panel | undefined} panel the one that is open
   */
  async show(panel) {
    const { session } = this.page;
    const { subject } = session;
    const looks = panel && !panel.hasInput && subject;
    if (!looks) return this.say("");
    const trace = await session.current().catch(() => null); // the panel shows the error
    if (subject === session.subject) this.say(trace?.summary.part ?? "");
  }

  /** @param {string} text */
  say(text) {
    this.body.hidden = !text;
    this.body.textContent = text;
  }
}
