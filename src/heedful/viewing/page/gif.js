// A writer of animated GIF files (GIF89a, CompuServe 1990), whose frames store only the rectangle that has changed.

const BITS = 6;
const LEVELS = 1 << BITS;
const COLOURS = 256;
const MOST_CODES = 4096;

/**
 * The index of a colour with 6 bits for each channel.
 * @param {Uint8ClampedArray} pixels RGBA
 * @param {number} at
 */
function bucketAt(pixels, at) {
  const shift = 8 - BITS;
  return ((pixels[at] >> shift) * LEVELS + (pixels[at + 1] >> shift)) * LEVELS + (pixels[at + 2] >> shift);
}

/** Up to 256 colours of a picture, the most frequent ones, and the nearest of them for every other colour. */
export class Palette {
  /** @param {Uint8ClampedArray} pixels RGBA of a picture with all colours */
  constructor(pixels) {
    const counts = new Float64Array(LEVELS ** 3);
    const sums = [0, 1, 2].map(() => new Float64Array(LEVELS ** 3));
    for (let at = 0; at < pixels.length; at += 4) {
      const bucket = bucketAt(pixels, at);
      counts[bucket] += 1;
      for (let channel = 0; channel < 3; channel++) sums[channel][bucket] += pixels[at + channel];
    }
    const used = [...counts.keys()].filter((bucket) => counts[bucket]).sort((a, b) => counts[b] - counts[a]).slice(0, COLOURS);
    this.colours = new Uint8Array(COLOURS * 3);
    used.forEach((bucket, i) => sums.forEach((sum, channel) => {
      this.colours[3 * i + channel] = Math.round(sum[bucket] / counts[bucket]);
    }));
    this.count = used.length;
    this.nearest = new Int16Array(LEVELS ** 3).fill(-1);
  }

  /**
   * The indices of a picture's colours.
   * @param {Uint8ClampedArray} pixels RGBA
   */
  indicesOf(pixels) {
    const indices = new Uint8Array(pixels.length / 4);
    for (let i = 0; i < indices.length; i++) {
      const bucket = bucketAt(pixels, 4 * i);
      if (this.nearest[bucket] < 0) this.nearest[bucket] = this.search(pixels, 4 * i);
      indices[i] = this.nearest[bucket];
    }
    return indices;
  }

