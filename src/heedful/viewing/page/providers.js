// Data sources of the page: the API of a server, or data embedded in the page.

/** @typedef {import("./types.js").Provider} Provider */
/** @typedef {import("./types.js").Summary} Summary */

/** A refusal, with the server's own words and its status. */
export class Refusal extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<Response>}
 */
async function checked(answer) {
  if (answer.ok) return answer;
  let message = `the server answered ${answer.status}`;
  try {
    const told = await answer.json();
    if (typeof told.error === "string") message = told.error;
  } catch {
    // A response without JSON has no further information.
  }
  throw new Refusal(message, answer.status);
}

/**
 * Streams generated pieces: lines of JSON; the last line has the whole result.
 * @param {Response} answer
 * @param {(piece: string) => void} onPiece
 * @returns {Promise<import("./types.js").Written>}
 */
async function streamed(answer, onPiece) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const told = JSON.parse(line);
      if (told.error !== undefined) throw new Error(told.error);
      if (told.done) return told;
      onPiece(told.text);
    }
    if (done) throw new Error("the server closed the connection; is it still running?");
  }
}

/**
 * The server of the page.
 * @param {string} base the URL of its API, ending in "/"
 * @returns {Provider}
 */
export function serverProvider(base) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  /** @param {string} path @param {RequestInit} how */
  const ask = async (path, how) => {
    let answer;
    try {
      answer = await fetch(base + path, how);
    } catch (error) {
      if (error instanceof TypeError) throw new Error("cannot reach the server; is it still running?");
      throw error;
    }
    return checked(answer);
  };
  /** @param {string} path @param {object} body @param {AbortSignal} [signal] */
  const post = (path, body, signal) =>
    ask(path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal,
    });
  return {
    live: true,
    useKey: (key) => (headers.Authorization = `Bearer ${key}`),
    models: async (signal) => (await ask("models", { headers, signal })).json(),
    translate: async (body, signal) => (await post("translate", body, signal)).json(),
    alternatives: async (body, signal) => (await post("alternatives", body, signal)).json(),
    classify: async (body, signal) => (await post("classify", body, signal)).json(),
    tag: async (body, signal) => (await post("tag", body, signal)).json(),
    fill: async (body, signal) => (await post("fill", body, signal)).json(),
    predict: async (model, body, signal) =>
      (await post(`predict/${model.split("/").map(encodeURIComponent).join("/")}`, body, signal)).json(),
    write: async (body, onPiece, signal) => streamed(await post("generate/stream", body, signal), onPiece),
    trace: async (body, signal) => (await post("trace", body, signal)).json(),
    attention: async (body, signal) =>
      new Uint8Array(await (await post("attention", body, signal)).arrayBuffer()),
    faithfulness: async (body, signal) => (await post("faithfulness", body, signal)).json(),
  };
}

/**
 * @param {string} text base64
 * @returns {Uint8Array}
 */
export function fromBase64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

/**
 * @param {Uint8Array} bytes compressed by zlib
 * @returns {Promise<Uint8Array>}
 */
async function inflated(bytes) {
  const Stream = /** @type {any} */ (globalThis).DecompressionStream;
  if (!Stream) throw new Error("this browser cannot decompress the data; use a browser from 2023 or later");
  const stream = new Blob([bytes]).stream().pipeThrough(new Stream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Traces embedded in the page.
 * @param {{traces: {name: string, summary: Summary, maps: string[]}[]}} data
 * @returns {Provider}
 */
export function embeddedProvider(data) {
  const byName = new Map(data.traces.map((one) => [one.name, one]));
  /** @param {object} body */
  const find = (body) => {
    const one = byName.get(/** @type {any} */ (body).trace);
    if (!one) throw new Error("the page does not contain this trace");
    return one;
  };
  const refuse = async () => {
    throw new Error("this page has no model; open it with heedful view RUN");
  };
  return {
    live: false,
    useKey: () => undefined,
    models: async () => ({ models: [], traces: [...byName.keys()] }),
    translate: refuse,
    alternatives: refuse,
    classify: refuse,
    tag: refuse,
    fill: refuse,
    predict: refuse,
    write: refuse,
    faithfulness: refuse,
    trace: async (body) => find(body).summary,
    attention: async (body) => inflated(fromBase64(find(body).maps[/** @type {any} */ (body).map])),
  };
}
