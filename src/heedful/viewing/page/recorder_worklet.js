// Runs in the audio thread: sends the samples of the microphone to the page in blocks.

const { AudioWorkletProcessor, registerProcessor } = /** @type {any} */ (globalThis);

const BLOCK = 2048;

registerProcessor("heed-recorder", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(BLOCK);
    this.used = 0;
    this.stopped = false;
    // The only message asks for the rest; an empty block ends the recording.
    this.port.onmessage = () => {
      this.send();
      this.stopped = true;
      this.port.postMessage(new Float32Array(0));
    };
  }

  send() {
    if (this.used) this.port.postMessage(this.block.slice(0, this.used));
    this.used = 0;
  }

  /** @param {Float32Array[][]} inputs */
  process([channels]) {
    if (channels?.length && !this.stopped) {
      if (this.used + channels[0].length > BLOCK) this.send();
      this.block.set(channels[0], this.used);
      this.used += channels[0].length;
    }
    return !this.stopped;
  }
});

export {};
