// Record the microphone as samples of one channel.

import { maxAbsolute } from "./painting.js";
import { decodeSound } from "./sound_player.js";
import { encodeWav } from "./wav.js";

/** The rate of recordings, in samples per second: that of most models of speech. */
export const RATE = 16000;

/** Milliseconds to wait for the last block. */
const PATIENCE = 1000;

/**
 * A recording in progress.
 * @typedef {object} Recording
 * @property {() => Promise<Float32Array>} stop ends it; the samples at `RATE`
 * @property {() => void} cancel ends it without a result
 */

/**
 * Start to record. The browser asks the user for permission.
 * @param {(seconds: number, level: number) => void} progress called with the duration so far and the latest peak amplitude
 * @returns {Promise<Recording>}
 */
export async function record(progress) {
  if (!navigator.mediaDevices?.getUserMedia || !window.isSecureContext) {
    throw new Error("Recording needs a secure address: https, or localhost. You can choose a file instead.");
  }
  const stream = await microphone();
  const context = new AudioContext();
  /** @type {Float32Array[]} */
  const blocks = [];
  let count = 0;
  const close = () => {
    for (const track of stream.getTracks()) track.stop();
    if (context.state !== "closed") context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("./recorder_worklet.js", import.meta.url).href);
    if (context.state === "suspended") await context.resume();
  } catch (error) {
    close();
    throw error;
  }
  const node = new AudioWorkletNode(context, "heed-recorder", {
    numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit", channelInterpretation: "speakers",
  });
  /** @type {() => void} */
  let ended = () => undefined;
  node.port.onmessage = ({ data }) => {
    if (!data.length) return ended();
    blocks.push(data);
    count += data.length;
    progress(count / context.sampleRate, maxAbsolute(data));
  };
  context.createMediaStreamSource(stream).connect(node);
  return {
    stop: async () => {
      await new Promise((done) => {
        ended = () => done(undefined);
        node.port.postMessage("stop");
        window.setTimeout(ended, PATIENCE); // if the audio thread does not run any more
      });
      close();
      const whole = new Float32Array(count);
      let at = 0;
      for (const block of blocks) {
        whole.set(block, at);
        at += block.length;
      }
      return resampled(whole, context.sampleRate);
    },
    cancel: close,
  };
}

/** @returns {Promise<MediaStream>} */
async function microphone() {
  try {
    // The browser's echo and noise filters are made for calls, and distort speech.
    return await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false } });
  } catch (error) {
    const name = error instanceof DOMException ? error.name : "";
    /** @type {Record<string, string>} */
    const known = {
      NotAllowedError: "The browser does not allow this page to use the microphone; change that in the page's permissions.",
      NotFoundError: "There is no microphone.",
      NotReadableError: "The microphone cannot be used; another program may be using it.",
    };
    throw known[name] ? new Error(known[name]) : error;
  }
}

/**
 * Resample by decoding a WAV: browsers then filter out what the lower rate cannot represent, which a buffer source does not.
 * @param {Float32Array} samples
 * @param {number} rate
 * @returns {Promise<Float32Array>} the samples at `RATE`
 */
export async function resampled(samples, rate) {
  if (!samples.length || rate === RATE) return samples;
  return (await decodeSound(encodeWav(samples, rate), RATE)).getChannelData(0);
}
