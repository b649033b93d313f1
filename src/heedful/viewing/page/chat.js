// The Chat panel: a conversation, and for each word of an answer the earlier words that it attended to.

import { ConversationLog } from "./chat_log.js";
import { selectField, element, inputField, isAbortError, messageOf } from "./elements.js";
import { ModelChooser } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").SaidTurn} SaidTurn */

/** @type {[string, string, Record<string, string | number>][]} */
const NUMBERS = [
  ["temperature", "Temperature", { min: 0.01, max: 100, step: "any", value: 1 }],
  ["top_p", "Top p", { min: 0.01, max: 1, step: "any", placeholder: "1" }],
  ["seed", "Seed", { min: 0, step: 1, placeholder: "any" }],
];
/** Browsers limit the size of what is saved with a history entry. */
const MOST_SAVED = 100_000;

class Chat {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    this.chooser = new ModelChooser(page, "chat", readers, () => this.reset());
    /** @type {AbortController | null} */
    this.request = null;
    /** @type {SaidTurn[]} */
    this.turns = [];
    const saved = page.savedInputs.get("chat") ?? {};
    this.log = new ConversationLog(page, (turn) => this.setSubject(turn));
    this.decoding = selectField("Answers", [{ value: "search", text: "Most probable" }, { value: "sample", text: "Sample" }], saved.how ?? "search", () => {
      this.updateFields();
      this.save();
    });
    /** @type {Record<string, {field: HTMLLabelElement, input: HTMLInputElement}>} */
    this.numbers = Object.fromEntries(NUMBERS.map(([name, label, attributes]) => {
      const own = inputField(label, { type: "number", inputmode: "decimal", ...attributes, ...(saved[name] ? { value: saved[name] } : {}) }, () => this.save());
      return [name, own];
    }));
    this.input = element("textarea", {
      dir: "auto", rows: 2, "aria-label": "Your turn", placeholder: "Type your turn…", oninput: () => this.save(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        this.send();
      },
    });
    this.input.value = saved.text ?? "";
    this.sendButton = element("button", { type: "button", class: "heed-button heed-submit", onclick: () => (this.request ? this.request.abort() : this.send()) }, "Send");
    this.undoButton = element("button", { type: "button", class: "heed-button", onclick: () => this.undo() }, "Undo");
    this.resetButton = element("button", { type: "button", class: "heed-button", onclick: () => this.reset() }, "New conversation");
    this.examples = element("div", { class: "heed-tools heed-chat-examples" });
    this.body = this.build();
    this.updateFields();
    this.restore(saved.turns);
  }

  build() {
    return element(
      "div", { class: "heed-panel heed-chat" }, this.chooser.tools, this.log.body,
      element(
        "section", { class: "heed-input", "aria-label": "Your turn" }, this.examples, this.input,
        element("div", { class: "heed-tools heed-actions" }, this.sendButton, this.undoButton, this.resetButton, element("span", { class: "heed-hint" }, "Enter sends")),
        element("div", { class: "heed-settings" }, this.decoding.field, ...NUMBERS.map(([name]) => this.numbers[name].field)),
      ),
      this.chooser.notice,
    );
  }

  get partner() {
    return this.chooser.modelFacts.partner ?? "user";
  }

  get speaker() {
    return this.chooser.modelFacts.speaker ?? "bot";
  }

  /** Show the settings of the decoding method. */
  updateFields() {
    const samples = this.decoding.input.value === "sample";
    for (const [name] of NUMBERS) this.numbers[name].field.hidden = !samples;
  }

  /** @param {boolean} [now] whether turns have changed */
  save(now = false) {
    this.page.savedInputs.set("chat", {
      model: this.chooser.model, text: this.input.value, how: this.decoding.input.value, turns: savedTurns(this.turns), ...Object.fromEntries(NUMBERS.map(([name]) => [name, this.numbers[name].input.value])),
    }, now);
  }

  /** @param {string | undefined} saved */
  restore(saved) {
    try {
      const turns = JSON.parse(saved ?? "[]");
      if (Array.isArray(turns)) this.turns = turns;
    } catch {
      // A history entry of another version: the conversation begins anew.
    }
    this.show();
  }

  /** Show the turns, and set the last answer as the subject of the other panels. */
  show() {
    this.log.show(this.turns, this.chooser.modelFacts.max_tokens);
    const idle = !this.request;
    this.undoButton.disabled = this.resetButton.disabled = !this.turns.length || !idle;
    const examples = this.turns.length ? [] : this.chooser.modelFacts.examples ?? [];
    this.examples.replaceChildren(...examples.map((text) => element("button", {
      type: "button", class: "heed-button", onclick: () => {
        this.input.value = text;
        this.send();
      },
    }, text)));
    const last = this.turns[this.turns.length - 1];
    this.setSubject(last?.read === undefined ? null : last);
  }

  /** @param {SaidTurn | null} turn an answer */
  setSubject(turn) {
    if (turn?.read === undefined || !turn.text.trim()) this.chooser.setSubject(null, "say something first");
    else this.chooser.setSubject({ model: this.chooser.model, source: turn.read, target: turn.text });
  }

  reset() {
    this.request?.abort();
    this.turns = [];
    this.chooser.notice.textContent = "";
    this.save(true);
    this.show();
    this.input.focus();
  }

  /** Take back the last answer and the turn before it. */
  undo() {
    const answered = this.turns[this.turns.length - 1]?.dropped !== undefined;
    const own = this.turns[this.turns.length - (answered ? 2 : 1)];
    this.turns = this.turns.slice(0, answered ? -2 : -1);
    if (own && !this.input.value) this.input.value = own.text;
    this.save(true);
    this.show();
    this.input.focus();
  }

  /** @returns {Record<string, unknown>} */
  get settings() {
    if (this.decoding.input.value !== "sample") return {};
    const given = NUMBERS.map(([name]) => name).filter((name) => this.numbers[name].input.value !== "")
      .map((name) => [name, this.numbers[name].input.valueAsNumber]);
    return { sample: true, seed: Math.floor(Math.random() * 1e6), ...Object.fromEntries(given) };
  }

  async send() {
    const text = this.input.value.trim();
    if (!text || this.request) return;
    const wrong = NUMBERS.find(([name]) => !this.numbers[name].field.hidden && !this.numbers[name].input.checkValidity());
    this.chooser.notice.textContent = "";
    if (wrong) {
      this.chooser.showError(`${wrong[1]}: ${this.numbers[wrong[0]].input.validationMessage}`);
      this.numbers[wrong[0]].input.focus();
      return;
    }
    this.input.value = "";
    this.turns.push({ speaker: this.partner, text });
    await this.answer(text);
  }

  /** @param {string} text what was said last */
  async answer(text) {
    const request = new AbortController();
    this.setRequest(request);
    this.show();
    const bubble = this.log.begin(this.speaker);
    const body = { model: this.chooser.model, turns: this.turns.map(({ speaker, text: said }) => ({ speaker, text: said })), ...this.settings };
    try {
      const found = await this.page.provider.chat(body, (piece) => bubble.append(piece), request.signal);
      this.turns.push({ speaker: this.speaker, text: found.text, read: found.read, dropped: found.dropped_turns });
      this.page.announce(`${this.speaker}: ${found.text}`);
    } catch (error) {
      if (request !== this.request) return;
      this.turns.pop();
      this.input.value = [text, this.input.value].filter(Boolean).join("\n");
      if (!isAbortError(error)) this.chooser.showError(messageOf(error));
    } finally {
      if (request === this.request) {
        this.setRequest(null);
        this.save(true);
        this.show();
      }
    }
  }

  /** @param {AbortController | null} request */
  setRequest(request) {
    this.request = request;
    this.sendButton.textContent = request ? "Stop" : "Send";
    this.log.body.setAttribute("aria-busy", String(Boolean(request)));
  }
}

