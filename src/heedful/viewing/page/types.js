// Type definitions; this module contains no code.

/**
 * The facts about one attention module, from viewing/trace_encoding.py.
 * @typedef {object} MapFacts
 * @property {string} name
 * @property {string} kind "weights", "rollout", "gradient", "posterior" or "copying"
 * @property {string} query_axis
 * @property {string} key_axis
 * @property {string | null} step_axis the axis of steps, if each query attends once per step
 * @property {number} heads
 * @property {number} steps 1 without a step axis
 * @property {number} queries
 * @property {number} keys
 * @property {boolean} written whether rows are output tokens, not input tokens
 * @property {number[]} scale the largest weight of each head
 * @property {boolean} negative
 * @property {string} thumbnails base64 of uint8 [heads, h, w]
 * @property {[number, number]} thumbnail_size
 * @property {number[]} entropy mean over rows in bits, for each head
 * @property {{name: string, share: number}[]} [patterns] what each head attends to; empty if it was not computed
 */

/**
 * The kind of an axis, from viewing/trace_encoding.py.
 * @typedef {object} AxisFacts
 * @property {string} kind "tokens", "labels", "slots", "image", "frames", "time", or a kind without a view of its own
 * @property {number[]} extent rows and columns of an image; frames and seconds of time
 * @property {boolean} steps whether its positions follow one another in time
 * @property {{type: string, url: string, size: [number, number] | null} | null} media a data URL; the size of
 * a picture in rows and columns
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
 * @property {string} [part] which part of the input it has, in a sentence
 */
/**
 * @typedef {object} ModelFacts
 * @property {string} name
 * @property {string | null} source
 * @property {string | null} target
 * @property {string} architecture
 * @property {number} parameters
 * @property {number} [max_tokens]
 * @property {{name: string, key_kind?: string, removable?: boolean}[]} [maps] its attention modules
 * @property {boolean} [aligns]
 * @property {string[]} [examples] sources to try
 */

/**
 * A model that does not translate; models of plug-ins may give only their name and task.
 * @typedef {object} ReaderFacts
 * @property {string} name
 * @property {string} task
 * @property {string} [architecture]
 * @property {number} [parameters]
 * @property {number} [max_tokens]
 * @property {{name: string, key_kind?: string, removable?: boolean}[]} [maps] its attention modules
 * @property {string[]} [labels]
 * @property {string[]} [subtitles] the formats of subtitles that it offers
 * @property {Record<string, number>} [thresholds] of a model that gives any number of labels: the threshold of each
 * @property {boolean | null} [pairs] whether it requires two texts; null if it accepts one or two
 * @property {string[]} [masks] spellings of the mask
 * @property {string} [speaker] whose turns a model of dialogues writes
 * @property {string} [partner] whom it answers
 * @property {string[]} [examples] texts to try
 */

/** @typedef {{name: string, title: string, models: string[]}} PanelFacts a panel: the name of its module, its title, its models */

/**
 * The parts of a JSON schema that the page uses.
 * @typedef {object} Schema
 * @property {string} [type]
 * @property {string} [title]
 * @property {string} [description]
 * @property {Record<string, Schema>} [properties]
 * @property {Schema} [items]
 * @property {Schema[]} [anyOf]
 * @property {(string | number)[]} [enum]
 * @property {string} [contentMediaType] the type of the data URI that a text is
 * @property {number} [maxLength]
 * @property {number} [minItems]
 * @property {number} [maxItems]
 */

/**
 * @typedef {object} Models
 * @property {ModelFacts[]} models
 * @property {ReaderFacts[]} [readers]
 * @property {string[]} traces
 * @property {PanelFacts[]} [panels]
 * @property {Record<string, Schema>} [inputs] schemas of the inputs of `predict`, by name of the model
 * @property {number} [max_body] the largest body of a request in bytes; undefined without a server
 */

/**
 * A finding of a check.
 * @typedef {object} Finding
 * @property {string} check
 * @property {string} message
 * @property {string} detail
 * @property {boolean} serious
 * @property {[number, number][]} source parts of the source, in characters
 * @property {[number, number][]} target parts of the translation
 */

/**
 * @typedef {object} Hypothesis
 * @property {string} text
 * @property {number} [score] undefined for translations of the memory
 * @property {number} [log_probability]
 * @property {string[]} [tokens]
 * @property {number[]} [token_scores] natural logarithms of their probabilities
 * @property {Finding[]} [findings]
 */

/** @typedef {{text: string, kind: string, others: string[], findings?: Finding[]}} MemoryMatch an exact match in the translation memory */

/** @typedef {{first: number, weights: number[]}} SoftRow weights of consecutive source words, beginning with the word `first` */

