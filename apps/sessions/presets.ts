// Presets: named settings for use in any conversation. They have their own table beside the sessions. A session keeps
// a copy of its settings and does not remember which preset they came from.

import { type Database, notWritable } from "../../src/platform/database.ts";
import { noteReplaced } from "./replaced.ts";
import { readSettings } from "./rows.ts";
import { SessionError } from "./session.ts";
import { changeSettings, type SessionSettings } from "./settings.ts";

export interface Preset {
  name: string;
  settings: SessionSettings;
}

const mostPresets = 200;

export class Presets {
  readonly #database: Database;

  /** The store has already migrated the database. */
  constructor(database: Database) {
    this.#database = database;
  }

  /** Sorted by name. */
  all(): Preset[] {
    return this.#database
      .all("SELECT name, settings FROM presets ORDER BY name COLLATE NOCASE, name")
      .flatMap(({ name, settings }) => {
        const read = readSettings(settings);
        return read ? [{ name: name as string, settings: read }] : [];
      });
  }

  /** Replaces a preset of the same name. */
  save(name: string, settings: SessionSettings): Preset {
    return this.#write(() => {
      const known = this.all();
      if (known.length >= mostPresets && !known.some((preset) => preset.name === name)) {
        throw new SessionError(
          "invalid",
          `there are ${mostPresets} presets already, which is the limit. Delete one first`,
        );
      }
      const preset = { name, settings: changeSettings({}, settings) };
      if (known.some((one) => one.name === name)) noteReplaced(this.#database, "preset", name);
      this.#database.run(
        "INSERT INTO presets (name, settings) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings",
        name,
        JSON.stringify(preset.settings),
      );
      return preset;
    });
  }

  delete(name: string): void {
    this.#write(() => {
      if (!this.all().some((preset) => preset.name === name)) {
        throw new SessionError("missing", `there is no preset "${name.slice(0, 100)}"`);
      }
      noteReplaced(this.#database, "preset", name);
      this.#database.run("DELETE FROM presets WHERE name = ?", name);
    });
  }

  #write<T>(work: () => T): T {
    if (this.#database.writable) return this.#database.transaction(work);
    throw notWritable(this.#database, "presets");
  }
}
