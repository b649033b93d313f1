// The panel "How it works": the model's stages, and the attention equation with the numbers of the text.

import { EquationView } from "./how_equation.js";
import { EXAMPLE_COMPONENTS, EXAMPLE_WORDS, exampleRow } from "./equation_example.js";
import { element, messageOf, radioGroup, selectField, setOptions } from "./elements.js";
import { Flow } from "./how_flow.js";
import { glossaryLine } from "./glossary.js";
import { LensView } from "./how_lens.js";
import { NeuronView } from "./how_neurons.js";
import { groupsOf, layerName } from "./overview.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

const ABOUT_EXAMPLE = "Each word has two numbers, chosen by hand: the first stands for a person, the second for an act. “See” looks for a person and, half as much, for an act; “that” and “run” look for a person, “girl” for an act.";

const ABOUT_PAST = "The scores also depend on the weights of the steps before: the column “earlier weights” has the difference that they make.";

class HowItWorks {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {import("./types.js").Architecture | null} */
    this.architecture = null;
    /** @type {"text" | "example" | null} what the user chose; null for the text, if there is one */
    this.choice = null;
    this.map = 0;
    this.head = 0;
    this.query = 0;
    this.asked = 0;
    this.flow = new Flow((map, head) => this.choose(map, head));
    this.equation = new EquationView(page, () => undefined);
    this.lens = new LensView();
    this.neurons = new NeuronView(page);
    this.mapField = selectField("Attention", [], "", (value) => this.choose(Number(value), 0));
    this.headField = selectField("Head", [], "", (value) => this.choose(this.map, Number(value)));
    this.queryField = selectField("Query", [], "", (value) => this.setQuery(Number(value)));
    this.sources = element("div");
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.about = element("p", { class: "heed-hint" });
    this.body = element(
      "div", { class: "heed-panel heed-how" },
      element("div", { class: "heed-tools" }, this.sources), this.notice, this.flow.body,
      element("div", { class: "heed-tools" }, this.mapField.field, this.headField.field, this.queryField.field),
      this.about, this.equation.body, this.neurons.body, this.lens.body, glossaryLine(["head", "cross-attention"]),
    );
    page.onTheme(() => this.equation.update());
  }

  async show() {
    const { subject } = this.page.session;
    const computed = subject !== null && "model" in subject;
    this.setSources(computed);
    if (!computed || this.wantsExample) {
      this.trace = null;
      return this.showExample(computed ? "" : this.missing(subject !== null));
    }
    this.notice.textContent = "";
    try {
      const trace = await this.page.session.current();
      if (trace === this.trace) return;
      const architecture = await this.page.provider.architecture(plain(subject));
      if (subject !== this.page.session.subject || this.wantsExample) return;
      this.setTrace(trace, architecture);
      this.showLens(subject, architecture);
    } catch (error) {
      if (subject !== this.page.session.subject) return;
      this.trace = null;
      this.showExample(messageOf(error));
    }
  }

  /**
   * The predictions of the layers, for models that write.
   * @param {import("./session.js").Subject} subject
   * @param {import("./types.js").Architecture} architecture
   */
  async showLens(subject, architecture) {
    this.lens.show(null);
    if (!architecture.lens || (this.trace?.summary.decided.length ?? 0) < 2) return;
    const lens = await this.page.provider.lens(plain(subject)).catch(() => null); // e.g. the server has stopped
    if (subject === this.page.session.subject && !this.wantsExample) this.lens.show(lens);
  }

  get wantsExample() {
    return this.choice === "example";
  }

  /** @param {boolean} opened whether there is an opened trace */
  missing(opened) {
    if (!this.page.provider.live) return "This file contains weights only. With heedful view RUN, this panel shows the model’s own numbers.";
    return opened ? "An opened trace contains weights only, so this is an example with numbers chosen by hand." : "Type a text in the first panel to see the model’s own numbers.";
  }

  /** @param {boolean} computed whether there is a text */
  setSources(computed) {
    this.sources.hidden = !computed;
    const value = this.choice ?? "text";
    this.sources.replaceChildren(radioGroup("Numbers of", [
      { value: "text", text: "Your text" }, { value: "example", text: "“See that girl run”" },
    ], value, (chosen) => {
      this.choice = chosen === "example" ? "example" : "text";
      this.show();
      /** @type {HTMLElement | null} */ (this.sources.querySelector("[aria-checked=true]"))?.focus();
    }));
  }

  /** @param {string} reason why the example is shown; empty if the user chose it */
  showExample(reason) {
    this.notice.textContent = reason;
    this.lens.show(null);
    this.flow.body.hidden = this.mapField.field.hidden = this.headField.field.hidden = true;
    this.equation.body.hidden = this.queryField.field.hidden = false;
    this.about.textContent = ABOUT_EXAMPLE;
    const word = Math.min(this.query, EXAMPLE_WORDS.length - 1);
    setOptions(this.queryField.input, EXAMPLE_WORDS.map((text, i) => ({ value: String(i), text })), String(word));
    this.setQuery(word);
  }

  /** @param {LoadedTrace} trace @param {import("./types.js").Architecture} architecture */
  setTrace(trace, architecture) {
    const { maps, decided_labels: labels } = trace.summary;
    const weights = maps.map((facts, map) => ({ facts, map })).filter(({ facts }) => facts.kind === "weights");
    const before = this.trace?.summary.maps[this.map]?.name;
    this.trace = trace;
    this.architecture = architecture;
    const writes = maps.some((facts) => facts.written) || trace.summary.decided.length > 1 && trace.summary.kinds.text;
    const predicts = writes ? "Probabilities of each next token" : trace.summary.decided.length > 1 ? "Outputs" : `Decision: ${labels?.[0] ?? ""}`;
    this.flow.body.hidden = false;
    this.flow.show(architecture, maps, predicts);
    for (const { field } of [this.mapField, this.headField, this.queryField]) field.hidden = !weights.length;
    this.equation.body.hidden = !weights.length;
    if (!weights.length) this.neurons.show(null);
    if (!weights.length) {
      this.about.textContent = "This model has no attention, so there is no equation to show.";
      return;
    }
    setOptions(this.mapField.input, this.mapNames(), "");
    const kept = weights.find(({ facts }) => facts.name === before);
    const cross = weights.filter(({ facts }) => facts.query_axis !== facts.key_axis).pop();
    const { map } = kept ?? cross ?? weights[weights.length - 1];
    this.choose(map, kept ? this.head : 0);
  }

  /** The attention modules by group and layer. */
  mapNames() {
    const { trace } = this;
    if (!trace) return [];
    const groups = groupsOf(trace.summary.maps).filter(({ maps }) => trace.summary.maps[maps[0]].kind === "weights");
    return groups.flatMap((group) => group.maps.map((map, place) => ({
      value: String(map), text: group.maps.length > 1 ? `${group.title} · ${layerName(group, place).toLowerCase()}` : group.title,
    })));
  }

  /** @param {number} map @param {number} head */
  choose(map, head) {
    const { trace } = this;
    if (!trace) return;
    const facts = trace.summary.maps[map];
    const sameRows = this.map === map || trace.summary.maps[this.map]?.query_axis === facts.query_axis;
    this.map = map;
    this.head = Math.min(head, facts.heads - 1);
    if (this.architecture) this.flow.reveal(this.architecture, facts.name);
    this.mapField.input.value = String(map);
    setOptions(this.headField.input, Array.from({ length: facts.heads }, (_, i) => ({ value: String(i), text: String(i + 1) })), String(this.head));
    this.headField.field.hidden = facts.heads < 2;
    const rows = trace.rowLabels(map);
    const query = sameRows && this.query < rows.length ? this.query : Math.floor(rows.length / 2);
    setOptions(this.queryField.input, rows.map((text, i) => ({ value: String(i), text: `${i + 1} ${text}` })), String(query));
    this.setQuery(query);
  }

  /**
   * @param {import("./types.js").EquationRow} row
   * @param {import("./how_equation.js").Names} names
   */
  showRow(row, names) {
    this.equation.show(row, names);
    this.neurons.show(row, names);
  }

  /** @param {string} module */
  showNoEquation(module) {
    this.equation.body.hidden = true;
    this.queryField.field.hidden = true;
    this.neurons.show(null);
    this.notice.textContent = "";
    this.about.textContent = `${module} does not compare a query with one key after another, so it has no equation to show. Its weights are in the panel Heads.`;
  }

  /** @param {number} query */
  async setQuery(query) {
    this.query = query;
    const { trace, map, head } = this;
    if (!trace) return this.showRow(exampleRow(query), { query: EXAMPLE_WORDS[query], keys: EXAMPLE_WORDS, components: EXAMPLE_COMPONENTS });
    this.flow.mark(map, head);
    const facts = trace.summary.maps[map];
    const asked = (this.asked += 1);
    if (!this.architecture?.equations.includes(facts.name)) return this.showNoEquation(facts.name);
    this.equation.body.setAttribute("aria-busy", "true");
    try {
      const row = await this.page.provider.equation({ ...plain(trace.subject), module: facts.name, head, row: query });
      if (asked !== this.asked || trace !== this.trace) return;
      const written = facts.written ? "Each query is the decoder’s input; it is named after the token that it predicts." : "";
      this.about.textContent = [written, row.past ? ABOUT_PAST : ""].filter(Boolean).join(" ");
      this.notice.textContent = "";
      this.equation.body.hidden = this.queryField.field.hidden = false;
      this.showRow(row, { query: trace.rowLabels(map)[query], keys: trace.columnLabels(map) });
    } catch (error) {
      if (asked !== this.asked) return;
      this.equation.body.hidden = true;
      this.neurons.show(null);
      this.notice.textContent = messageOf(error);
    } finally {
      if (asked === this.asked) this.equation.body.removeAttribute("aria-busy");
    }
  }
}

/**
 * The fields of a request for a subject, without those that only a trace has.
 * @param {import("./session.js").Subject} subject
 */
function plain(subject) {
  const { gradients: _, ...fields } = /** @type {{gradients?: boolean}} */ (subject);
  return fields;
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function howPanel(page) {
  const how = new HowItWorks(page);
  return { name: "how", title: "How it works", body: how.body, show: () => how.show() };
}