/**
 * @typedef {object} Translated
 * @property {string} source
 * @property {string} text
 * @property {number} score
 * @property {number} log_probability
 * @property {Finding[]} [findings]
 * @property {MemoryMatch | null} [match]
 * @property {Hypothesis[]} alternatives
 * @property {[number, number][]} [alignment] pairs of source and target word
 * @property {string[]} [source_words]
 * @property {string[]} [target_words]
 * @property {SoftRow[]} [soft] one row per target word
 * @property {number} [parts]
 * @property {boolean} [at_limit] whether the token limit ended it
 * @property {string[]} [tokens]
 * @property {number[]} [token_scores]
 * @property {Translated[]} [rows] the translations of its sentences
 * @property {string} [gap] the white space before a row
 * @property {string} [after] the white space after the last row
 * @property {number} [unknown] the share of source tokens that are single bytes
 */

/** @typedef {{word: string, text: string, log_probability: number, probability: number}} Alternative */

/**
 * @typedef {object} Classified
 * @property {string | null} [label] null for an empty text; left out if a text can have any number of labels
 * @property {string[]} [labels] the labels, if there can be any number
 * @property {Record<string, number>} probabilities
 * @property {number} windows
 */

/** @typedef {{text: string, start: number, end: number, probability: number}} FoundSpan a part of a text; its place in code points */

/** @typedef {{answer: string, candidates: FoundSpan[], windows: number, window: number}} FoundAnswer */

/** @typedef {{vector: number[], windows: number}} Embedded */

/** @typedef {{word: string, fall: number, log_odds: number, share: number | null}} WordScore */

/** @typedef {Classified & {words: WordScore[], first_words: number}} Explained */

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
 * @typedef {object} Generated
 * @property {string} text
 * @property {string[]} tokens
 * @property {number} log_probability
 * @property {string} ended "end", "stop" or "limit"
 */

/**
 * An answer in a dialogue.
 * @typedef {object} Answered
 * @property {string} text
 * @property {string} read the turns that the model has read, as one line
 * @property {number} dropped_turns the number of oldest turns that it has not read
 */

/**
 * A turn of a conversation; an answer of a model has what was read for it.
 * @typedef {object} SaidTurn
 * @property {string} speaker
 * @property {string} text
 * @property {string} [read]
 * @property {number} [dropped]
 */

/**
 * @typedef {object} Faithfulness
 * @property {number} words
 * @property {string[]} [dropped] the most attended words
 * @property {number} attended decrease of the log-probability without them, in nats
 * @property {number} random mean decrease without the same number of random words
 * @property {number} draws
 * @property {number} random_spread
 * @property {number} [higher] number of draws with at least the same decrease
 */

/**
 * A module of a model, from viewing/inspection_encoding.py.
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} title
 * @property {string} kind "embedding", "attention", "layer", "recurrent", "norm", "linear" or "other"
 * @property {string} about
 * @property {number} parameters
 * @property {number[] | null} shape of its output
 * @property {string[]} maps the attention modules in it
 * @property {Stage[]} parts
 */

/**
 * The stages of a model, one lane for each sequence.
 * @typedef {object} Architecture
 * @property {number} parameters
 * @property {string[]} equations the attention modules that have an equation
 * @property {boolean} lens whether the model has a logit lens
 * @property {{axis: string, stages: Stage[]}[]} lanes
 */

/**
 * The terms of the attention equation for one query of one head.
 * @typedef {object} EquationRow
 * @property {string} module
 * @property {number} head
 * @property {number} row
 * @property {number} heads
 * @property {number} rows
 * @property {number[]} query
 * @property {number[][]} keys
 * @property {number[][]} values
 * @property {string} score "dot", "additive" or "other"
 * @property {number} scale
 * @property {number[] | null} vector v of an additive score
 * @property {number[]} added what positions, masks and earlier weights add to the scores
 * @property {number[]} scores
 * @property {boolean[]} allowed
 * @property {number | null} softmax_scale the factor on scores; null for another normaliser
 * @property {number | null} sink the score of one more key of value 0
 * @property {number[]} weights
 * @property {number[]} context
 * @property {number[]} added_context
 * @property {boolean} past whether the weights of earlier queries change the scores
 */

/** @typedef {{labels: string[], probabilities: number[], rank: number, probability: number}} LayerPrediction */

/**
 * What each layer of a model would predict in the place of each decision.
 * @typedef {object} Lens
 * @property {string[]} layers module names, the first layer first
 * @property {string[]} decided
 * @property {LayerPrediction[][]} predictions for each layer and each decision
 */

/**
 * The decisions of a model with and without some heads; numbers are log-probabilities.
 * @typedef {object} Removal
 * @property {string[]} decided
 * @property {number[]} before
 * @property {number[]} after those of the same decisions without the heads
 * @property {string[]} decided_without
 * @property {number[]} without
 */

