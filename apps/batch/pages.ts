// Helpers for the tables of files and of batches: new ids, pages of rows, names in SQL.

import type { Database, SqlRow, SqlValue } from "../../src/platform/database.ts";
import { BatchError } from "./batch.ts";

export interface Page {
  readonly after?: string | undefined;
  readonly before?: string | undefined;
  readonly limit: number;
  /** Default: the newest first. */
  readonly oldestFirst?: boolean | undefined;
}

export interface Listed<T> {
  readonly items: readonly T[];
  readonly hasMore: boolean;
}

const nouns = { files: "file", batches: "batch" } as const;

/** A page of rows; `where`: columns and their values. */
export function pageOf<T>(
  database: Database,
  table: keyof typeof nouns,
  where: Readonly<Record<string, SqlValue | undefined>>,
  { after, before, limit, oldestFirst = false }: Page,
  read: (row: SqlRow) => T,
): Listed<T> {
  // Sorts by time: rows of other gateways (mirror.ts) have numbers of this store, in another order.
  const placeOf = (param: "after" | "before", id: string): SqlValue[] => {
    const row = database.get(`SELECT created_at, number, owner FROM ${table} WHERE id = ?`, id);
    if (row && row.owner === where.owner) return [row.created_at!, row.number!];
    const shown = JSON.stringify(id.slice(0, 100));
    throw new BatchError("invalid", `"${param}": there is no ${nouns[table]} ${shown}`, param);
  };
  const [behind, ahead, order] = oldestFirst ? [">", "<", "ASC"] : ["<", ">", "DESC"];
  const conditions: { sql: string; values: SqlValue[] }[] = [];
  for (const [column, value] of Object.entries(where)) {
    if (value !== undefined) conditions.push({ sql: `${column} = ?`, values: [value] });
  }
  const beside = (sign: string): string => `(created_at, number) ${sign} (?, ?)`;
  if (after !== undefined) {
    conditions.push({ sql: beside(behind!), values: placeOf("after", after) });
  }
  if (before !== undefined) {
    conditions.push({ sql: beside(ahead!), values: placeOf("before", before) });
  }
  const filter = ["1", ...conditions.map(({ sql }) => sql)].join(" AND ");
  const rows = database.all(
    `SELECT * FROM ${table} WHERE ${filter} ORDER BY created_at ${order}, number ${order} LIMIT ?`,
    ...conditions.flatMap(({ values }) => values),
    limit + 1, // one more tells whether there are more
  );
  return { items: rows.slice(0, limit).map(read), hasMore: rows.length > limit };
}

export function newId(prefix: string): string {
  return prefix + crypto.randomUUID().replaceAll("-", "");
}

/** A list for SQL; the names are constants of the program. */
export function listOf(names: ReadonlySet<string>): string {
  return [...names].map((name) => `'${name}'`).join(", ");
}
