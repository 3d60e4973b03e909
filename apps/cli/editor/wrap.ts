// Breaks a line into rows of a terminal: between words, and inside one only if it is longer than a row. Spaces that no longer fit
// hang over the end of their row. A row may end between East Asian characters, except before and after some punctuation.

import { type Cluster, clustersOf } from "./widths.ts";

export interface Row {
  /** Its start and end in the line, hanging spaces included. */
  readonly start: number;
  readonly end: number;
  /** The drawn text. */
  readonly shown: string;
  readonly width: number;
}

const tabStop = 8;
const notFirst = new Set(
  "、。，．！？：；）」』】〕》〉”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ,.!?:;)]}'\"%",
);
const notLast = new Set("（「『【〔《〈“‘([{'\"");

const isSpace = ({ text }: Cluster): boolean => text === " " || text === "\t";
const isStyle = ({ text }: Cluster): boolean => text.length > 1 && text.startsWith("\x1b[");

/** The rows of one line, at least one. */
export function wrapLine(line: string, width: number, styled = false): Row[] {
  return wrapClusters(clustersOf(line, styled), Math.max(2, width));
}

function wrapClusters(clusters: readonly Cluster[], width: number): Row[] {
  const rows: Row[] = [];
  let offset = 0; // of the row's start in the line
  let at = 0;
  do {
    const row = nextRow(clusters, at, width, offset);
    rows.push(row.row);
    at = row.next;
    offset = row.row.end;
  } while (at < clusters.length);
  return rows;
}

/** The row that begins with a cluster, and the cluster after it. */
function nextRow(
  clusters: readonly Cluster[],
  from: number,
  width: number,
  start: number,
): { row: Row; next: number } {
  let cells = 0;
  let end = start;
  let shown = "";
  let before: Cluster | undefined;
  let lastBreak: { row: Row; next: number } | undefined;
  for (let at = from; at < clusters.length; at++) {
    const cluster = clusters[at]!;
    if (before && !isStyle(cluster) && mayBreak(before, cluster)) {
      lastBreak = { row: { start, end, shown, width: cells }, next: at };
    }
    const space = isSpace(cluster);
    const own = cluster.text === "\t" ? tabStop - (cells % tabStop) : cluster.width;
    if (cells + own > width && cells > 0 && !space) {
      return lastBreak ?? { row: { start, end, shown, width: cells }, next: at };
    }
    end += cluster.text.length;
    if (cells + own <= width) {
      shown += cluster.text === "\t" ? " ".repeat(own) : cluster.shown;
      cells += own;
    } else cells = width; // it hangs over, as do the spaces after it
    if (!isStyle(cluster)) before = cluster;
  }
  return { row: { start, end, shown, width: cells }, next: clusters.length };
}

function mayBreak(before: Cluster, after: Cluster): boolean {
  if (isSpace(after)) return false;
  if (isSpace(before)) return true;
  if (before.width < 2 && after.width < 2) return false;
  return !notFirst.has(after.text) && !notLast.has(before.text);
}

/** Cells from the start of a row to a position in the line. */
export function columnOf(line: string, row: Row, index: number): number {
  const [part] = wrapLine(line.slice(row.start, index), Number.MAX_SAFE_INTEGER);
  return Math.min(part!.width, row.width);
}

/** The position in the line that is nearest to a column of a row, between clusters. */
export function indexAt(line: string, row: Row, column: number, isLastRow: boolean): number {
  const clusters = clustersOf(line.slice(row.start, row.end));
  let index = row.start;
  let cells = 0;
  for (const [at, cluster] of clusters.entries()) {
    const own = cluster.text === "\t" ? tabStop - (cells % tabStop) : cluster.width;
    if (cells + own > column) break;
    // The end of a row that is not the last is the start of the next.
    if (!isLastRow && at === clusters.length - 1) break;
    cells += own;
    index += cluster.text.length;
  }
  return index;
}
