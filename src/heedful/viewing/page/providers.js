// Data sources of the page: the /api of a server, or data embedded in the page.

/** @typedef {import("./types.js").Provider} Provider */
/** @typedef {import("./types.js").Summary} Summary */

/** An error response: the server's message and its status. */
export class RequestError extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The server cannot be reached now. */
export class UnreachableError extends Error {}

/**
 * @param {Response} response
 * @returns {Promise<Response>}
 */
async function requireOk(response) {
  if (response.ok) return response;
  let message = `the server returned status ${response.status}`;
  try {
    const body = await response.json();
    if (typeof body.error === "string") message = body.error;
  } catch {
    // A response without JSON has no further information.
  }
  throw new RequestError(message, response.status);
}

/**
 * Read a stream of JSON lines: pieces of generated text, and a last line with the whole result.
 * @param {Response} response
 * @param {(piece: string) => void} onPiece
 * @returns {Promise<any>}
 */
async function readStream(response, onPiece) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const part = JSON.parse(line);
      if (part.error !== undefined) throw new Error(part.error);
      if (part.done) return part;
      onPiece(part.text);
    }
    if (done) throw new Error("the server ended the response early; is it still running?");
  }
}

/**
 * The provider for the server of the page.
 * @param {string} base the URL of its /api, ending in "/"
 * @returns {Provider}
 */
export function serverProvider(base) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  /** @param {string} path @param {RequestInit} how */
  const send = async (path, how) => {
    let response;
    try {
      response = await fetch(base + path, how);
    } catch (error) {
      if (error instanceof TypeError) throw new UnreachableError("the server cannot be reached; is it still running?");
      throw error;
    }
    return requireOk(response);
  };
  /** @param {string} path @param {object} body @param {AbortSignal} [signal] */
  const post = (path, body, signal) =>
    send(path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal,
    });
  return {
    live: true,
    useKey: (key) => (headers.Authorization = `Bearer ${key}`),
    models: async (signal) => (await send("models", { headers, signal })).json(),
    translate: async (body, signal) => (await post("translate", body, signal)).json(),
    translateFile: async (file, fields, signal) => {
      const form = new FormData();
      for (const [name, value] of Object.entries(fields)) form.append(name, value);
      form.append("file", file, file.name);
      // The browser sets the content type, with the boundary of the form.
      const { "Content-Type": _, ...own } = headers;
      const { translatedFileUrl: address } = await (await send("../translate_file", { method: "POST", headers: own, body: form, signal })).json();
      // Behind a proxy, the server may not know its own address: only the name counts.
      const name = String(address).split("/").pop();
      return { blob: await (await send(`../download_file/${name}`, { headers: own, signal })).blob() };
    },
    alternatives: async (body, signal) => (await post("alternatives", body, signal)).json(),
    classify: async (body, signal) => (await post("classify", body, signal)).json(),
    tag: async (body, signal) => (await post("tag", body, signal)).json(),
    fill: async (body, signal) => (await post("fill", body, signal)).json(),
    predict: async (model, body, signal) =>
      (await post(`predict/${model.split("/").map(encodeURIComponent).join("/")}`, body, signal)).json(),
    generate: async (body, onPiece, signal) => readStream(await post("generate/stream", body, signal), onPiece),
    chat: async (body, onPiece, signal) => readStream(await post("chat/stream", body, signal), onPiece),
    subtitles: async (body, signal) => (await post("subtitles", body, signal)).json(),
    trace: async (body, signal) => (await post("trace", body, signal)).json(),
    attention: async (body, signal) =>
      new Uint8Array(await (await post("attention", body, signal)).arrayBuffer()),
    faithfulness: async (body, signal) => (await post("faithfulness", body, signal)).json(),
    architecture: async (body, signal) => (await post("architecture", body, signal)).json(),
    equation: async (body, signal) => (await post("equation", body, signal)).json(),
    removal: async (body, signal) => (await post("removal", body, signal)).json(),
    lens: async (body, signal) => (await post("lens", body, signal)).json(),
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
 * @param {Uint8Array} bytes data compressed by zlib
 * @returns {Promise<Uint8Array>}
 */
async function inflate(bytes) {
  const Stream = /** @type {any} */ (globalThis).DecompressionStream;
  if (!Stream) throw new Error("this browser cannot decompress the data; use a browser from 2023 or later");
  const stream = new Blob([bytes]).stream().pipeThrough(new Stream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The provider for embedded traces.
 * @param {{traces: {name: string, summary: Summary, maps: string[]}[]}} data
 * @returns {Provider}
 */
export function embeddedProvider(data) {
  const byName = new Map(data.traces.map((one) => [one.name, one]));
  /** @param {object} body */
  const find = (body) => {
    const one = byName.get(/** @type {any} */ (body).trace);
    if (!one) throw new Error("this page does not contain the trace");
    return one;
  };
  const unavailable = async () => {
    throw new Error("this page contains no model; use heedful view RUN");
  };
  return {
    live: false,
    useKey: () => undefined,
    models: async () => ({ models: [], traces: [...byName.keys()] }),
    translate: unavailable,
    translateFile: unavailable,
    alternatives: unavailable,
    classify: unavailable,
    tag: unavailable,
    fill: unavailable,
    predict: unavailable,
    subtitles: unavailable,
    generate: unavailable,
    chat: unavailable,
    faithfulness: unavailable,
    architecture: unavailable,
    equation: unavailable,
    lens: unavailable,
    removal: unavailable,
    trace: async (body) => find(body).summary,
    attention: async (body) => inflate(fromBase64(find(body).maps[/** @type {any} */ (body).map])),
  };
}
