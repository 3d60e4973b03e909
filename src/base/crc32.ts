// CRC-32 (as zlib computes it) in plain TypeScript, eight bytes at a time: for platforms that have none of their own.

/** Number [k][byte]: the contribution of a byte that k more bytes follow. */
let tables: readonly Int32Array[] | undefined;

function makeTables(): Int32Array[] {
  const tables = Array.from({ length: 8 }, () => new Int32Array(256));
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    tables[0]![byte] = crc;
  }
  for (let k = 1; k < 8; k++) {
    for (let byte = 0; byte < 256; byte++) {
      const before = tables[k - 1]![byte]!;
      tables[k]![byte] = (before >>> 8) ^ tables[0]![before & 255]!;
    }
  }
  return tables;
}

/** The checksum, 0 to 2^32 - 1. `before`: that of the bytes before these. */
export function crc32(bytes: Uint8Array, before: number = 0): number {
  tables ??= makeTables();
  const [t0, t1, t2, t3, t4, t5, t6, t7] = tables as unknown as Int32Array[] & { length: 8 };
  const end = bytes.length - (bytes.length % 8);
  let crc = ~before;
  let i = 0;
  for (; i < end; i += 8) {
    const a =
      crc ^ (bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24));
    crc =
      t7![a & 255]! ^
      t6![(a >>> 8) & 255]! ^
      t5![(a >>> 16) & 255]! ^
      t4![a >>> 24]! ^
      t3![bytes[i + 4]!]! ^
      t2![bytes[i + 5]!]! ^
      t1![bytes[i + 6]!]! ^
      t0![bytes[i + 7]!]!;
  }
  for (; i < bytes.length; i++) crc = (crc >>> 8) ^ t0![(crc ^ bytes[i]!) & 255]!;
  return ~crc >>> 0;
}
