// Work that is done once per animation frame, however often it is asked for: text that comes 200 times a second is put on
// the screen 60 times. In a hidden tab there are no frames; a slow timer takes their place, so that nothing piles up.

const hiddenMs = 500;

export class FrameBatch {
  readonly #work: () => void;
  #frame: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(work: () => void) {
    this.#work = work;
  }

  /** Soon, once. */
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
