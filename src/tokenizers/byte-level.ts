// GPT-2's byte alphabet: every byte has a printable character, so that a vocabulary of texts can hold arbitrary bytes.
// Printable Latin-1 stands for itself; the other 68 bytes use the characters from U+0100 on ("Ġ" is the space).

/** byteToChar[byte] is its character. */
export const byteToChar: readonly string[] = buildAlphabet();

const charToByte: ReadonlyMap<string, number> = new Map(
  byteToChar.map((char, byte) => [char, byte]),
);

const utf8 = new TextEncoder();

/** The bytes as characters of the alphabet. */
export function encodeByteLevel(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byteToChar[byte]!;
  return text;
}

/** The bytes of a vocabulary text; a text with characters outside the alphabet stands for itself. */
export function decodeByteLevel(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const byte = charToByte.get(text[i]!);
    if (byte === undefined) return utf8.encode(text);
    bytes[i] = byte;
  }
  return bytes;
}

function buildAlphabet(): string[] {
  const printable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let extra = 0x100;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(printable(byte) ? byte : extra++),
  );
}
