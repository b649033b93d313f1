// Two models or traces side by side on the same sentence.

import { alignmentPicture } from "./alignment.js";
import { choice, element, messageOf } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { signed } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { groupsOf, headName, titles } from "./overview.js";
import { NONE } from "./session.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {import("./session.js").Subject} Subject */

/**
 * The typed text for a model, as its panel sends it; includes the second text if the model has
 * the same panel.
 * @param {Page} page
 * @param {string} model
 * @returns {Promise<Subject>}
 */
async function throughModel(page, model) {
  const now = page.session.typed;
  if (!now || !("source" in now)) throw new Error("type a text first");
  const { source, target } = now;
  const { gradients: _, ...plain } = now;
  if (now.model === model && target !== undefined) return plain;
  const panel = page.panelOf(model);
  if (panel?.through) return panel.through(model, { source });
  const alike = panel === page.panelOf(now.model);
  const { model: _model, target: _target, ...how } = plain;
  return { ...(alike ? how : { source }), model, ...(alike && target !== undefined ? { target } : {}) };
}

/**
 * The initial selection: the model that was used last, and the next one
 * of the same kind, or a trace.
 * @param {Page} page
 * @param {Models} models
 * @param {{value: string}[]} options
 * @returns {string[]}
 */
function fitting(page, models, options) {
  const now = page.session.typed;
  const values = options.map(({ value }) => value);
  const own = now && "model" in now ? `model:${now.model}` : values[0];
  const same = (/** @type {string} */ value) => kindOf(models, value) === kindOf(models, own);
  const other = values.find((value) => value !== own && same(value)) ?? values.find((value) => value.startsWith("trace:"));
  // With a single model, two of its heads can be compared.
  return [own, other ?? own];
}

/**
 * What two models must have in common to accept the same text.
 * @param {Models} models
 * @param {string} value
 */
function kindOf(models, value) {
  if (value.startsWith("trace:")) return "trace";
  const name = value.slice(6);
  const all = /** @type {Partial<import("./types.js").ModelFacts & import("./types.js").ReaderFacts>[]} */ (
    [...models.models, ...(models.readers ?? [])]);
  const known = all.find((one) => one.name === name);
  const panel = models.panels?.find((one) => one.models.includes(name))?.name;
  return [panel, known?.task, known?.pairs === true, known?.source].join(" ");
}

/** One side of the comparison. */
class Side {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {{value: string, text: string}[]} options
   */
  constructor(page, name, options) {
    this.page = page;
    /** Whether the user has chosen a model or trace. */
    this.meant = false;
    const changed = () => this.show();
    this.name = name;
    this.look = "alignment";
    this.asked = 0;
    /** @type {Picture | null} */
    this.picture = null;
    this.whose = choice(name, options, options[0].value, () => {
      this.meant = true;
      changed();
    });
    this.what = choice("Shows", [{ value: "alignment", text: "Alignment" }], "alignment", (value) => {
      this.look = value;
      changed();
    });
    this.text = element("p", { class: "heed-sentence", dir: "auto" });
    this.figure = element("p", { class: "heed-where" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.view = new MatrixView(page, { label: `${name}: weights. Arrow keys move between cells.`, height: 520 });
    this.body = element(
      "section", { class: "heed-side", "aria-label": name },
      element("div", { class: "heed-tools" }, this.whose.field, this.what.field),
      this.notice, this.text, this.figure, this.view.body,
      exportButtons(() => this.picture, () => `${name}-${this.whose.input.value}`, page.announce),
    );
  }

  /**
   * The subject of this side: a trace, or the typed text with its model.
   * @returns {Promise<Subject>}
   */
  async subject() {
    const value = this.whose.input.value;
    return value.startsWith("trace:") ? { trace: value.slice(6) } : throughModel(this.page, value.slice(6));
  }

  async show() {
    const mine = ++this.asked;
    try {
      const subject = await this.subject();
      const trace = await this.page.session.load(subject);
      if (mine !== this.asked) return;
      this.fillLooks(trace);
      const picture = await this.pictureOf(trace);
      // The user may have chosen another one in the meantime.
      if (mine !== this.asked) return;
      this.picture = picture;
      // The output; for a continuation or a second text, that text.
      const unit = ("model" in subject ? this.page.panelOf(subject.model)?.unit : undefined) ?? "tokens";
      const given = "target" in subject && unit;
      this.text.textContent = (given && subject.target) || trace.text.target || trace.text.source;
      const total = trace.summary.log_probabilities.reduce((sum, one) => sum + one, 0);
      const { decided, title } = trace.summary;
      const count = unit && `, ${decided.length} ${unit}`;
      this.figure.textContent = decided.length ? `log-probability ${signed(total, 2)}${count}` : title;
      this.notice.textContent = "";
      this.view.body.hidden = false;
      this.view.show(this.picture);
    } catch (error) {
      if (mine !== this.asked) return;
      this.picture = null;
      this.view.body.hidden = true;
      this.text.textContent = this.figure.textContent = "";
      this.notice.textContent = messageOf(error);
    }
  }

  /** @param {LoadedTrace} trace */
  fillLooks(trace) {
    const options = trace.alignment ? [{ value: "alignment", text: "Alignment" }] : [];
    for (const group of groupsOf(trace.summary.maps)) {
      group.maps.forEach((map) => {
        for (let head = 0; head < trace.summary.maps[map].heads; head++) {
          const text = `${group.title} · ${headName(trace, group, { map, head })}`;
          options.push({ value: `${map} ${head}`, text });
        }
      });
    }
    const { input } = this.what;
    if (input.options.length === options.length && [...input.options].every((one, i) => one.text === options[i].text)) return;
    input.replaceChildren(...options.map((one) => element("option", { value: one.value }, one.text)));
    if (!options.some((one) => one.value === this.look)) this.look = options[0]?.value ?? "";
    input.value = this.look;
  }

  /** @param {LoadedTrace} trace @returns {Promise<Picture>} */
  async pictureOf(trace) {
    if (!this.look) throw new Error(NONE);
    if (this.look === "alignment") return alignmentPicture(trace, { hard: false, words: false });
    const [map, head] = this.look.split(" ").map(Number);
    const facts = trace.summary.maps[map];
    return {
      title: `${facts.name} head ${head + 1}`,
      layers: [{ name: `${facts.name} head ${head + 1}`, matrix: await trace.head(map, head), colour: null }],
      rows: trace.rowLabels(map), columns: trace.columnLabels(map),
      ...titles(facts), bars: [],
    };
  }
}

/**
 * @param {Page} page
 * @param {Models} models
 * @returns {Panel}
 */
export function comparePanel(page, models) {
  const options = [
    ...[...models.models, ...(models.readers ?? [])].map(({ name }) => ({ value: `model:${name}`, text: name })),
    ...models.traces.map((name) => ({ value: `trace:${name}`, text: name })),
  ];
  const sentence = element("p", { class: "heed-sentence heed-shared", dir: "auto" });
  const sides = ["Left", "Right"].map((name) => new Side(page, name, options));
  const body = element(
    "div", { class: "heed-panel" }, sentence, element("div", { class: "heed-sides" }, ...sides.map((side) => side.body)),
  );
  function show() {
    const { typed } = page.session;
    sentence.textContent = typed && "source" in typed ? typed.source : "";
    // Sides without a choice of the user follow the last typed text.
    const first = fitting(page, models, options);
    sides.forEach((side, i) => {
      if (!side.meant) side.whose.input.value = first[i];
      side.show();
    });
  }
  return { name: "compare", title: "Compare", body, show };
}
