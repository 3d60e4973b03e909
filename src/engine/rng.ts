// The random numbers of the sampler: xoshiro128** seeded by SplitMix64 (both by Blackman and Vigna).
//
// Whole-number arithmetic only, so that a seed means the same numbers on every machine and engine.
// Not for secrets.

export interface Rng {
  /** A number in [0, 1) with 53 random bits. */
  uniform(): number;
}

export function createRng(seed: number): Rng {
  return new Xoshiro128(seedState(seed));
}

/** Four 32-bit words from a seed of up to 53 bits: the low and high halves of two SplitMix64 outputs. */
export function seedState(seed: number): Uint32Array {
  const state = new Uint32Array(4);
  let counter = BigInt(seed);
  for (let i = 0; i < 4; i += 2) {
    counter = BigInt.asUintN(64, counter + 0x9e3779b97f4a7c15n);
    let mixed = counter;
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n);
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
    mixed ^= mixed >> 31n;
    state[i] = Number(mixed & 0xffffffffn);
    state[i + 1] = Number(mixed >> 32n);
  }
  return state;
}

export class Xoshiro128 implements Rng {
  readonly #state: Uint32Array; // 4 words, not all zero

  constructor(state: Uint32Array) {
    this.#state = state.slice();
  }

  /** The next 32 random bits, as a number from 0 to 2^32 - 1. */
  next(): number {
    const s = this.#state;
    const result = Math.imul(rotateLeft(Math.imul(s[1]!, 5), 7), 9) >>> 0;
    const shifted = s[1]! << 9;
    s[2]! ^= s[0]!;
    s[3]! ^= s[1]!;
    s[1]! ^= s[2]!;
    s[0]! ^= s[3]!;
    s[2]! ^= shifted;
    s[3] = rotateLeft(s[3]!, 11);
    return result;
  }

  uniform(): number {
    const high = this.next() >>> 5; // 27 bits
    const low = this.next() >>> 6; // 26 bits
    return (high * 2 ** 26 + low) * 2 ** -53;
  }
}

function rotateLeft(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}
