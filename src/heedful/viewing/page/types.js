// The shapes of what the modules exchange; nothing here runs.

/**
 * One attention module's facts, as viewing/trace_encoding.py writes them.
 * @typedef {object} MapFacts
 * @property {string} name
 * @property {string} kind "weights", "rollout" or "gradient"
 * @property {string} query_axis
 * @property {string} key_axis
 * @property {string | null} step_axis of the steps at each of which all queries read; null if they read once
 * @property {number} heads
 * @property {number} steps 1 without a step axis
 * @property {number} queries
 * @property {number} keys
 * @property {boolean} written whether rows are the tokens written, not those fed in
 * @property {number[]} scale each head's largest weight
 * @property {boolean} negative
 * @property {string} thumbnails base64 of uint8 [heads, h, w]
 * @property {[number, number]} thumbnail_size
 * @property {number[]} entropy bits, mean over rows, a head
 */

/**
 * How an axis is drawn, as viewing/trace_encoding.py writes it.
 * @typedef {object} AxisFacts
 * @property {string} kind "tokens", "labels", "slots", "image", "time", or one that no module here draws
 * @property {number[]} extent rows and columns of an image; frames and seconds of time
 * @property {boolean} steps whether its places come one after the other
 * @property {{type: string, url: string, size: [number, number] | null} | null} media a data URL; rows and columns of
 * a picture
 */

/**
 * @typedef {object} Summary
 * @property {string} format
 * @property {string} title
 * @property {Record<string, string[]>} axes
 * @property {Record<string, string[]>} labels
 * @property {Record<string, AxisFacts>} kinds
 * @property {Record<string, number[]>} words
 * @property {string[]} decided
 * @property {string[]} [decided_labels]
 * @property {number[]} log_probabilities
 * @property {{map: number, heads: number[] | null, shift: number} | null} alignment
 * @property {MapFacts[]} maps
 * @property {Faithfulness | null} [faithfulness]
 */

/**
 * @typedef {object} ModelFacts
 * @property {string} name
 * @property {string | null} source
 * @property {string | null} target
 * @property {string} architecture
 * @property {number} parameters
 * @property {number} [max_tokens]
 * @property {boolean} [aligns]
 */

/**
 * One model that does not translate; a plug-in's may tell its name and task alone.
 * @typedef {object} ReaderFacts
 * @property {string} name
 * @property {string} task
 * @property {string} [architecture]
 * @property {number} [parameters]
 * @property {number} [max_tokens]
 * @property {object[]} [maps] its attention modules
 * @property {string[]} [labels]
 * @property {boolean | null} [pairs] whether it wants two texts; null takes either
 * @property {string[]} [masks] how a hidden place is written
 */

/** @typedef {{name: string, title: string, models: string[]}} PanelFacts a panel, its module's name, its models */

/**
 * The part of a JSON schema that the page uses.
 * @typedef {object} Schema
 * @property {string} [type]
 * @property {string} [title]
 * @property {string} [description]
 * @property {Record<string, Schema>} [properties]
 * @property {Schema} [items]
 * @property {Schema[]} [anyOf]
 * @property {(string | number)[]} [enum]
 * @property {number} [minItems]
 * @property {number} [maxItems]
 */

/**
 * @typedef {object} Models
 * @property {ModelFacts[]} models
 * @property {ReaderFacts[]} [readers]
 * @property {string[]} traces
 * @property {PanelFacts[]} [panels]
 * @property {Record<string, Schema>} [inputs] of `predict`, by the model's name
 */

/**
 * @typedef {object} Hypothesis
 * @property {string} text
 * @property {number} score
 * @property {number} log_probability
 */

/** @typedef {{first: number, weights: number[]}} SoftRow weights of source words, beginning with the first */

/**
 * @typedef {object} Translated
 * @property {string} source
 * @property {string} text
 * @property {number} score
 * @property {number} log_probability
 * @property {Hypothesis[]} alternatives
 * @property {[number, number][]} [alignment] pairs of source word and target word
 * @property {string[]} [source_words]
 * @property {string[]} [target_words]
 * @property {SoftRow[]} [soft] one a target word
 * @property {number} [parts]
 */

/** @typedef {{word: string, text: string, log_probability: number, probability: number}} Choice */

/**
 * @typedef {object} Classified
 * @property {string | null} label null for an empty text
 * @property {number} probability
 * @property {Record<string, number>} probabilities
 * @property {number} windows
 */

/** @typedef {{word: string, fall: number, log_odds: number, share: number | null}} Reason */

/** @typedef {Classified & {words: Reason[], first_words: number}} Explained */

