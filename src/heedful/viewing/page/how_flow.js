// The stages of a model as a flow: one lane for each sequence; attention has a button for each head.

import { element } from "./elements.js";

/** @typedef {import("./types.js").Architecture} Architecture */
/** @typedef {import("./types.js").Stage} Stage */
/** @typedef {import("./types.js").MapFacts} MapFacts */

// Of more heads, the choice of heads below shows the others.
const MOST_HEADS = 32;

const KINDS = {
  embedding: "Vectors of tokens and positions", attention: "Attention", layer: "Layer", recurrent: "Recurrent network",
  norm: "Normalisation", linear: "Linear map",
};

export class Flow {
  /**
   * @param {(map: number, head: number) => void} chosen called with an attention map and a head
   */
  constructor(chosen) {
    this.chosen = chosen;
    /** @type {Stage | null} */
    this.stage = null;
    /** @type {MapFacts[]} */
    this.maps = [];
    this.lanes = element("div", { class: "heed-lanes" });
    this.details = element("div", { class: "heed-stage-details", "aria-live": "polite" });
    this.body = element("section", { class: "heed-flow", "aria-label": "The stages of the model" }, this.lanes, this.details);
  }

  /**
   * @param {Architecture} architecture
   * @param {MapFacts[]} maps
   * @param {string} output what the model decides, for the last stage
   */
  show(architecture, maps, output) {
    this.maps = maps;
    const last = architecture.lanes.length - 1;
    this.lanes.replaceChildren(...architecture.lanes.map((lane, i) => {
      const stages = lane.stages.map((stage) => element("li", {}, this.button(stage)));
      if (i === last) stages.push(element("li", {}, element("span", { class: "heed-stage heed-stage-output" }, output)));
      else stages.push(element("li", { class: "heed-stage-note" }, `read by the attention of ${architecture.lanes[last].axis}`));
      return element(
        "div", { class: "heed-lane" }, element("h3", { class: "heed-label" }, lane.axis[0].toUpperCase() + lane.axis.slice(1)),
        element("ol", { class: "heed-stages" }, ...stages),
      );
    }));
    const all = architecture.lanes.flatMap(({ stages }) => stages);
    const kept = all.find(({ name }) => name === this.stage?.name);
    this.select(kept ?? [...all].reverse().find((stage) => stage.maps.length) ?? all[0]);
  }

  /** @param {Stage} stage */
  button(stage) {
    return element("button", {
      type: "button", class: `heed-stage heed-stage-${stage.kind}`, "data-stage": stage.name, title: stage.name,
      "aria-pressed": "false", onclick: () => this.open(stage),
    }, stage.title);
  }

  /**
   * Select a stage, and its first head if it has attention.
   * @param {Stage} stage
   */
  open(stage) {
    this.select(stage);
    const map = this.maps.findIndex(({ name }) => name === stage.maps[0]);
    if (map >= 0) this.chosen(map, 0);
  }

  /** @param {Stage | undefined} stage */
  select(stage) {
    if (!stage) return;
    this.stage = stage;
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (this.lanes.querySelectorAll("[data-stage]"))) {
      button.setAttribute("aria-pressed", String(button.dataset.stage === stage.name));
    }
    this.details.replaceChildren(
      element("p", {}, element("strong", {}, stage.title), ` · ${this.facts(stage)}`),
      stage.about ? element("p", { class: "heed-hint" }, stage.about) : "",
      stage.parts.length || stage.maps.length ? this.parts(stage) : "",
    );
  }

  /** @param {Stage} stage */
  facts(stage) {
    const kind = KINDS[/** @type {keyof typeof KINDS} */ (stage.kind)]?.toLowerCase() ?? "";
    const found = !kind || stage.title.toLowerCase().includes(kind) ? [] : [kind];
    found.push(`${stage.parameters.toLocaleString("en")} parameters`);
    if (stage.shape) found.push(`output ${stage.shape.map((size) => size.toLocaleString("en")).join(" × ")}`);
    return found.join(" · ");
  }

  /**
   * The parts of a stage, in the order in which they run; those with attention have their heads.
   * @param {Stage} stage
   */
  parts(stage) {
    const parts = stage.parts.length ? stage.parts : [stage];
    return element("ol", { class: "heed-parts" }, ...parts.map((part) => element(
      "li", {}, element("span", { class: `heed-part heed-stage-${part.kind}`, title: part.about || part.name }, part.title),
      part === stage ? "" : element("span", { class: "heed-hint" }, this.facts(part)),
      ...part.maps.map((name) => this.heads(name)),
    )));
  }

  /** @param {string} name the name of an attention module */
  heads(name) {
    const map = this.maps.findIndex((one) => one.name === name);
    if (map < 0) return "";
    const count = Math.min(this.maps[map].heads, MOST_HEADS);
    const buttons = Array.from({ length: count }, (_, head) => element("button", {
      type: "button", class: "heed-head-chip", "data-map": map, "data-head": head, "aria-pressed": "false",
      onclick: () => this.chosen(map, head),
    }, String(head + 1)));
    const more = this.maps[map].heads - count;
    return element(
      "span", { class: "heed-head-chips", role: "group", "aria-label": `Heads of ${name}` },
      element("span", { class: "heed-hint", "aria-hidden": "true" }, count > 1 ? "heads" : "head"), ...buttons,
      more ? element("span", { class: "heed-hint" }, `and ${more} more below`) : "",
    );
  }

  /**
   * Mark the head whose equation is shown.
   * @param {number} map
   * @param {number} head
   */
  mark(map, head) {
    for (const chip of /** @type {NodeListOf<HTMLElement>} */ (this.details.querySelectorAll(".heed-head-chip"))) {
      chip.setAttribute("aria-pressed", String(Number(chip.dataset.map) === map && Number(chip.dataset.head) === head));
    }
  }

  /**
   * Show the stage of an attention module.
   * @param {Architecture} architecture
   * @param {string} name
   */
  reveal(architecture, name) {
    const stage = architecture.lanes.flatMap(({ stages }) => stages).find(({ maps }) => maps.includes(name));
    if (stage && stage !== this.stage) this.select(stage);
  }
}
