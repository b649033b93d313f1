// Typed text is saved in the history of the tab: Back and Reload restore it, and it is not in the URL.

/** @typedef {Record<string, string>} Fields */

// Browsers limit changes of a history entry to about three per second, and allow none while a page is closed.
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
   * The saved fields of a name.
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
      // If the browser refuses, less can be restored; the page itself is not affected.
    }
  }
}