/**
 * @typedef {object} TaggedWords
 * @property {string[]} words
 * @property {string[]} tags
 * @property {number[]} probabilities
 * @property {number} windows
 */

/** @typedef {{token: string, word: string, probability: number, text: string}} Candidate */

/** @typedef {{source: string, text: string, masks: Candidate[][]}} Filled */

/**
 * @typedef {object} Written
 * @property {string} text
 * @property {string[]} tokens
 * @property {number} log_probability
 * @property {string} ended "end", "stop" or "limit"
 */

/**
 * @typedef {object} Faithfulness
 * @property {number} words
 * @property {string[]} [dropped] the most attended words
 * @property {number} attended how much the log-probability falls without them, in nats
 * @property {number} random the mean of the same over random words
 * @property {number} draws
 * @property {number} random_spread
 * @property {number} [higher] number of draws that lowered it at least as much
 */

/**
 * The data source of the page: a server, or embedded data.
 * @typedef {object} Provider
 * @property {boolean} live whether there are models
 * @property {(key: string) => void} useKey for a server that requires one
 * @property {(signal?: AbortSignal) => Promise<Models>} models
 * @property {(body: object, signal?: AbortSignal) => Promise<{translations: Translated[]}>} translate
 * @property {(body: object, signal?: AbortSignal) => Promise<{alternatives: Choice[]}>} alternatives
 * @property {(body: object, signal?: AbortSignal) => Promise<{results: (Classified | Explained)[]}>} classify
 * @property {(body: object, signal?: AbortSignal) => Promise<{results: TaggedWords[]}>} tag
 * @property {(body: object, signal?: AbortSignal) => Promise<{result: Filled}>} fill
 * @property {(body: object, onPiece: (piece: string) => void, signal?: AbortSignal) => Promise<Written>} write
 * @property {(model: string, body: object, signal?: AbortSignal) => Promise<{results: Record<string, unknown>[]}>} predict
 * @property {(body: object, signal?: AbortSignal) => Promise<Summary>} trace
 * @property {(body: object, signal?: AbortSignal) => Promise<Uint8Array>} attention
 * @property {(body: object, signal?: AbortSignal) => Promise<Faithfulness>} faithfulness
 */

/**
 * Weights, row by row.
 * @typedef {object} Matrix
 * @property {number} rows
 * @property {number} columns
 * @property {Float32Array} values
 * @property {number} peak the largest absolute weight, which has full colour
 */

/** @typedef {{name: string, matrix: Matrix, colour: string | null}} Layer */

/**
 * A view of one row of weights over an axis.
 * @typedef {object} Places
 * @property {HTMLElement} body
 * @property {(matrix: Matrix, row: number, rows: string[]) => void} show
 * @property {() => string | null} drawing the view as SVG on white; null if the matrix is saved instead
 */

/**
 * @typedef {object} PlacesHow
 * @property {(place: number) => void} [pick] called with the index of a chosen query
 */

/** @typedef {{title: string, unit: string, values: number[], most: number}} Bars */

/**
 * The data for drawing a matrix on screen or in a file.
 * @typedef {object} Picture
 * @property {string} title
 * @property {Layer[]} layers
 * @property {string[]} rows labels
 * @property {string[]} columns labels
 * @property {string} rowTitle
 * @property {string} columnTitle
 * @property {Bars[]} bars
 * @property {boolean} [byRow] whether the largest weight of each row has full colour, not that of the matrix
 */

/**
 * The shared state of all panels.
 * @typedef {object} Page
 * @property {HTMLElement} root
 * @property {Provider} provider
 * @property {import("./session.js").Session} session
 * @property {import("./kept.js").Kept} kept typed texts
 * @property {(text: string) => void} announce announces a text to screen readers
 * @property {(listener: () => void) => void} onTheme
 * @property {(panel: string) => void} open
 * @property {Record<string, Schema>} inputs of `predict`, by the model's name
 * @property {(model: string) => Panel | undefined} panelOf the panel of a model
 */

/**
 * @typedef {object} Panel
 * @property {string} name
 * @property {string} title
 * @property {HTMLElement} body
 * @property {() => void} show called when the panel is opened or its subject has changed
 * @property {boolean} [types] whether it is an input panel: it sets the subject and does not follow it
 * @property {(model: string, typed: {source: string}) => Promise<import("./session.js").Subject>} [through]
 *   typed texts, through another model of the panel
 * @property {string} [unit] the unit of its outputs in the plural; default: tokens; empty for one output per text
 */

/** @typedef {{panel?: string, text?: string, second?: string}} Start parameters of the page's URL */

export {};
