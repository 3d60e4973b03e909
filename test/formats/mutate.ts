// A seeded mutator of files: the damage that disks, networks and enemies do, reproducible by its seed.

export interface Random {
  /** A whole number from 0 to n - 1. */
  below(n: number): number;
  pick<T>(items: readonly T[]): T;
}

/** mulberry32: small, seeded, good enough to choose bytes. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n: number): number => Math.floor(next() * n);
  return { below, pick: (items) => items[below(items.length)]! };
}

type Mutation = (bytes: Uint8Array, random: Random) => Uint8Array;

/** Numbers at which readers trip: ends of ranges, signs, products that overflow. */
export const awkward: readonly bigint[] = [
  0n,
  1n,
  2n,
  3n,
  31n,
  33n,
  255n,
  65536n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 32n,
  2n ** 53n,
  2n ** 60n,
  2n ** 63n,
  2n ** 64n - 1n,
];

const awkwardJson: readonly string[] = [
  "0",
  "-1",
  "1.5",
  "1e999",
  "1e15",
  "4294967296",
  "NaN",
  "null",
  "true",
  "[]",
  "{}",
  '""',
  '"__proto__"',
  '"../x"',
  "[[[[[[[[[[",
  '"\\ud800"',
];

const mutations: readonly Mutation[] = [
  function flipBit(bytes, random) {
    const changed = bytes.slice();
    changed[random.below(changed.length)]! ^= 1 << random.below(8);
    return changed;
  },
  function setByte(bytes, random) {
    const changed = bytes.slice();
    changed[random.below(changed.length)] = random.below(256);
    return changed;
  },
  function setNumber(bytes, random) {
    const changed = bytes.slice();
    const width = random.pick([4, 8]);
    if (changed.length < width) return changed;
    const value = new Uint8Array(BigUint64Array.of(random.pick(awkward)).buffer, 0, width);
    changed.set(value, random.below(changed.length - width + 1));
    return changed;
  },
  function truncate(bytes, random) {
    return bytes.slice(0, random.below(bytes.length));
  },
  function remove(bytes, random) {
    const start = random.below(bytes.length);
    return splice(bytes, start, start + 1 + random.below(16), new Uint8Array(0));
  },
  function insert(bytes, random) {
    const start = random.below(bytes.length);
    const noise = Uint8Array.from({ length: 1 + random.below(16) }, () => random.below(256));
    return splice(bytes, start, start, noise);
  },
  function repeat(bytes, random) {
    const start = random.below(bytes.length);
    const piece = bytes.slice(start, start + 1 + random.below(64));
    const at = random.below(bytes.length);
    return splice(bytes, at, random.pick([at, at + piece.length]), piece);
  },
  function replaceJsonNumber(bytes, random) {
    const text = new TextDecoder("latin1").decode(bytes);
    const values = [...text.matchAll(/(?<=[:,[]\s*)(?:[\d.]+|"[^"]*"|true|false)/g)];
    if (values.length === 0) return bytes;
    const value = random.pick(values);
    const end = value.index + value[0].length;
    return splice(bytes, value.index, end, new TextEncoder().encode(random.pick(awkwardJson)));
  },
];

/** One to four changes, one after the other. */
export function mutate(bytes: Uint8Array, random: Random): Uint8Array {
  let changed = bytes;
  for (let i = 1 + random.below(4); i > 0 && changed.length > 0; i--) {
    changed = random.pick(mutations)(changed, random);
  }
  return changed;
}

function splice(bytes: Uint8Array, start: number, end: number, piece: Uint8Array): Uint8Array {
  const tail = bytes.subarray(Math.min(end, bytes.length));
  const result = new Uint8Array(start + piece.length + tail.length);
  result.set(bytes.subarray(0, start));
  result.set(piece, start);
  result.set(tail, start + piece.length);
  return result;
}
