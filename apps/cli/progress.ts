// A progress bar on stderr: bytes, rate, time left. On a terminal it is one line that is redrawn; elsewhere a plain
// line every few seconds, or no output, as the caller chooses.

import type { Terminal } from "../../src/platform/node-cli.ts";
import { bytesText, durationText } from "./text.ts";

const redrawMs = 100;
const plainLineMs = 5000;
const barWidth = 24;

export interface ProgressOptions {
  label: string;
  /** Print a line from time to time if stderr is not a terminal: for downloads in a log. */
  plainLines: boolean;
}

export class ProgressBar {
  readonly #terminal: Terminal;
  readonly #options: ProgressOptions;
  readonly #startMs: number;
  #startBytes: number | undefined;
  #drawnMs: number;
  #visible = false;

  constructor(terminal: Terminal, options: ProgressOptions) {
    this.#terminal = terminal;
    this.#options = options;
    this.#startMs = terminal.now();
    // Work that ends before the first redraw needs no bar.
    this.#drawnMs = this.#startMs;
  }

  update(loadedBytes: number, totalBytes: number): void {
    // Bytes from an earlier run do not count for the rate.
    this.#startBytes ??= loadedBytes;
    const now = this.#terminal.now();
    const interval = this.#terminal.errIsTerminal ? redrawMs : plainLineMs;
    if (now - this.#drawnMs < interval) return;
    this.#drawnMs = now;
    const seconds = (now - this.#startMs) / 1000;
    const rate = (loadedBytes - this.#startBytes) / seconds;
    const facts = progressFacts(loadedBytes, totalBytes, rate);
    if (this.#terminal.errIsTerminal) {
      const bar = barText(loadedBytes / totalBytes, barWidth);
      const line = `${this.#options.label}  ${bar}  ${facts}`;
      this.#terminal.err(`\r${line.slice(0, this.#terminal.columns - 1)}\x1b[K`);
      this.#visible = true;
    } else if (this.#options.plainLines) {
      this.#terminal.err(`${this.#options.label}: ${facts}\n`);
    }
  }

  /** Removes the bar, so that the next output starts on a clean line. */
  done(): void {
    if (this.#visible) this.#terminal.err("\r\x1b[K");
    this.#visible = false;
  }
}

export function progressFacts(loaded: number, total: number, bytesPerSecond: number): string {
  const percent = total > 0 ? Math.floor((loaded / total) * 100) : 0;
  const facts = `${percent}%  ${bytesText(loaded)} of ${bytesText(total)}`;
  if (!(bytesPerSecond > 0)) return facts;
  const left = durationText((total - loaded) / bytesPerSecond);
  return `${facts}  ${bytesText(Math.round(bytesPerSecond))}/s  ${left} left`;
}

export function barText(fraction: number, width: number): string {
  const filled = Math.round(Math.min(1, Math.max(0, fraction)) * width);
  return `[${"#".repeat(filled)}${".".repeat(width - filled)}]`;
}

/**
 * A progress bar for work that knows its fraction, not its bytes: time left, and the current step. Only on a terminal.
 */
export class ShareBar {
  readonly #terminal: Terminal;
  readonly #label: string;
  readonly #startMs: number;
  #drawnMs: number;
  #visible = false;

  constructor(terminal: Terminal, label: string) {
    this.#terminal = terminal;
    this.#label = label;
    this.#startMs = terminal.now();
    this.#drawnMs = this.#startMs;
  }

  /** `share`: 0 to 1. */
  update(share: number, now = ""): void {
    const ms = this.#terminal.now();
    if (!this.#terminal.errIsTerminal || ms - this.#drawnMs < redrawMs) return;
    this.#drawnMs = ms;
    const seconds = (ms - this.#startMs) / 1000;
    const left = share > 0.02 ? `${durationText((seconds / share) * (1 - share))} left  ` : "";
    const line = `${this.#label}  ${barText(share, barWidth)}  ${Math.floor(share * 100)}%  ${left}${now}`;
    this.#terminal.err(`\r${line.slice(0, this.#terminal.columns - 1)}\x1b[K`);
    this.#visible = true;
  }

  /** Removes the bar, so that the next output starts on a clean line. */
  done(): void {
    if (this.#visible) this.#terminal.err("\r\x1b[K");
    this.#visible = false;
  }
}
