// Typed inputs, saved in the tab's history entry: Back and Reload restore them, and the address does not contain them. Each
// panel that is opened is an entry, and the address names it.

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
    /** Called with the panel that the user returns to. */
    this.onReturn = (/** @type {string} */ _panel) => {};
    if (persistent) {
      window.addEventListener("popstate", () => {
        // An address that was typed or followed in this tab: the page begins with its text, and the inputs of the entry before
        // it are not saved in its entry.
        if (!window.history.state?.heedful) {
          this.stop();
          return window.location.reload();
        }
        const panel = new URLSearchParams(window.location.hash.slice(1)).get("panel") ?? window.history.state?.heedful?.page?.panel;
        if (panel) this.onReturn(panel);
      });
    }
  }

  /**
   * Add a panel to the history.
   * @param {string} panel
   */
  visit(panel) {
    if (!this.persistent) return;
    const parameters = new URLSearchParams(window.location.hash.slice(1));
    parameters.set("panel", panel);
    try {
      window.history.pushState({ ...window.history.state, heedful: { ...this.fields, page: { ...this.fields.page, panel } } }, "", `#${parameters}`);
    } catch {
      // If the browser refuses the entry, the panel opens without one.
    }
  }

  /**
   * The fields that were saved under a name.
   * @param {string} name
   * @returns {Fields | null}
   */
  get(name) {
    return this.fields[name] ?? null;
  }

  /**
   * @param {string} name
   * @param {Fields} fields
   * @param {boolean} [now] save it at once: for what the user cannot simply type again
   */
  set(name, fields, now = false) {
    this.fields[name] = fields;
    if (!this.persistent || (this.timer !== undefined && !now)) return;
    this.write();
    if (this.timer !== undefined) return;
    this.timer = window.setTimeout(() => {
      this.timer = undefined;
      this.write();
    }, PAUSE);
  }

  /** Save nothing more: another page replaces this one. */
  stop() {
    window.clearTimeout(this.timer);
    this.persistent = false;
  }

  write() {
    try {
      window.history.replaceState({ ...window.history.state, heedful: this.fields }, "");
    } catch {
      // If the browser refuses the change, less is restored later; the page itself stays as it is.
    }
  }
}
