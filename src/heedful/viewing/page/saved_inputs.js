// Typed inputs, saved in the tab's history entry: Back and Reload restore them, and the address does not contain them.

/** @typedef {Record<string, string>} Fields */

// Browsers limit how often a history entry may be changed, and allow no change while the page is left.
const PAUSE = 400;

export class SavedInputs {
  /** @param {boolean} persistent whether inputs are saved in the history; only for pages of a server */
  constructor(persistent) {
    this.persistent = persistent;
    const state = persistent ? window.history.state : null;
    /** @type {Record<string, Fields>} */
    this.fields = state && typeof state.heedful === "object" ? { ...state.heedful } : {};
    /** @type {number | undefined} */
    this.timer = undefined;
  }

  /**
   * The fields that were saved under a name.
   * @param {string} name
   * @returns {Fields | null}
   */
  get(name) {
    return this.fields[name] ?? null;
  }

  /** @param {string} name @param {Fields} fields */
  set(name, fields) {
    this.fields[name] = fields;
    if (!this.persistent || this.timer !== undefined) return;
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
      // If the browser refuses the change, less is restored later; the page itself stays as it is.
    }
  }
}