/**
 * A data source of the page: a server, or embedded data.
 * @typedef {object} Provider
 * @property {boolean} live whether there is a server
 * @property {(key: string) => void} useKey sets the API key
 * @property {(signal?: AbortSignal) => Promise<Models>} models
 * @property {(body: object, signal?: AbortSignal) => Promise<{translations: Translated[]}>} translate
 * @property {(file: File, fields: Record<string, string>, signal?: AbortSignal) => Promise<{blob: Blob}>} translateFile
 * @property {(body: object, signal?: AbortSignal) => Promise<{alternatives: Alternative[]}>} alternatives
 * @property {(body: object, signal?: AbortSignal) => Promise<{results: (Classified | Explained)[]}>} classify
 * @property {(body: object, signal?: AbortSignal) => Promise<{results: TaggedWords[]}>} tag
 * @property {(body: object, signal?: AbortSignal) => Promise<{result: Filled}>} fill
 * @property {(body: object, onPiece: (piece: string) => void, signal?: AbortSignal) => Promise<Generated>} generate
 * @property {(body: object, onPiece: (piece: string) => void, signal?: AbortSignal) => Promise<Answered>} chat
 * @property {(model: string, body: object, signal?: AbortSignal) => Promise<{results: Record<string, unknown>[]}>} predict
 * @property {(body: object, signal?: AbortSignal) => Promise<{subtitles: string}>} subtitles
 * @property {(body: object, signal?: AbortSignal) => Promise<Summary>} trace
 * @property {(body: object, signal?: AbortSignal) => Promise<Uint8Array>} attention
 * @property {(body: object, signal?: AbortSignal) => Promise<Faithfulness>} faithfulness
 * @property {(body: object, signal?: AbortSignal) => Promise<Architecture>} architecture
 * @property {(body: object, signal?: AbortSignal) => Promise<EquationRow>} equation
 * @property {(body: object, signal?: AbortSignal) => Promise<Lens>} lens
 * @property {(body: object, signal?: AbortSignal) => Promise<Removal>} removal
 */

/**
 * A matrix of weights in row-major order.
 * @typedef {object} Matrix
 * @property {number} rows
 * @property {number} columns
 * @property {Float32Array} values
 * @property {number} peak the largest absolute weight, which has the full colour
 */

/** @typedef {{name: string, matrix: Matrix, colour: string | null}} Layer */

/**
 * A view of one row of weights over an axis.
 * @typedef {object} AxisView
 * @property {HTMLElement} body
 * @property {(matrix: Matrix, row: number, rows: string[]) => void} show
 * @property {() => string | null} drawing the view as SVG on white; null to save the matrix instead
 * @property {() => void} [playPart] plays the part of the sound that has most of the weight
 */

/**
 * @typedef {object} AxisViewOptions
 * @property {(place: number) => void} [pick] called with the position that is selected as query
 * @property {boolean} [path] whether the rows are steps, whose places are outlined over an image
 */

/** @typedef {{title: string, unit: string, values: number[], max: number}} Bars */

/**
 * A matrix with its labels and colours, for the screen or a file.
 * @typedef {object} Picture
 * @property {string} title
 * @property {Layer[]} layers
 * @property {string[]} rows labels
 * @property {string[]} columns labels
 * @property {number[]} [rowWords] the word of each row, whose pieces are joined by a line; −1 for none
 * @property {number[]} [columnWords]
 * @property {string} rowTitle
 * @property {string} columnTitle
 * @property {Bars[]} bars
 * @property {boolean} [causal] whether the cells above the diagonal are masked
 * @property {boolean} [whole] whether all cells are visible at first, even if not all labels then fit
 * @property {boolean} [byRow] whether the full colour is the largest weight of each row, not of the matrix
 * @property {number} [marked] the column that is selected
 * @property {string} [unit] what the numbers are, if not weights
 * @property {number} [peak] the weight with the full colour, if it is not the largest one of the layers
 */

/**
 * The state and functions that all panels share.
 * @typedef {object} Page
 * @property {HTMLElement} root
 * @property {Provider} provider
 * @property {import("./session.js").Session} session
 * @property {import("./saved_inputs.js").SavedInputs} savedInputs
 * @property {string} input the name of the panel whose input the other panels show
 * @property {(text: string) => void} announce announces a text to screen readers
 * @property {(listener: () => void) => void} onTheme
 * @property {(panel: string) => void} open
 * @property {Record<string, Schema>} inputs schemas of the inputs of `predict`, by name of the model
 * @property {number} maxBody the largest body of a request in bytes
 * @property {(model: string) => Panel | undefined} panelOf returns the panel of a model
 * @property {(model: string) => NonNullable<ModelFacts["maps"]>} mapsOf the attention modules of a model
 */

/**
 * @typedef {object} Panel
 * @property {string} name
 * @property {string} title
 * @property {HTMLElement} body
 * @property {() => void} show called when the panel is opened or the subject has changed
 * @property {boolean} [hasInput] whether the panel has a text field, which determines the subject
 * @property {(model: string, typed: {source: string}) => Promise<import("./session.js").Subject>} [subjectFor]
 *   the subject for the typed text and another model of the panel
 * @property {number} [marked] the column that is selected
 * @property {(text: string, before: string) => void} [setText] replaces the text `before`, or a sentence of it, by another one
 * @property {boolean} [writes] whether its models write the second text of the subject
 * @property {string} [unit] what its models predict, in the plural; default: tokens; empty for one prediction per text
 */

/** @typedef {{panel?: string, text?: string, second?: string}} Start the parameters in the URL */

export {};
