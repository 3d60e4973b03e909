// What the tables of files and of batches have in common: new ids, pages of rows, names in SQL.

import type { Database, SqlRow, SqlValue } from "../platform/database.ts";
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
  const numberOf = (param: "after" | "before", id: string): number => {
    const row = database.get(`SELECT number, owner FROM ${table} WHERE id = ?`, id);
    if (row && row.owner === where.owner) return row.number as number;
    const shown = JSON.stringify(id.slice(0, 100));
    throw new BatchError("invalid", `"${param}": there is no ${nouns[table]} ${shown}`, param);
  };
  const [behind, ahead, order] = oldestFirst ? [">", "<", "ASC"] : ["<", ">", "DESC"];
  const conditions: { sql: string; value: SqlValue }[] = [];
  for (const [column, value] of Object.entries(where)) {
    if (value !== undefined) conditions.push({ sql: `${column} = ?`, value });
  }
  if (after !== undefined) {
    conditions.push({ sql: `number ${behind} ?`, value: numberOf("after", after) });
  }
  if (before !== undefined) {
    conditions.push({ sql: `number ${ahead} ?`, value: numberOf("before", before) });
  }
  const filter = ["1", ...conditions.map(({ sql }) => sql)].join(" AND ");
  const rows = database.all(
    `SELECT * FROM ${table} WHERE ${filter} ORDER BY number ${order} LIMIT ?`,
    ...conditions.map(({ value }) => value),
    limit + 1, // one more tells whether there are more
  );
  return { items: rows.slice(0, limit).map(read), hasMore: rows.length > limit };
}

export function newId(prefix: string): string {
  return prefix + crypto.randomUUID().replaceAll("-", "");
}

/** For SQL: the names are ours. */
export function listOf(names: ReadonlySet<string>): string {
  return [...names].map((name) => `'${name}'`).join(", ");
}
