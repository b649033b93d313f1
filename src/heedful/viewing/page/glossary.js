// Terms of the field with a popover: one sentence each, and where the term is from.

import { element } from "./elements.js";

// Only a user who follows a link opens it; the page itself requests nothing.
const ARXIV = ["https:", "", "arxiv.org", "abs", ""].join("/");

/** @type {Record<string, {text: string, paper: string, arxiv: string}>} */
const ENTRIES = {
  "head": {
    text: "One of several attention computations that run side by side in a layer; each has its own weights.",
    paper: "Vaswani et al. 2017", arxiv: "1706.03762",
  },
  "cross-attention": {
    text: "Attention from one sequence to another: each output position reads the positions of the source.",
    paper: "Bahdanau et al. 2015", arxiv: "1409.0473",
  },
  "entropy": {
    text: "How many positions the weights are spread over: 0 bits is one position, 1 bit two, 2 bits four.",
    paper: "Ghader and Monz 2017", arxiv: "1710.03348",
  },
  "rollout": {
    text: "The product of the layers’ mean weights, with residual connections: how much of each input reaches a position.",
    paper: "Abnar and Zuidema 2020", arxiv: "2005.00928",
  },
  "attention × gradient": {
    text: "Weights multiplied by the gradient of the output, so that only weights that change the output count.",
    paper: "Chefer et al. 2021", arxiv: "2103.15679",
  },
};

let count = 0;

/**
 * A term with its popover.
 * @param {string} name an entry of the glossary
 * @param {string} [shown] the text of the button
 */
export function term(name, shown = name) {
  const { text, paper, arxiv } = ENTRIES[name];
  const id = `heed-term-${(count += 1)}`;
  const note = element(
    "span", { id, popover: "auto", class: "heed-popover" }, element("strong", {}, name[0].toUpperCase() + name.slice(1)),
    `: ${text} `, element("a", { href: ARXIV + arxiv, target: "_blank", rel: "noreferrer" }, paper),
  );
  const button = element("button", { type: "button", class: "heed-term", popovertarget: id, "aria-label": `${shown}: what it means` }, shown);
  note.addEventListener("toggle", () => {
    const box = button.getBoundingClientRect();
    note.style.top = `${Math.min(box.bottom + 6, window.innerHeight - note.offsetHeight - 8)}px`;
    note.style.left = `${Math.max(8, Math.min(box.left, window.innerWidth - note.offsetWidth - 8))}px`;
  });
  return element("span", {}, button, note);
}

/**
 * A line of terms.
 * @param {string[]} names
 */
export function glossaryLine(names) {
  return element("p", { class: "heed-hint heed-glossary" }, "What is: ", ...names.flatMap((name, i) => (i ? [" · ", term(name)] : [term(name)])));
}

/** @type {Record<string, string>} */
const NAMES = { Gpt: "GPT", Bert: "BERT", Lstm: "LSTM", Gru: "GRU", Ntm: "NTM" };

/**
 * The name of an architecture in words: "RecurrentTextEncoder" is "recurrent text encoder".
 * @param {string} name the name of a class
 */
export function architectureName(name) {
  const words = name.match(/[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+/g) ?? [name];
  const text = words.map((word) => NAMES[word] ?? (word.length > 1 && word === word.toUpperCase() ? word : word.toLowerCase())).join(" ");
  return text === "" ? name : text[0].toUpperCase() + text.slice(1);
}
