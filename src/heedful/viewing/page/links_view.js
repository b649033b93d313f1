// The link view: tokens of two axes, or of one, and all links between them on a canvas. Pointing at a token, or moving to
// it with the keyboard, shows its links only.

import { element, rovingTabindex } from "./elements.js";
import { placeTokens } from "./links_layout.js";
import { paintLinks } from "./links_painting.js";
import { collectLinks, linksOf } from "./links_scene.js";
import { formatWeight, isRightToLeft, topIndices } from "./matrices.js";
import { TimeStrip } from "./links_time.js";
import { isPresenting } from "./present.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./links_scene.js").Strand} Strand */
/** @typedef {import("./links_scene.js").Links} Links */
/** @typedef {import("./links_layout.js").Placed} Placed */
/** @typedef {import("./links_layout.js").Side} SideFacts */

/**
 * What is shown.
 * @typedef {object} LinkPicture
 * @property {Strand[]} strands
 * @property {string[]} rows labels of the queries
 * @property {string[]} columns labels of the keys
 * @property {number[]} rowWords the word of each query; −1 for none
 * @property {number[]} columnWords
 * @property {boolean} own whether queries and keys are the same tokens
 * @property {boolean} causal
 * @property {boolean} written whether queries are output tokens
 * @property {number} scale the weight with the full width
 * @property {import("./links_time.js").Frames | null} frames if the queries are frames of a time axis
 */

/** @typedef {"query" | "key"} SideName */

// The time for drawing in a frame, in milliseconds.
const BUDGET = 7;
const MAX_PIXELS = 9_000_000;

export class LinksView {
  /**
   * @param {Page} page
   * @param {(text: string) => void} said called with the weights of the isolated token
   */
  constructor(page, said) {
    this.page = page;
    this.said = said;
    this.threshold = 0.01;
    /** @type {LinkPicture | null} */
    this.picture = null;
    /** @type {Links | null} */
    this.links = null;
    /** @type {Placed | null} */
    this.placed = null;
    /** @type {{side: SideName, at: number} | null} */
    this.isolated = null;
    /** @type {{side: SideName, at: number} | null} */
    this.pinned = null;
    /** The number of queries whose links are drawn, and the part of the next one's. */
    this.upto = Infinity;
    this.growth = 0;
    this.order = new Uint32Array();
    this.next = 0;
    this.frame = 0;
    this.stale = false;
    this.base = element("canvas", { class: "heed-links-base", "aria-hidden": "true" });
    this.over = element("canvas", { class: "heed-links-over", "aria-hidden": "true" });
    this.keys = this.group("key", "Keys");
    this.queries = this.group("query", "Queries");
    this.stage = element("div", { class: "heed-links-stage" });
    this.strip = new TimeStrip(page, this.stage);
    this.stage.append(this.strip.svg, this.base, this.over, this.keys, this.queries);
    this.body = element("div", { class: "heed-links-frame" }, this.stage);
    /** @type {Record<SideName, HTMLButtonElement[]>} */
    this.tokens = { key: [], query: [] };
    new ResizeObserver(() => {
      const width = this.body.clientWidth;
      if (width && this.placed && Math.abs(width - this.placed.width) > 1) this.layout();
    }).observe(this.body);
    page.onTheme(() => {
      this.repaint();
      this.strip.draw();
    });
  }

  /**
   * @param {SideName} side
   * @param {string} label
   */
  group(side, label) {
    /** @param {Event} event */
    const of = (event) => {
      const token = event.target instanceof Element ? event.target.closest("button") : null;
      return token ? { side, at: Number(token.dataset.at) } : null;
    };
    const group = element("div", {
      class: "heed-links-tokens", role: "group", "aria-label": label, "data-side": side,
      onpointerover: (/** @type {Event} */ event) => this.isolate(of(event) ?? this.pinned),
      onpointerleave: () => this.isolate(this.pinned),
      onfocusin: (/** @type {Event} */ event) => {
        this.isolate(of(event));
        if (event.target instanceof Element && event.target.matches(":focus-visible")) this.page.announce(this.description());
      },
      onfocusout: () => this.isolate(this.pinned),
      onclick: (/** @type {Event} */ event) => {
        const token = of(event);
        const same = token && this.pinned && token.side === this.pinned.side && token.at === this.pinned.at;
        this.pin(same ? null : token);
        this.strip.play(this.pinned);
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") this.pin(null);
      },
    });
    rovingTabindex(group, "button", () => 1);
    return group;
  }

  /** @param {{side: SideName, at: number} | null} token */
  pin(token) {
    this.pinned = token;
    for (const [side, all] of Object.entries(this.tokens)) {
      all.forEach((button, at) => button.setAttribute("aria-pressed", String(token?.side === side && token.at === at)));
    }
    this.isolate(token);
  }