/**
 * Turns as JSON of limited length: if they are too long, the oldest answers lose what was read for them, so that their words cannot be selected
 * after a reload; if the texts alone are too long, the oldest turns are left out.
 * @param {SaidTurn[]} turns
 */
export function savedTurns(turns) {
  const bare = turns.map((turn) => JSON.stringify({ ...turn, read: undefined }));
  let room = MOST_SAVED - bare.reduce((sum, one) => sum + one.length + 1, 2);
  let first = 0;
  while (room < 0) room += bare[first++].length + 1;
  // Places in what was read are counted from the first turn.
  if (first) return `[${bare.slice(first + (first % 2)).join(",")}]`;
  const kept = [...bare];
  for (let i = turns.length - 1; i >= 0; i -= 1) {
    const whole = JSON.stringify(turns[i]);
    room -= whole.length - bare[i].length;
    if (room < 0) break;
    kept[i] = whole;
  }
  return `[${kept.join(",")}]`;
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const chat = new Chat(page, readers);
  if (start.text && !page.savedInputs.get("chat")?.turns) chat.input.value = start.text;
  const show = () => {
    chat.chooser.restoreSubject();
    chat.log.showEnd();
  };
  return {
    name: "chat", title: "Chat", body: chat.body, show, hasInput: true, writes: true,
    // Each model writes its own answer.
    subjectFor: async (model, { source }) => ({ model, source }),
  };
}
