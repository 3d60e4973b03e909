// The sampler's random numbers: the Mersenne Twister MT19937 (Matsumoto and Nishimura), as in llama.cpp. The same seed
// draws the same numbers in both, and with the same logits gives the same text.
//
// It uses only integer arithmetic, so a seed gives the same numbers on every machine and JavaScript engine. It is not
// cryptographically secure.

export interface Rng {
  /** A number in [0, 1) with 53 random bits. */
  uniform(): number;
}

/** A generator whose next numbers can be seen before they are drawn. */
export interface ForeseenRng extends Rng {
  /** The number that uniform() returns after this many others. */
  foresee(after: number): number;
}

export function createRng(seed: number): ForeseenRng {
  return new Foreseen(new MersenneTwister(seed));
}

/** Numbers that can be foreseen, at least. */
const FORESEEN = 8;

class Foreseen implements ForeseenRng {
  readonly #rng: Rng;
  /** The next numbers that were asked for ahead: in a ring. */
  readonly #known: Float64Array = new Float64Array(FORESEEN);
  #first = 0;
  #count = 0;

  constructor(rng: Rng) {
    this.#rng = rng;
  }

  uniform(): number {
    if (this.#count === 0) return this.#rng.uniform();
    const next = this.#known[this.#first]!;
    this.#first = (this.#first + 1) % FORESEEN;
    this.#count--;
    return next;
  }

  foresee(after: number): number {
    if (after >= FORESEEN) throw new Error(`random numbers are foreseen up to ${FORESEEN}`);
    for (; this.#count <= after; this.#count++) {
      this.#known[(this.#first + this.#count) % FORESEEN] = this.#rng.uniform();
    }
    return this.#known[(this.#first + after) % FORESEEN]!;
  }
}

const SIZE = 624;
const MIDDLE = 397;

export class MersenneTwister implements Rng {
  readonly #state: Uint32Array = new Uint32Array(SIZE);
  #next = SIZE;

  /** A seed of up to 53 bits; one of up to 32 bits seeds like std::mt19937. */
  constructor(seed: number) {
    const low = seed >>> 0;
    const high = Math.floor(seed / 2 ** 32) >>> 0;
    if (high === 0) this.#fill(low);
    else this.#fillFrom([low, high]);
  }

  /** The next 32 random bits, as a number from 0 to 2^32 - 1. */
  next(): number {
    if (this.#next === SIZE) this.#twist();
    let word = this.#state[this.#next++]!;
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  /** Makes a double like std::uniform_real_distribution: from two words, the lower one first. */
  uniform(): number {
    const low = this.next();
    const high = this.next();
    const value = (low + high * 2 ** 32) * 2 ** -64;
    return value < 1 ? value : 1 - 2 ** -53;
  }

  #fill(seed: number): void {
    const state = this.#state;
    state[0] = seed;
    for (let i = 1; i < SIZE; i++) {
      const last = state[i - 1]!;
      state[i] = Math.imul(1812433253, last ^ (last >>> 30)) + i;
    }
  }

  /** MT19937's own way of seeding with more than one word. */
  #fillFrom(key: readonly number[]): void {
    const state = this.#state;
    this.#fill(19650218);
    let i = 1;
    const step = (factor: number, add: number, sign: 1 | -1): void => {
      const last = state[i - 1]!;
      const mixed = state[i]! ^ Math.imul(last ^ (last >>> 30), factor);
      state[i] = mixed + sign * add;
      if (++i < SIZE) return;
      state[0] = state[SIZE - 1]!;
      i = 1;
    };
    for (let k = 0; k < SIZE; k++) {
      const at = k % key.length;
      step(1664525, key[at]! + at, 1);
    }
    for (let k = 1; k < SIZE; k++) step(1566083941, i, -1);
    state[0] = 0x80000000;
  }

  #twist(): void {
    const state = this.#state;
    for (let i = 0; i < SIZE; i++) {
      const mixed = (state[i]! & 0x80000000) | (state[(i + 1) % SIZE]! & 0x7fffffff);
      const odd = mixed & 1 ? 0x9908b0df : 0;
      state[i] = state[(i + MIDDLE) % SIZE]! ^ (mixed >>> 1) ^ odd;
    }
    this.#next = 0;
  }
}
