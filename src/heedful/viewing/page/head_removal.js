// What becomes of the output without the selected heads: a button, the other output, and each token's change.

import { differing } from "./confidence.js";
import { element, messageOf } from "./elements.js";
import { formatSigned } from "./matrices.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Removal} Removal */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {import("./overview.js").Head} Head */

// A change of the log-probability by this much has the full colour: e² times less or more probable.
const FULL = 2;
const NO_CHANGE = 0.005;

export class HeadRemoval {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {Head[]} */
    this.heads = [];
    this.names = "";
    this.requests = 0;
    this.button = element("button", { type: "button", class: "heed-button", onclick: () => this.run() });
    this.result = element("div", { class: "heed-removal-result", role: "status" });
    this.body = element("div", { class: "heed-removal", hidden: true }, this.button, this.result);
  }

  /**
   * @param {LoadedTrace} trace
   * @param {Head[]} heads the selected ones
   * @param {string} names of the heads
   */
  of(trace, heads, names) {
    this.body.hidden = !(this.page.provider.live && trace.summary.decided.length && this.canBeRemoved(trace, heads));
    const same = trace === this.trace && JSON.stringify(heads) === JSON.stringify(this.heads);
    [this.trace, this.heads, this.names] = [trace, heads, names];
    this.button.textContent = heads.length > 1 ? `Remove these ${heads.length} heads` : "Remove this head";
    if (same) return;
    this.requests += 1;
    this.button.disabled = false;
    this.result.replaceChildren();
  }

  /** @param {LoadedTrace} trace @param {Head[]} heads */
  canBeRemoved({ subject, summary }, heads) {
    if (!heads.length || !("model" in subject)) return false;
    const fixed = new Set(this.page.mapsOf(subject.model).filter(({ removable }) => removable === false).map(({ name }) => name));
    return heads.every(({ map }) => summary.maps[map].kind === "weights" && !fixed.has(summary.maps[map].name));
  }

  async run() {
    const { trace } = this;
    if (!trace || !("model" in trace.subject)) return;
    const request = ++this.requests;
    const { gradients: _, ...subject } = trace.subject;
    // A second text that the model wrote is written again; another one is an input.
    const search = Boolean(this.page.panelOf(subject.model)?.writes);
    const heads = this.heads.map(({ map, head }) => ({ module: trace.summary.maps[map].name, head }));
    const focused = this.button.matches(":focus");
    this.button.disabled = true;
    this.result.textContent = "Running the model without the heads…";
    try {
      const found = await this.page.provider.removal({ ...subject, heads, search });
      if (request === this.requests) this.result.replaceChildren(...this.describe(found));
    } catch (error) {
      if (request === this.requests) this.result.textContent = messageOf(error);
    } finally {
      if (request === this.requests) this.button.disabled = false;
      // A disabled button loses the focus.
      if (request === this.requests && focused) this.button.focus();
    }
  }

  /** @param {Removal} found */
  describe(found) {
    const other = differing(found.decided_without, found.decided);
    const gone = differing(found.decided, found.decided_without);
    const same = !other.some(Boolean) && !gone.some(Boolean);
    const [before, after] = [found.before, found.after].map((all) => all.reduce((sum, one) => sum + one, 0));
    const change = after - before;
    const likely = Math.abs(change) < NO_CHANGE ? "as probable as before" : change < 0 ? "less probable" : "more probable";
    const output = element(
      "p", {}, `Without ${this.names}, the output ${same ? "is the same." : "is: "}`,
      ...(same ? [] : tokensOf(found.decided_without, (place) => (other[place] ? "heed-changed" : ""))),
    );
    // A predicted number has no probability.
    if (![...found.before, ...found.after].some(Boolean)) return [output];
    return [
      output,
      element(
        "p", {}, `The output that was written with ${this.heads.length > 1 ? "them" : "it"} becomes ${likely}: log-probability ${formatSigned(before, 2)} → ${formatSigned(after, 2)}. `,
        "Coloured by the change of each token: ",
        ...tokensOf(found.decided, () => "", (place) => found.after[place] - found.before[place]),
      ),
    ];
  }
}

/**
 * Tokens as text, with a class for each, and the colour of a change. A label with "·" continues a word.
 * @param {string[]} tokens
 * @param {(place: number) => string} kind
 * @param {(place: number) => number} [change] of the log-probability
 */
function tokensOf(tokens, kind, change) {
  return tokens.flatMap((token, place) => {
    if (token === "</s>" && !change) return [];
    const continues = token.length > 1 && token.startsWith("·");
    const text = continues ? token.slice(1) : token;
    const part = element("bdi", { class: kind(place) }, text);
    if (change) {
      const by = change(place);
      part.className = by < 0 ? "heed-fell" : "heed-rose";
      part.style.setProperty("--strength", Math.min(Math.abs(by) / FULL, 1).toFixed(2));
      part.title = `${text}: ${formatSigned(by, 3)}`;
    }
    return place && !continues ? [" ", part] : [part];
  });
}