  /** @param {LinkPicture} picture */
  show(picture) {
    const before = this.picture;
    const same = before && before.own === picture.own && before.rows.join("\n") === picture.rows.join("\n")
      && before.columns.join("\n") === picture.columns.join("\n");
    this.picture = picture;
    if (!same) {
      this.isolated = this.pinned = null;
      this.upto = Infinity;
      this.tokens.query = this.makeTokens(this.queries, picture.rows, picture.rowWords, picture.frames !== null);
      this.tokens.key = picture.own ? [] : this.makeTokens(this.keys, picture.columns, picture.columnWords);
      this.keys.hidden = picture.own;
      this.queries.setAttribute("aria-label", picture.frames ? "Frames of the sound" : picture.own ? "Tokens" : picture.written ? "Output tokens" : "Queries");
    }
    this.collect();
    this.layout();
  }

  /** @param {number} threshold a share of the scale */
  setThreshold(threshold) {
    this.threshold = threshold;
    this.collect();
    this.repaint();
  }

  collect() {
    const { picture } = this;
    if (picture) this.links = collectLinks(picture.strands, this.threshold, picture.scale, picture.causal);
  }

  /**
   * @param {HTMLElement} group
   * @param {string[]} labels
   * @param {number[]} words
   * @param {boolean} [frames] whether they are frames, on which nothing is written
   */
  makeTokens(group, labels, words, frames = false) {
    const pieces = (/** @type {number} */ i) => words[i] >= 0 && (words[i] === words[i - 1] || words[i] === words[i + 1]);
    const made = labels.map((label, i) => element("button", {
      type: "button", class: frames ? "heed-link-token heed-link-frame" : pieces(i) ? "heed-link-token heed-piece" : "heed-link-token", dir: "auto",
      title: label, "data-at": i, tabindex: i ? -1 : 0, "aria-pressed": "false", ...(frames ? { "aria-label": label } : {}),
    }, frames ? "" : label));
    group.replaceChildren(...made);
    return made;
  }

  /**
   * @param {string[]} labels
   * @param {number[]} words
   * @returns {SideFacts}
   */
  side(labels, words) {
    const context = /** @type {CanvasRenderingContext2D} */ (this.over.getContext("2d"));
    context.save();
    context.font = `100px ${getComputedStyle(this.stage).fontFamily}`;
    const widths = labels.map((label) => context.measureText(label).width / 100);
    context.restore();
    return { widths, joined: words.map((word, i) => i > 0 && word >= 0 && word === words[i - 1]), mirrored: isRightToLeft(labels) };
  }

  /** In present mode, the height of the window without the title and the line below; else null. */
  heightToFill() {
    if (!isPresenting(this.page)) return null;
    const line = Math.max(18, Math.min(window.innerWidth, window.innerHeight) * 0.024);
    return Math.max(240, window.innerHeight - (this.body.getBoundingClientRect().top + window.scrollY) - line * 4.5);
  }

  layout() {
    const { picture } = this;
    const width = this.body.clientWidth;
    if (!picture || !width) return;
    const frames = { widths: picture.rows.map(() => 0), joined: picture.rows.map(() => false), mirrored: false, even: true };
    const placed = placeTokens(
      this.side(picture.columns, picture.columnWords), picture.own ? null : picture.frames ? frames : this.side(picture.rows, picture.rowWords),
      { width, height: this.heightToFill(), causal: picture.causal, strands: picture.strands.length },
    );
    this.placed = placed;
    const { scene } = placed;
    this.body.dataset.layout = scene.layout;
    this.stage.style.height = `${placed.height}px`;
    this.stage.style.fontSize = `${placed.font}px`;
    this.stage.classList.toggle("heed-mirrored", scene.mirrored);
    this.stage.classList.toggle("heed-written", picture.written);
    this.tokens.query.forEach((token, i) => placeToken(token, scene.queries[i]));
    this.tokens.key.forEach((token, i) => placeToken(token, scene.keys[i]));
    this.strip.show(picture, placed);
    const ratio = Math.min(window.devicePixelRatio || 1, Math.sqrt(MAX_PIXELS / (placed.width * placed.height)));
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(placed.width * ratio);
      canvas.height = Math.round(placed.height * ratio);
      canvas.style.width = `${placed.width}px`;
      canvas.style.height = `${placed.height}px`;
      /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.repaint();
  }

  /** Draw all links again, with the current colours. */
  repaint() {
    const { links } = this;
    if (!links || !this.placed) return;
    this.clear(this.base);
    this.order = Uint32Array.from({ length: links.query.length }, (_, i) => i);
    this.next = 0;
    this.stale = true;
    this.mark();
    this.request();
  }

  /** @param {HTMLCanvasElement} canvas */
  clear(canvas) {
    const { placed } = this;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    if (placed) context.clearRect(0, 0, placed.width, placed.height);
    return context;
  }

