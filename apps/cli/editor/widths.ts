// The number of terminal cells of a text, from Unicode facts: characters of East Asian writing and emoji take two, combining marks
// none, and a cluster (one character for a reader) is never split. Terminals differ in some emoji; this is what most do.

import { plainText } from "../../../src/platform/terminal-text.ts";

/** One character for a reader. */
export interface Cluster {
  /** The characters in the text. */
  readonly text: string;
  /** The drawn form: control characters are made visible. A tab stays, since its width depends on its column. */
  readonly shown: string;
  readonly width: number;
}

/** First and last code points of East_Asian_Width W and F (Unicode 15); emoji are found by their property instead. */
// biome-ignore format: a table
const wideRanges: readonly (readonly [number, number])[] = [
  [0x1100, 0x115f], [0x2329, 0x232a], [0x2e80, 0x303e], [0x3041, 0x3247], [0x3250, 0x4dbf], [0x4e00, 0xa4c6],
  [0xa960, 0xa97c], [0xac00, 0xd7a3], [0xf900, 0xfaff], [0xfe10, 0xfe19], [0xfe30, 0xfe6b], [0xff01, 0xff60],
  [0xffe0, 0xffe6], [0x16fe0, 0x16ff1], [0x17000, 0x18cd5], [0x18d00, 0x18d08], [0x1aff0, 0x1b2fb],
  [0x1f200, 0x1f202], [0x1f210, 0x1f23b], [0x1f240, 0x1f248], [0x1f250, 0x1f251], [0x1f260, 0x1f265],
  [0x20000, 0x2fffd], [0x30000, 0x3fffd],
];

const emoji = /^\p{Emoji_Presentation}$/u;
const pictograph = /^\p{Extended_Pictographic}$/u;
/** Marks, format characters, and the vowels and final consonants of Korean syllables. */
const zeroWidth = /^[\p{Mn}\p{Me}\p{Cf}\u1160-\u11ff\ud7b0-\ud7fb]$/u;
const regionalIndicator = /^[\u{1f1e6}-\u{1f1ff}]$/u;
const skinTone = /^[\u{1f3fb}-\u{1f3ff}]$/u;
const softHyphen = "\u00ad";
const joiner = "\u200d";
const asEmoji = "\ufe0f";

function codePointWidth(char: string): number {
  const code = char.codePointAt(0)!;
  if (code < 0x300 || char === softHyphen) return 1;
  if (zeroWidth.test(char)) return 0;
  if (regionalIndicator.test(char)) return 1; // two of them are a flag
  if (emoji.test(char)) return 2;
  return wideRanges.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

function clusterWidth(text: string): number {
  let width = 0;
  let last = "";
  let first = "";
  for (const char of text) {
    const joins = last === joiner && pictograph.test(char);
    if (char === asEmoji && pictograph.test(first)) width = Math.max(width, 2);
    else if (!joins && !(skinTone.test(char) && first !== "")) width += codePointWidth(char);
    first ||= char;
    last = char;
  }
  return width;
}

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
const ascii = /^[\x20-\x7e]*$/;
/** The colours of apps/cli/text.ts, which take no cells. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
const styles = /(\x1b\[[0-9]{1,2}m)/;

/** The clusters of one line. `styled`: it may contain our own colours. */
export function clustersOf(line: string, styled = false): Cluster[] {
  if (ascii.test(line)) return Array.from(line, asciiCluster);
  if (!styled || !line.includes("\x1b[")) return plainClusters(line);
  return line
    .split(styles)
    .flatMap((part, at) =>
      at % 2 === 1 ? [{ text: part, shown: part, width: 0 }] : plainClusters(part),
    );
}

const asciiClusters: readonly Cluster[] = Array.from({ length: 127 }, (_, code) => {
  const text = String.fromCharCode(code);
  return { text, shown: text, width: 1 };
});
const asciiCluster = (char: string): Cluster => asciiClusters[char.charCodeAt(0)]!;

function plainClusters(text: string): Cluster[] {
  const found: Cluster[] = [];
  for (const { segment } of segmenter.segment(text)) {
    const shown = plainText(segment);
    found.push({ text: segment, shown, width: clusterWidth(shown) });
  }
  return found;
}

/** Cells of a line without tabs. */
export function cellsOf(text: string): number {
  return clustersOf(text, true).reduce((sum, { width }) => sum + width, 0);
}
