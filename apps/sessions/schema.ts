// The database tables, as migration steps (migrateDatabase). A released step is never edited: add another.

import { type DatabaseKind, savesTable } from "../../src/platform/database.ts";

/** Step i takes a file from version i to i + 1. */
export const migrations: readonly string[] = [
  // 1: conversations as trees. Rows refer to each other by number; ids are for the outside. References are checked
  // at the end of a transaction, so that a whole tree can be deleted or added in any order.
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

  // 2: search by trigrams: it finds parts of words, and words in languages without spaces. A running answer is
  // indexed when it has ended. secure-delete also removes deleted text from the index's pages. That takes long, so
  // deleted messages are first put in a list, and store.ts removes them in slices.
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

  // 3: presets.
  `CREATE TABLE presets (name TEXT PRIMARY KEY, settings TEXT NOT NULL) STRICT;`,

  // 4: unreadable rows in their original form (set-aside.ts). session: the id of their session, with which they are
  // deleted.
  `CREATE TABLE set_aside (
     number INTEGER PRIMARY KEY AUTOINCREMENT,
     at INTEGER NOT NULL,
     session TEXT,
     what TEXT NOT NULL,
     why TEXT NOT NULL,
     original TEXT NOT NULL
   ) STRICT;`,

  // 5: sessions whose import is not complete: they are invisible, and the next start deletes them.
  `CREATE TABLE imports (session INTEGER PRIMARY KEY) STRICT;`,

  // 6: the path of a session's model file at its last answer, so that it can be loaded again.
  `ALTER TABLE sessions ADD COLUMN model_file TEXT;`,

  // 7: reasoning and tool calls apart from the text, and the model's raw output if that is more than the text.
  `ALTER TABLE messages ADD COLUMN reasoning TEXT;
   ALTER TABLE messages ADD COLUMN calls TEXT;
   ALTER TABLE messages ADD COLUMN raw TEXT;`,

  // 8: checksums of rows, and a count of all saves, so that damage is noticed.
  `${savesTable}
   ALTER TABLE sessions ADD COLUMN sum INTEGER;
   ALTER TABLE messages ADD COLUMN sum INTEGER;
   ALTER TABLE presets ADD COLUMN sum INTEGER;`,

  // 9: ids of conversations with deleted parts, until their copies outside of this file are gone (purge.ts).
  `CREATE TABLE forgotten (conversation TEXT PRIMARY KEY) STRICT;`,

  // 10: the items of which backups still have the state before a change: titles and settings of sessions (by id), and presets (by
  // name); and the damage that a backup has made good.
  `CREATE TABLE replaced (item TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (item, name)) STRICT;
   ALTER TABLE set_aside ADD COLUMN restored INTEGER NOT NULL DEFAULT 0;`,
];

export const sessionsKind: DatabaseKind = {
  what: "sessions",
  letters: "LTNs",
  steps: migrations,
  sealed: ["sessions", "messages", "presets"],
};
