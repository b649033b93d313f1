// What was typed, kept with the tab's own history: Back and Reload bring it back, no address shows it.

/** @typedef {Record<string, string>} Fields */

// Browsers take so many changes of an entry, about three a second, and none any more when a page is left.
const PAUSE = 400;

export class Kept {
  /** @param {boolean} lasting whether beyond this page, which only a server's own page may */
  constructor(lasting) {
    this.lasting = lasting;
    const state = lasting ? window.history.state : null;
    /** @type {Record<string, Fields>} */
    this.fields = state && typeof state.heedful === "object" ? { ...state.heedful } : {};
    /** @type {number | undefined} */
    this.timer = undefined;
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
    if (!this.lasting || this.timer !== undefined) return;
    this.write();
    this.timer = window.setTimeout(() => {
      this.timer = undefined;
      this.write();
    }, PAUSE);
  }

  write() {
    try {
      window.history.replaceState({ ...window.history.state, heedful: this.fields }, "");
    } catch {
      // A browser that takes no more has less to bring back; what is on the page stays.
    }
  }
}
