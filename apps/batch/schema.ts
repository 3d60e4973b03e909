// The tables of files and batches, as migration steps (migrateDatabase). A released step is never edited: add another.

import { type DatabaseKind, savesTable } from "../../src/platform/database.ts";

const migrations: readonly string[] = [
  // 1: lines have the position of their request in the input file; their answers are rows until the output file is
  // written.
  `CREATE TABLE files (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     id TEXT NOT NULL UNIQUE,
     owner TEXT NOT NULL,
     name TEXT NOT NULL,
     purpose TEXT NOT NULL,
     bytes INTEGER NOT NULL,
     created_at INTEGER NOT NULL,
     expires_at INTEGER
   ) STRICT;

   CREATE TABLE batches (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     id TEXT NOT NULL UNIQUE,
     owner TEXT NOT NULL,
     api TEXT NOT NULL,
     endpoint TEXT NOT NULL,
     input_file TEXT NOT NULL,
     output_file TEXT,
     error_file TEXT,
     state TEXT NOT NULL,
     errors TEXT NOT NULL,
     metadata TEXT,
     completion_window TEXT NOT NULL,
     model TEXT,
     input_tokens INTEGER NOT NULL DEFAULT 0,
     cached_tokens INTEGER NOT NULL DEFAULT 0,
     output_tokens INTEGER NOT NULL DEFAULT 0,
     created_at INTEGER NOT NULL,
     expires_at INTEGER NOT NULL,
     times TEXT NOT NULL
   ) STRICT;
   CREATE INDEX batches_by_state ON batches (state);

   CREATE TABLE lines (
     batch INTEGER NOT NULL REFERENCES batches (number) ON DELETE CASCADE,
     place INTEGER NOT NULL,
     custom_id TEXT NOT NULL,
     start INTEGER NOT NULL,
     finish INTEGER NOT NULL,
     order_key TEXT NOT NULL,
     state TEXT NOT NULL DEFAULT 'waiting',
     tries INTEGER NOT NULL DEFAULT 0,
     answer TEXT,
     PRIMARY KEY (batch, place)
   ) STRICT, WITHOUT ROWID;
   CREATE UNIQUE INDEX lines_by_name ON lines (batch, custom_id);
   CREATE INDEX lines_by_order ON lines (batch, state, order_key, place);`,
  // 2: batches of other gateways of a cluster (mirror.ts): the gateway ('': this store), and its counts.
  `ALTER TABLE batches ADD COLUMN gateway TEXT NOT NULL DEFAULT '';
   ALTER TABLE batches ADD COLUMN counts TEXT;
   CREATE TABLE self (id TEXT NOT NULL) STRICT;`,
  // 3: the fingerprints of the models that compute a batch of a cluster, since several models can have one name.
  `ALTER TABLE batches ADD COLUMN fingerprints TEXT NOT NULL DEFAULT '{}';`,
  // 4: checksums of rows, and a count of all saves, so that damage is noticed.
  `${savesTable}
   ALTER TABLE files ADD COLUMN sum INTEGER;
   ALTER TABLE batches ADD COLUMN sum INTEGER;
   ALTER TABLE lines ADD COLUMN sum INTEGER;`,
];

export const batchesKind: DatabaseKind = {
  what: "batches",
  letters: "LTNb",
  steps: migrations,
  sealed: ["files", "batches", "lines"],
};
