// The Links panel: all links between the tokens of a map, with filters for layers and heads.

import { element, focusedNear, messageOf, radioGroup, selectField, setOptions } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { linksSvg, scaleLegend } from "./links_drawing.js";
import { gifButton } from "./links_gif.js";
import { hasLinks } from "./links_offer.js";
import { LinksPlayer } from "./links_player.js";
import { defaultThreshold, THRESHOLDS } from "./links_scene.js";
import { framesOf, joinFrames } from "./links_time.js";
import { LinksView } from "./links_view.js";
import { isCausal } from "./masked_cells.js";
import { joinLabels, meanMatrix, poolByWord, sliceRows } from "./matrices.js";
import { groupsOf, layerName, titles } from "./overview.js";
import { HEAD_COLOURS, HEAD_COLOURS_DARK, PRINT_THEME, themeOf } from "./painting.js";
import { NO_ATTENTION } from "./session.js";
import { StepChooser } from "./step_chooser.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./overview.js").Group} Group */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {import("./links_view.js").LinkPicture} LinkPicture */
/** @typedef {{name: string, map: number, head: number | null}} Part a head, or all heads of a layer */

const ALL = "all";

class LinksPanel {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {Group[]} */
    this.groups = [];
    /** @type {Group | null} */
    this.group = null;
    /** The map of the layer, or all layers of the group. */
    this.layer = ALL;
    /** @type {Part[]} */
    this.parts = [];
    /** @type {Set<number>} the places of the parts that are shown */
    this.on = new Set();
    this.colours = "mean";
    this.units = "tokens";
    /** @type {LinkPicture | null} */
    this.picture = null;
    /** @type {number | undefined} the smallest weight that is shown, as a share of the scale; undefined to choose it */
    this.threshold = undefined;
    this.readout = element("p", { class: "heed-readout heed-links-readout" });
    this.view = new LinksView(page, (text) => this.say(text));
    this.player = new LinksPlayer(this.view);
    this.steps = new StepChooser(() => this.draw());
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.heading = element("h2", { class: "heed-links-title", dir: "auto" });
    this.groupSelect = selectField("Attention", [], "", (key) => this.setGroup(key));
    this.layerSelect = selectField("Layer", [], "", (layer) => this.setLayer(layer));
    this.chips = element("div", { class: "heed-chips", role: "group", "aria-label": "Heads" });
    this.colourChoice = element("div");
    this.unitChoice = radioGroup("Units", [{ value: "tokens", text: "Tokens" }, { value: "words", text: "Words" }], this.units, (units) => {
      this.units = units;
      this.draw();
    });
    this.count = element("p", { class: "heed-detail", role: "status" });
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, max: THRESHOLDS.length - 1, step: 1, "aria-label": "Hide links below", oninput: () => this.setThreshold(),
    });
    this.thresholdLabel = element("span", { class: "heed-number" });
    this.legend = element("div", { class: "heed-links-legend" });
    /** The number of drawings that were begun; only the last one is shown. */
    this.drawings = 0;
    this.body = this.build();
    page.onTheme(() => {
      if (!this.body.hidden) this.draw();
    });
  }

  build() {
    this.player.body.append(...gifButton(() => this.playing(), this.page.announce));
    this.field = element(
      "div", { class: "heed-links" }, this.heading, this.player.body, this.steps.body, this.view.body, this.view.strip.hint, this.readout,
      element(
        "div", { class: "heed-tools heed-links-threshold" },
        element("label", { class: "heed-field" }, element("span", {}, "Hide links below"), this.slider, this.thresholdLabel), this.legend,
      ),
      this.count,
    );
    return element(
      "div", { class: "heed-panel heed-links-panel" },
      element(
        "div", { class: "heed-tools" }, this.groupSelect.field, this.layerSelect.field, this.colourChoice, this.unitChoice,
        exportButtons(() => this.matrices(), () => this.heading.textContent || "links", this.page.announce, () => this.drawing()),
      ),
      this.chips, this.notice, this.field,
    );
  }

  async show() {
    const { subject } = this.page.session;
    try {
      const trace = await this.page.session.current();
      if (subject !== this.page.session.subject) return;
      if (trace !== this.trace) this.setTrace(trace);
      else this.view.layout();
    } catch (error) {
      if (subject !== this.page.session.subject) return;
      this.trace = null;
      this.notice.textContent = messageOf(error);
    }
    this.body.classList.toggle("heed-empty", !this.trace);
    if (this.field) this.field.hidden = this.chips.hidden = !this.trace;
  }

  /** @param {LoadedTrace} trace */
  setTrace(trace) {
    const { maps, kinds } = trace.summary;
    const before = this.group?.key;
    if (!maps.length) throw new Error(NO_ATTENTION);
    this.groups = groupsOf(maps).filter(({ maps: [map] }) => hasLinks(maps[map], kinds));
    if (!this.groups.length) throw new Error("attention to a picture, a sound or a memory has a view of its own; see Steps and Heads");
    this.trace = trace;
    this.notice.textContent = "";
    setOptions(this.groupSelect.input, this.groups.map(({ key, title }) => ({ value: key, text: title })), "");
    const aligned = this.groups.find((group) => trace.alignment && group.maps.includes(trace.alignment.map));
    this.setGroup((this.groups.find(({ key }) => key === before) ?? aligned ?? this.groups[0]).key);
  }

  /** @param {string} key */
  setGroup(key) {
    const { trace } = this;
    const group = this.groups.find((one) => one.key === key);
    if (!trace || !group) return;
    this.group = group;
    this.groupSelect.input.value = key;
    const layers = group.maps.map((map, place) => ({ value: String(map), text: layerName(group, place) }));
    setOptions(this.layerSelect.input, layers.length > 1 ? [...layers, { value: ALL, text: "All layers" }] : layers, "");
    this.layerSelect.field.hidden = layers.length < 2;
    const aligned = trace.alignment && group.maps.includes(trace.alignment.map) ? trace.alignment.map : group.maps[group.maps.length - 1];
    this.setLayer(String(aligned));
  }

  /** @param {string} layer */
  setLayer(layer) {
    const { trace, group } = this;
    if (!trace || !group) return;
    this.layer = layer;
    this.layerSelect.input.value = layer;
    const { maps } = trace.summary;
    const names = maps[group.maps[0]].kind === "rollout" ? "Layer" : "Head";
    this.parts = layer === ALL ? group.maps.map((map, place) => ({ name: layerName(group, place), map, head: null }))
      : Array.from({ length: maps[Number(layer)].heads }, (_, head) => ({ name: `${names} ${head + 1}`, map: Number(layer), head }));
    const { alignment } = trace;
    const aligned = alignment && String(alignment.map) === layer ? alignment.heads : null;
    this.on = new Set(aligned ?? this.parts.map((_, i) => i));
    this.setColourChoice();
    this.threshold = undefined;
    this.draw();
  }

  setColourChoice() {
    const each = this.layer === ALL ? "Colour by layer" : "Colour by head";
    this.colourChoice.replaceChildren(radioGroup("Colours", [{ value: "mean", text: "Mean" }, { value: "each", text: each }], this.colours, (colours) => {
      this.colours = colours;
      this.threshold = undefined;
      this.draw();
    }));
    this.colourChoice.hidden = this.chips.hidden = this.parts.length < 2;
  }

  /**
   * @param {number} place
   * @param {boolean} dark
   */
  colour(place, dark) {
    const colours = dark ? HEAD_COLOURS_DARK : HEAD_COLOURS;
    return colours[place % colours.length];
  }

  drawChips() {
    const { dark } = themeOf(this.page.root);
    const focused = this.chips.contains(focusedNear(this.chips)) ? /** @type {HTMLElement} */ (focusedNear(this.chips)).dataset.part : undefined;
    this.chips.setAttribute("aria-label", this.layer === ALL ? "Layers" : "Heads");
    this.chips.replaceChildren(...this.parts.map(({ name }, place) => {
      const swatch = element("i", { class: "heed-swatch", "aria-hidden": "true" });
      swatch.style.background = this.colours === "each" ? this.colour(place, dark) : "var(--heed-weight)";
      return element("button", {
        type: "button", class: "heed-chip", "aria-pressed": String(this.on.has(place)), "data-part": place, onclick: () => this.toggle(place),
      }, swatch, name);
    }));
    if (focused !== undefined) /** @type {HTMLElement | null} */ (this.chips.querySelector(`[data-part="${focused}"]`))?.focus();
  }

  /**
   * Show a part or hide it; at least one is shown.
   * @param {number} place
   */
  toggle(place) {
    if (this.on.has(place) && this.on.size > 1) this.on.delete(place);
    else this.on.add(place);
    this.draw();
  }

  /**
   * @param {Part} part
   * @returns {Promise<Matrix>}
   */
  async weightsOf({ map, head }) {
    const trace = /** @type {LoadedTrace} */ (this.trace);
    const facts = trace.summary.maps[map];
    const heads = head === null ? Array.from({ length: facts.heads }, (_, i) => i) : [head];
    const matrix = meanMatrix(await Promise.all(heads.map((one) => trace.head(map, one))));
    const step = this.steps.of(facts.queries > 1 ? trace.stepLabels(map) : null);
    if (step !== null) return sliceRows(matrix, step * facts.queries, (step + 1) * facts.queries);
    const shift = this.shiftOf(map);
    return shift ? sliceRows(matrix, shift, matrix.rows) : matrix;
  }

  /**
   * The number of first rows that belong to no output token.
   * @param {number} map
   */
  shiftOf(map) {
    const alignment = this.trace?.alignment;
    return this.layer !== ALL && alignment?.map === map ? alignment.shift : 0;
  }

  /** @param {number} map */
  labelsOf(map) {
    const trace = /** @type {LoadedTrace} */ (this.trace);
    const facts = trace.summary.maps[map];
    const shift = this.shiftOf(map);
    const rows = shift ? trace.summary.labels[facts.query_axis].slice(shift)
      : facts.step_axis && facts.queries > 1 ? trace.queryLabels(map) : trace.rowLabels(map);
    const { rowWords, columnWords } = trace.wordsOf(map, shift);
    return { rows, columns: trace.columnLabels(map), rowWords, columnWords: columnWords.length ? columnWords : rows.map((_, i) => i) };
  }

  async draw() {
    const { trace, group } = this;
    if (!trace || !group) return;
    const mine = ++this.drawings;
    const shown = this.parts.map((part, place) => ({ part, place })).filter(({ place }) => this.on.has(place));
    this.drawChips();
    try {
      const matrices = await Promise.all(shown.map(({ part }) => this.weightsOf(part)));
      if (mine !== this.drawings || trace !== this.trace || group !== this.group) return;
      const [{ part: { map } }] = shown;
      const facts = trace.summary.maps[map];
      const own = facts.query_axis === facts.key_axis;
      const labels = this.labelsOf(map);
      const theme = themeOf(this.page.root);
      const several = this.colours === "each" && this.parts.length > 1;
      /** @type {import("./links_scene.js").Strand[]} */
      const strands = several ? shown.map(({ part, place }, i) => ({ name: part.name, colour: this.colour(place, theme.dark), matrix: matrices[i] }))
        : [{ name: shown.length > 1 ? "mean" : shown[0].part.name, colour: theme.accent, matrix: meanMatrix(matrices) }];
      const causal = own && strands.every(({ matrix }) => isCausal(matrix));
      const queries = trace.summary.kinds[facts.query_axis];
      const frames = queries.kind === "time" && !facts.step_axis ? framesOf(queries) : null;
      if (frames) this.unitChoice.hidden = true;
      this.picture = { ...(frames ? joinFrames(strands, labels, frames.every) : this.pool(strands, labels)), own, causal, written: facts.written, scale: scaleOf(facts, matrices), frames };
      const heads = shown.length === this.parts.length ? `all ${shown.length} ${this.layer === ALL ? "layers" : "heads"}` : shown.map(({ part }) => part.name.toLowerCase()).join(", ");
      this.showPicture(several ? "" : shown.length > 1 ? `, mean of ${heads}` : `, ${heads}`);
      this.notice.textContent = "";
    } catch (error) {
      if (mine === this.drawings) this.notice.textContent = messageOf(error);
    }
  }

  /**
   * Weights between words if words are shown.
   * @param {import("./links_scene.js").Strand[]} strands
   * @param {{rows: string[], columns: string[], rowWords: number[], columnWords: number[]}} labels
   */
  pool(strands, labels) {
    const { rowWords, columnWords } = labels;
    const isWord = (/** @type {number[]} */ words) => words.some((word) => word >= 0) && words.some((word, i) => i > 0 && word >= 0 && word === words[i - 1]);
    this.unitChoice.hidden = !isWord(rowWords) && !isWord(columnWords);
    if (this.units !== "words" || this.unitChoice.hidden) return { strands, ...labels };
    return {
      strands: strands.map((one) => ({ ...one, matrix: poolByWord(one.matrix, rowWords, columnWords) })),
      rows: joinLabels(labels.rows, rowWords), columns: joinLabels(labels.columns, columnWords), rowWords: [], columnWords: [],
    };
  }

  /** @param {string} heads which heads are shown */
  showPicture(heads) {
    const { picture, group, trace } = this;
    if (!picture || !group || !trace) return;
    const layer = this.layer === ALL ? "all layers" : group.maps.length > 1 ? layerName(group, group.maps.indexOf(Number(this.layer))).toLowerCase() : "";
    this.heading.textContent = [group.title, layer].filter(Boolean).join(", ") + (this.parts.length > 1 ? heads : "") + (this.steps.label ? `, ${this.steps.label}` : "");
    this.threshold ??= defaultThreshold(picture.strands, picture.scale);
    this.slider.value = String(THRESHOLDS.indexOf(this.threshold));
    this.view.threshold = this.threshold;
    this.view.show(picture);
    this.player.of(picture.rows.length, picture.frames ? picture.frames.every > 1 ? "parts" : "frames" : "tokens");
    this.legend.replaceChildren(scaleLegend(picture, themeOf(this.page.root)));
    this.showCount();
    this.say(this.view.description());
  }

  setThreshold() {
    this.threshold = THRESHOLDS[Number(this.slider.value)];
    this.view.setThreshold(this.threshold);
    this.showCount();
  }

  showCount() {
    const { links } = this.view;
    if (!links || !this.picture || this.threshold === undefined) return;
    const least = formatShare(this.threshold * this.picture.scale);
    const [shown, all] = [links.query.length, links.all];
    this.thresholdLabel.textContent = least;
    this.slider.setAttribute("aria-valuetext", least);
    const left = this.units === "words" && !this.unitChoice.hidden ? " Tokens that belong to no word, such as </s>, are left out." : "";
    this.count.textContent = (shown === all ? `All ${number(all)} links are shown.`
      : this.threshold === 0 ? `${number(shown)} of ${number(all)} links are shown; the others have the weight 0.`
      : `${number(shown)} of ${number(all)} links are shown; ${number(all - shown)} below ${least} are hidden.`) + left;
  }

  /** @param {string} text */
  say(text) {
    this.readout.textContent = text || "Point at a word, or move to it with Tab and the arrow keys, to see its links only. Click to keep them.";
    this.readout.classList.toggle("heed-idle", !text);
  }

  /**
   * The weights as matrices, for CSV files.
   * @returns {import("./types.js").Picture | null}
   */
  matrices() {
    const { picture, trace, group } = this;
    if (!picture || !trace || !group) return null;
    return {
      title: this.heading.textContent ?? "", layers: picture.strands, rows: picture.rows, columns: picture.columns,
      rowWords: picture.rowWords, columnWords: picture.columnWords, ...titles(trace.summary.maps[group.maps[0]]), bars: [], causal: picture.causal,
    };
  }

  /**
   * What is shown, in the colours for a white page.
   * @returns {LinkPicture | null}
   */
  printed() {
    const { picture, view } = this;
    if (!picture || !view.placed || !view.links) return null;
    const strands = picture.strands.map((one, i) => ({
      ...one, colour: picture.strands.length > 1 ? this.colour([...this.on].sort((a, b) => a - b)[i], false) : PRINT_THEME.accent,
    }));
    return { ...picture, strands };
  }

  get title() {
    return this.heading.textContent ?? "";
  }

  /** The SVG of what is shown. */
  drawing() {
    const picture = this.printed();
    return picture && linksSvg(picture, this.view, this.title);
  }

  /** What Play shows, to be saved. */
  playing() {
    const picture = this.printed();
    return picture && { picture, view: this.view, title: this.title, pace: this.player.pace };
  }
}

/**
 * The weight with the full width: 1 for attention, and the largest weight for other kinds of maps.
 * @param {import("./types.js").MapFacts} facts
 * @param {Matrix[]} matrices
 */
function scaleOf(facts, matrices) {
  if (["weights", "posterior"].includes(facts.kind) && !facts.negative && facts.scale.every((peak) => peak <= 1.001)) return 1;
  return Math.max(...matrices.map(({ peak }) => peak)) || 1;
}

/** @param {number} value */
function number(value) {
  return value.toLocaleString("en");
}

/** @param {number} value */
function formatShare(value) {
  return String(Number(value.toPrecision(2)));
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function linksPanel(page) {
  const links = new LinksPanel(page);
  return { name: "links", title: "Links", body: links.body, show: () => links.show() };
}
