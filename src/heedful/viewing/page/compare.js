// Two runs, or two traces, on the same sentence side by side.

import { alignmentPicture } from "./alignment.js";
import { choice, element, messageOf } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { signed } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { groupsOf, headName, titles } from "./overview.js";
import { BEST } from "./translate.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {import("./session.js").Subject} Subject */

/** One of the two. */
class Side {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {{value: string, text: string}[]} options
   * @param {string} first
   * @param {() => void} changed
   */
  constructor(page, name, options, first, changed) {
    this.page = page;
    this.name = name;
    this.look = "alignment";
    this.asked = 0;
    /** @type {Picture | null} */
    this.picture = null;
    this.whose = choice(name, options, first, changed);
    this.what = choice("Shows", [{ value: "alignment", text: "Alignment" }], "alignment", (value) => {
      this.look = value;
      changed();
    });
    this.text = element("p", { class: "heed-sentence", dir: "auto" });
    this.figure = element("p", { class: "heed-where" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.view = new MatrixView(page, { label: `${name}: weights. Arrow keys move from field to field.`, height: 520 });
    this.body = element(
      "section", { class: "heed-side", "aria-label": name },
      element("div", { class: "heed-tools" }, this.whose.field, this.what.field),
      this.notice, this.text, this.figure, this.view.body,
      exportButtons(() => this.picture, () => `${name}-${this.whose.input.value}`, page.announce),
    );
  }

  /**
   * What this side looks at: a trace, or the sentence through its model as the Translate panel has it.
   * @returns {Promise<Subject>}
   */
  async subject() {
    const value = this.whose.input.value;
    if (value.startsWith("trace:")) return { trace: value.slice(6) };
    const now = this.page.session.typed;
    if (!now || !("source" in now)) throw new Error("type a sentence in the Translate panel first");
    const model = value.slice(6);
    if (now.model === model && now.target !== undefined) return { model, source: now.source, target: now.target };
    const { translations } = await this.page.provider.translate({ model, text: now.source, nbest: BEST, alignments: false });
    return { model, source: now.source, target: translations[0].text };
  }

  async show() {
    const mine = ++this.asked;
    try {
      const subject = await this.subject();
      const trace = await this.page.session.load(subject);
      if (mine !== this.asked) return;
      this.fillLooks(trace);
      const picture = await this.pictureOf(trace);
      // Meanwhile another one may have been chosen.
      if (mine !== this.asked) return;
      this.picture = picture;
      this.text.textContent = ("target" in subject && subject.target) || trace.text.target || trace.text.source;
      const total = trace.summary.log_probabilities.reduce((sum, one) => sum + one, 0);
      this.figure.textContent = trace.summary.decided.length
        ? `log-probability ${signed(total, 2)}, ${trace.summary.decided.length} tokens` : trace.summary.title;
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
    ...models.models.map(({ name }) => ({ value: `model:${name}`, text: name })),
    ...models.traces.map((name) => ({ value: `trace:${name}`, text: name })),
  ];
  const sentence = element("p", { class: "heed-sentence heed-shared", dir: "auto" });
  const sides = ["Left", "Right"].map((name, i) => {
    const first = options[Math.min(i, options.length - 1)]?.value ?? "";
    /** @type {Side} */
    const side = new Side(page, name, options, first, () => side.show());
    return side;
  });
  const body = element(
    "div", { class: "heed-panel" }, sentence, element("div", { class: "heed-sides" }, ...sides.map((side) => side.body)),
  );
  function show() {
    const { typed } = page.session;
    sentence.textContent = typed && "source" in typed ? typed.source : "";
    for (const side of sides) side.show();
  }
  return { name: "compare", title: "Compare", body, show };
}
