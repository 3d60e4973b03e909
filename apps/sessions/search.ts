// Search in titles and messages. A person's input is never a query language: it is split into words and "quoted
// phrases", and all of them must occur.
//
// The index is made of trigrams (schema.ts), so it finds any part of a text, in any script. A word of one or two
// letters is too short for the index and is searched by reading all texts.

import type { Database, SqlRow } from "../../src/platform/database.ts";
import type { SessionMode } from "./session.ts";

export interface SearchHit {
  session: string;
  title: string;
  mode: SessionMode;
  /** null: the title matches. */
  message: string | null;
  changedAt: number;
  /** Text around the first match, in pieces; those with `hit` match. Plain text, not HTML. */
  snippet: SnippetPiece[];
}

export interface SnippetPiece {
  text: string;
  hit: boolean;
}

const maxTerms = 16;
const maxTermLength = 200;
/** Letters shown on either side of the first match. */
const around = 60;

/** Matches in titles come first, then the newest messages. */
export function searchDatabase(database: Database, query: string, limit: number): SearchHit[] {
  const terms = searchTerms(query);
  if (terms.length === 0) return [];
  const titles = find(database, terms, limit, {
    index: "search_titles",
    columns: "s.id AS session, s.title, s.mode, NULL AS message, s.changed_at, s.title AS text",
    tables: "sessions s ON s.number = i.rowid",
  });
  const messages = find(database, terms, limit, {
    index: "search_messages",
    columns: "s.id AS session, s.title, s.mode, m.id AS message, m.changed_at, m.content AS text",
    tables: "messages m ON m.number = i.rowid JOIN sessions s ON s.number = m.session",
  });
  const pattern = termPattern(terms);
  return [...titles, ...messages].slice(0, limit).map((row) => toHit(row, pattern));
}

/** Words and "phrases", without control characters. */
export function searchTerms(query: string): string[] {
  const found = [...query.matchAll(/"([^"]*)"|([^\s"]+)/g)]
    .map(([, phrase, word]) => clean(phrase ?? word!))
    .filter((term) => term !== "");
  return [...new Set(found)].slice(0, maxTerms);
}

function clean(term: string): string {
  return [...term.replaceAll(/\p{Cc}/gu, " ").trim()].slice(0, maxTermLength).join("");
}

function find(
  database: Database,
  terms: readonly string[],
  limit: number,
  { index, columns, tables }: { index: string; columns: string; tables: string },
): SqlRow[] {
  const long = terms.filter((term) => [...term].length >= 3);
  const short = terms.filter((term) => [...term].length < 3);
  const conditions = [
    ...(long.length > 0 ? [`i.${index} MATCH ?`] : []),
    ...short.map(() => "i.text LIKE ? ESCAPE '\\'"),
  ];
  const values = [
    ...(long.length > 0 ? [long.map(quotePhrase).join(" AND ")] : []),
    ...short.map((term) => `%${term.replaceAll(/[\\%_]/g, "\\$&")}%`),
  ];
  return database.all(
    `SELECT ${columns} FROM ${index} i JOIN ${tables} WHERE ${conditions.join(" AND ")}
     ORDER BY i.rowid DESC LIMIT ?`,
    ...values,
    limit,
  );
}

/** FTS5's quoting: inside quotes only a quote is special, and it is doubled. */
function quotePhrase(term: string): string {
  return `"${term.replaceAll('"', '""')}"`;
}

function termPattern(terms: readonly string[]): RegExp {
  const alternatives = [...terms]
    .sort((a, b) => b.length - a.length)
    .map((term) => term.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  return new RegExp(alternatives.join("|"), "giu");
}

function toHit(row: SqlRow, pattern: RegExp): SearchHit {
  return {
    session: row.session as string,
    title: row.title as string,
    mode: row.mode as SessionMode,
    message: row.message as string | null,
    changedAt: row.changed_at as number,
    snippet: snippetOf(row.text as string, pattern),
  };
}

function snippetOf(text: string, pattern: RegExp): SnippetPiece[] {
  const first = text.search(pattern);
  const at = Math.max(first, 0);
  const from = wholeLetter(text, Math.max(0, at - around));
  const to = wholeLetter(text, Math.min(text.length, at + 2 * around));
  const pieces: SnippetPiece[] = [];
  const add = (piece: string, hit: boolean): void => {
    if (piece !== "") pieces.push({ text: piece, hit });
  };
  const part = text.slice(from, to);
  let done = 0;
  if (from > 0) add("…", false);
  for (const match of part.matchAll(pattern)) {
    add(part.slice(done, match.index), false);
    add(match[0], true);
    done = match.index + match[0].length;
  }
  add(part.slice(done), false);
  if (to < text.length) add("…", false);
  return pieces;
}

/** Moves a position out of the middle of a surrogate pair. */
function wholeLetter(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