  request() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const { links, placed, picture } = this;
    if (!links || !placed || !picture) return;
    const drawn = { scene: placed.scene, links, strands: picture.strands };
    const until = performance.now() + BUDGET;
    if (this.stale) {
      this.stale = false;
      this.drawOver(drawn);
    }
    if (this.next < this.order.length) {
      const context = /** @type {CanvasRenderingContext2D} */ (this.base.getContext("2d"));
      this.next = paintLinks(context, drawn, this.order, this.next, { until, below: this.upto });
      if (this.next < this.order.length) this.request();
    }
  }

  /**
   * Draw the links of the isolated token, or those that grow.
   * @param {{scene: import("./links_scene.js").Scene, links: Links, strands: Strand[]}} drawn
   */
  drawOver(drawn) {
    const context = this.clear(this.over);
    const { isolated, picture } = this;
    if (!picture) return;
    if (isolated) paintLinks(context, drawn, linksOf(drawn.links, this.place(isolated)), 0, { below: this.upto });
    else if (this.upto < picture.rows.length && this.growth > 0) {
      paintLinks(context, drawn, linksOf(drawn.links, { query: this.upto, key: -1 }), 0, { growth: this.growth });
    }
  }

  /**
   * The query and the key of a token; both for a token that is query and key.
   * @param {{side: SideName, at: number}} token
   */
  place({ side, at }) {
    const own = this.picture?.own;
    return { query: side === "query" ? at : -1, key: side === "key" || own ? at : -1 };
  }

  /** @param {{side: SideName, at: number} | null} token */
  isolate(token) {
    if (token?.side === this.isolated?.side && token?.at === this.isolated?.at) return;
    this.isolated = token;
    this.stale = true;
    this.mark();
    this.said(this.description());
    this.request();
  }

  /** Mark the tokens: the isolated one, those that it is linked with, and those that are not written yet. */
  mark() {
    const { isolated, picture, links } = this;
    if (!picture || !links) return;
    this.stage.classList.toggle("heed-isolating", isolated !== null);
    /** @type {Record<SideName, Map<number, number>>} */
    const linked = { key: new Map(), query: new Map() };
    if (isolated) {
      const { query, key } = this.place(isolated);
      for (const link of linksOf(links, { query, key })) {
        const weight = Math.abs(links.weight[link]) / picture.scale;
        const [q, k] = [links.query[link], links.key[link]];
        if (q >= this.upto) continue;
        const add = (/** @type {SideName} */ side, /** @type {number} */ at) => linked[side].set(at, Math.max(linked[side].get(at) ?? 0, weight));
        if (q === query) add(picture.own ? "query" : "key", k);
        if (k === key) add("query", q);
      }
    }
    for (const side of /** @type {SideName[]} */ (["key", "query"])) {
      this.tokens[side].forEach((token, at) => {
        const share = isolated && isolated.side === side && isolated.at === at ? -1 : linked[side].get(at) ?? 0;
        const state = share < 0 ? "isolated" : share > 0 ? "linked" : side === "query" && at >= this.upto ? "unwritten" : "";
        if (token.dataset.state !== state) token.dataset.state = state;
        const colour = share > 0 ? (0.08 + 0.5 * Math.min(share, 1)).toFixed(2) : "";
        if (token.dataset.share === colour) return;
        token.dataset.share = colour;
        token.style.setProperty("--heed-share", colour || "0");
      });
    }
  }

  /** The weights of the isolated token, as a text: what it reads, and what reads it. */
  description() {
    const { isolated, picture } = this;
    if (!isolated || !picture) return "";
    const { query, key } = this.place(isolated);
    const parts = [];
    const { strands } = picture;
    /**
     * @param {(matrix: import("./types.js").Matrix) => ArrayLike<number>} weights
     * @param {string[]} labels
     */
    const best = (weights, labels) => {
      const all = strands.map(({ matrix }) => weights(matrix));
      const mean = labels.map((_, i) => all.reduce((sum, one) => sum + one[i], 0) / all.length);
      return topIndices(mean, 3).sort((a, b) => mean[b] - mean[a]).filter((i) => Math.abs(mean[i]) >= 0.005)
        .map((i) => `${labels[i]} ${formatWeight(mean[i])}`).join(", ") || "nothing above 0.005";
    };
    const mean = strands.length > 1 ? " (mean of the heads)" : "";
    if (query >= 0) parts.push(`${picture.rows[query]} reads ${best(({ values, columns }) => values.subarray(query * columns, (query + 1) * columns), picture.columns)}`);
    if (key >= 0) parts.push(`${picture.columns[key]} is read by ${best(({ values, columns }) => picture.rows.map((_, row) => values[row * columns + key]), picture.rows)}`);
    return parts.join(" · ") + mean;
  }

  /**
   * Show the links of the first queries only, and a part of the next one's.
   * @param {number} upto
   * @param {number} growth
   */
  write(upto, growth) {
    const { links, placed, picture } = this;
    if (!links || !placed || !picture) return;
    const complete = this.next >= this.order.length;
    if (upto === this.upto + 1 && complete) {
      // Add the links of the query that has grown.
      this.order = linksOf(links, { query: this.upto, key: -1 });
      this.next = 0;
      this.upto = upto;
      this.mark();
    } else if (upto !== this.upto) {
      this.upto = upto;
      this.repaint();
    }
    this.growth = growth;
    this.stale = true;
    this.request();
  }
}

/**
 * @param {HTMLElement} token
 * @param {import("./links_scene.js").Box} box
 */
function placeToken(token, box) {
  token.style.transform = `translate(${box.x}px, ${box.y}px)`;
  token.style.width = `${box.width}px`;
  token.style.height = `${box.height}px`;
}
