// The tables, as the steps that led to them. `PRAGMA user_version` counts the steps that a file has been through; opening
// an older file does the rest, each in one transaction. A step that was released is never edited: add another.

import { type Database, StorageError } from "../platform/database.ts";

/** Batch i takes a file from version i to i + 1. */
export const migrations: readonly string[] = [
  // 1: conversations as trees. Rows are tied by number; ids are for the world outside. The ties are checked when a
  // transaction ends, so that a whole tree can go (or come) in any order.
  `CREATE TABLE sessions (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     id TEXT NOT NULL UNIQUE,
     title TEXT NOT NULL,
     mode TEXT NOT NULL CHECK (mode IN ('chat', 'story')),
     model TEXT,
     settings TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     changed_at INTEGER NOT NULL,
     leaf INTEGER REFERENCES messages (number) DEFERRABLE INITIALLY DEFERRED
   ) STRICT;
   CREATE INDEX sessions_by_change ON sessions (changed_at, number);

   CREATE TABLE messages (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     id TEXT NOT NULL UNIQUE,
     session INTEGER NOT NULL REFERENCES sessions (number) DEFERRABLE INITIALLY DEFERRED,
     parent INTEGER REFERENCES messages (number) DEFERRABLE INITIALLY DEFERRED,
     role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
     content TEXT NOT NULL,
     state TEXT NOT NULL CHECK (state IN ('complete', 'streaming', 'aborted', 'error')),
     created_at INTEGER NOT NULL,
     changed_at INTEGER NOT NULL,
     model TEXT,
     stop_reason TEXT,
     error TEXT,
     tokens TEXT,
     timings TEXT
   ) STRICT;
   CREATE INDEX messages_by_session ON messages (session);
   CREATE INDEX messages_by_parent ON messages (parent);`,

  // 2: search, by pieces of three letters: it finds parts of words, and words in languages that put no spaces between
  // them. A running answer joins when it has ended. secure-delete: what is deleted leaves the index's pages, too. That
  // takes long, so messages that are deleted stand in a list first, and store.ts takes them out bit by bit.
  `CREATE VIRTUAL TABLE search_messages USING fts5 (text, tokenize = 'trigram');
   CREATE VIRTUAL TABLE search_titles USING fts5 (text, tokenize = 'trigram');
   INSERT INTO search_messages (search_messages, rank) VALUES ('secure-delete', 1);
   INSERT INTO search_titles (search_titles, rank) VALUES ('secure-delete', 1);

   CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN
     INSERT INTO search_messages (rowid, text) VALUES (new.number, new.content);
   END;
   CREATE TRIGGER message_changed AFTER UPDATE OF content, state ON messages
   WHEN new.state <> 'streaming' BEGIN
     DELETE FROM search_messages WHERE rowid = old.number;
     INSERT INTO search_messages (rowid, text) VALUES (new.number, new.content);
   END;
   CREATE TABLE search_deleted (number INTEGER PRIMARY KEY) STRICT;
   CREATE TRIGGER message_deleted AFTER DELETE ON messages BEGIN
     INSERT INTO search_deleted (number) VALUES (old.number);
   END;
   CREATE TRIGGER session_added AFTER INSERT ON sessions BEGIN
     INSERT INTO search_titles (rowid, text) VALUES (new.number, new.title);
   END;
   CREATE TRIGGER session_renamed AFTER UPDATE OF title ON sessions BEGIN
     DELETE FROM search_titles WHERE rowid = old.number;
     INSERT INTO search_titles (rowid, text) VALUES (new.number, new.title);
   END;
   CREATE TRIGGER session_deleted AFTER DELETE ON sessions BEGIN
     DELETE FROM search_titles WHERE rowid = old.number;
   END;

   INSERT INTO search_messages (rowid, text)
     SELECT number, content FROM messages WHERE state <> 'streaming';
   INSERT INTO search_titles (rowid, text) SELECT number, title FROM sessions;`,

  // 3: settings under a name.
  `CREATE TABLE presets (name TEXT PRIMARY KEY, settings TEXT NOT NULL) STRICT;`,

  // 4: rows that could not be read, as they were (set-aside.ts). session: the id of theirs, with which they are deleted.
  `CREATE TABLE set_aside (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     at INTEGER NOT NULL,
     session TEXT,
     what TEXT NOT NULL,
     why TEXT NOT NULL,
     original TEXT NOT NULL
   ) STRICT;`,

  // 5: sessions of which an import has not written everything yet: nobody sees them, and the next start deletes them.
  `CREATE TABLE imports (session INTEGER PRIMARY KEY) STRICT;`,
];

/** Brings the file to the newest version; one that is newer than this program is left alone. */
export function migrate(database: Database): void {
  const version = Number(database.get("PRAGMA user_version")?.user_version ?? 0);
  if (version > migrations.length) {
    throw new StorageError(
      "newer",
      `sessions: "${database.place}" has version ${version}, and this Lantern knows versions up to ${migrations.length}. Use the newer Lantern that made it, or name another file`,
    );
  }
  if (version === migrations.length) return;
  if (!database.writable) {
    throw new StorageError(
      "read-only",
      `sessions: "${database.place}" has version ${version} and must be brought to ${migrations.length}, but it cannot be written`,
    );
  }
  for (let step = version; step < migrations.length; step++) {
    database.transaction(() => {
      database.exec(migrations[step]!);
      database.exec(`PRAGMA user_version = ${step + 1}`);
    });
  }
}