  /** @param {Uint8ClampedArray} pixels @param {number} at */
  search(pixels, at) {
    let [best, least] = [0, Infinity];
    for (let i = 0; i < this.count; i++) {
      let distance = 0;
      for (let channel = 0; channel < 3; channel++) distance += (pixels[at + channel] - this.colours[3 * i + channel]) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }
}

export class GifWriter {
  /**
   * @param {number} width
   * @param {number} height
   * @param {Palette} palette
   */
  constructor(width, height, palette) {
    this.width = width;
    this.height = height;
    this.palette = palette;
    /** @type {Uint8Array[]} */
    this.parts = [Uint8Array.of(
      ...ascii("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0, ...palette.colours,
      0x21, 0xff, 11, ...ascii("NETSCAPE2.0"), 3, 1, 0, 0, 0, // repeated for ever
    )];
    /** @type {Uint8Array | null} */
    this.before = null;
    /** @type {{rectangle: Rectangle, indices: Uint8Array, delay: number} | null} */
    this.waiting = null;
  }

  /**
   * Add a frame. A frame that changes nothing makes the one before it longer.
   * @param {Uint8ClampedArray} pixels RGBA
   * @param {number} delay in hundredths of a second
   */
  add(pixels, delay) {
    const indices = this.palette.indicesOf(pixels);
    const rectangle = this.before ? changedRectangle(this.before, indices, this.width) : { x: 0, y: 0, width: this.width, height: this.height };
    if (!rectangle && this.waiting) {
      this.waiting.delay += delay;
      return;
    }
    this.flush();
    this.before = indices;
    if (rectangle) this.waiting = { rectangle, indices, delay };
  }

  flush() {
    if (!this.waiting) return;
    const { rectangle: { x, y, width, height }, indices, delay } = this.waiting;
    const rows = new Uint8Array(width * height);
    for (let row = 0; row < height; row++) {
      const from = (y + row) * this.width + x;
      rows.set(indices.subarray(from, from + width), row * width);
    }
    this.parts.push(
      Uint8Array.of(0x21, 0xf9, 4, 4, ...short(Math.min(delay, 65_535)), 0, 0), // the next frame is drawn over it
      Uint8Array.of(0x2c, ...short(x), ...short(y), ...short(width), ...short(height), 0),
      inBlocks(compress(rows)),
    );
    this.waiting = null;
  }

  /** The file. */
  finish() {
    this.flush();
    return new Blob([...this.parts, Uint8Array.of(0x3b)], { type: "image/gif" });
  }
}

/** @typedef {{x: number, y: number, width: number, height: number}} Rectangle */

/**
 * The smallest rectangle with all differences; null if there are none.
 * @param {Uint8Array} before
 * @param {Uint8Array} after
 * @param {number} width
 * @returns {Rectangle | null}
 */
function changedRectangle(before, after, width) {
  let [left, right, top, bottom] = [width, -1, -1, -1];
  for (let i = 0; i < after.length; i++) {
    if (before[i] === after[i]) continue;
    const x = i % width;
    if (top < 0) top = (i - x) / width;
    bottom = (i - x) / width;
    if (x < left) left = x;
    if (x > right) right = x;
  }
  return right < 0 ? null : { x: left, y: top, width: right - left + 1, height: bottom - top + 1 };
}

/**
 * Lempel–Ziv–Welch codes of 9 to 12 bits, the lowest bit first.
 * @param {Uint8Array} indices
 */
function compress(indices) {
  const [clear, end] = [COLOURS, COLOURS + 1];
  /** @type {Uint8Array} */
  let bytes = new Uint8Array(1 << 16);
  let [length, buffer, bits, size, next] = [0, 0, 0, 9, end + 1];
  const known = new Uint16Array(MOST_CODES * COLOURS);
  const write = (/** @type {number} */ code) => {
    buffer |= code << bits;
    for (bits += size; bits >= 8; bits -= 8, buffer >>>= 8) {
      if (length === bytes.length) {
        const longer = new Uint8Array(2 * length);
        longer.set(bytes);
        bytes = longer;
      }
      bytes[length++] = buffer & 255;
    }
  };
  write(clear);
  let code = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const place = code * COLOURS + indices[i];
    if (known[place]) {
      code = known[place];
      continue;
    }
    write(code);
    if (next === MOST_CODES) {
      write(clear);
      known.fill(0);
      [size, next] = [9, end + 1];
    } else {
      if (next === 1 << size) size += 1;
      known[place] = next++;
    }
    code = indices[i];
  }
  write(code);
  if (next === 1 << size && next < MOST_CODES) size += 1;
  write(end);
  if (bits) {
    size = 8 - bits; // fills the last byte
    write(0);
  }
  return bytes.subarray(0, length);
}

/**
 * The code size, and data in blocks of up to 255 bytes, each with its length; an empty one ends them.
 * @param {Uint8Array} data
 */
function inBlocks(data) {
  const blocks = Math.ceil(data.length / 255);
  const found = new Uint8Array(2 + data.length + blocks);
  found[0] = 8;
  let at = 1;
  for (let from = 0; from < data.length; from += 255) {
    const block = data.subarray(from, from + 255);
    found[at] = block.length;
    found.set(block, at + 1);
    at += block.length + 1;
  }
  return found;
}

/** @param {string} text */
function ascii(text) {
  return Array.from(text, (one) => one.charCodeAt(0));
}

/** @param {number} value of 16 bits */
function short(value) {
  return [value & 255, value >> 8];
}
