// What was typed, kept with the tab's own history: Back and Reload bring it back, no address shows it.

import { whenQuiet } from "./elements.js";

/** @typedef {Record<string, string>} Fields */

export class Kept {
  /** @param {boolean} lasting whether beyond this page, which only a server's own page may */
  constructor(lasting) {
    this.lasting = lasting;
    const state = lasting ? window.history.state : null;
    /** @type {Record<string, Fields>} */
    this.fields = state && typeof state.heedful === "object" ? { ...state.heedful } : {};
    this.soon = whenQuiet(200, () => this.write());
    if (lasting) window.addEventListener("pagehide", () => this.write());
  }

  /**
   * What was put under a name, a text a field.
   * @param {string} name
   * @returns {Fields | null}
   */
  of(name) {
    return this.fields[name] ?? null;
  }

  /** @param {string} name @param {Fields} fields */
  put(name, fields) {
    this.fields[name] = fields;
    if (this.lasting) this.soon();
  }

  write() {
    try {
      window.history.replaceState({ ...window.history.state, heedful: this.fields }, "");
    } catch {
      // A browser that takes no more has less to bring back; what is on the page stays.
    }
  }
}
