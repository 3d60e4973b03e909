// Work that runs once per animation frame, however often it is requested: text that arrives 200 times a second is
// drawn 60 times. A hidden tab has no frames; a slow timer replaces them, so that nothing piles up.

const hiddenMs = 500;

export class FrameBatch {
  readonly #work: () => void;
  #frame: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(work: () => void) {
    this.#work = work;
  }

  /** Requests one run soon. */
  ask(): void {
    if (this.#frame !== undefined) return;
    this.#frame = requestAnimationFrame(() => this.now());
    this.#timer = setTimeout(() => this.now(), hiddenMs);
  }

  now(): void {
    if (this.#frame !== undefined) cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = undefined;
    this.#work();
  }
}
