// The fields of a request that are not honoured because the answer means the same without them: advice, metadata, features of
// a vendor's cloud, and fields that this version does not know. Clients add such fields every month, and a request that is
// refused for one is the end of a conversation. They are never ignored silently: the answer's header and GET /props name them,
// and the log does so once. With --strict-fields they are refused instead.

/** Names of one request. A client may send any number of names, of any length. */
const MOST_NAMES = 64;
const LONGEST_NAME = 200;
/** Names that a server remembers. */
const MOST_REMEMBERED = 1000;

export class IgnoredFields {
  readonly isStrict: boolean;
  readonly #names: Set<string> = new Set();

  constructor(isStrict: boolean) {
    this.isStrict = isStrict;
  }

  /** @param name With indices: "tools[3].defer_loading" counts as "tools[].defer_loading". */
  see(name: string): void {
    if (this.#names.size >= MOST_NAMES) return;
    this.#names.add(name.slice(0, LONGEST_NAME).replace(/\[\d{1,9}\]/g, "[]"));
  }

  get names(): readonly string[] {
    return [...this.#names];
  }

  /** The header that names them for the client. */
  headers(): Readonly<Record<string, string>> {
    if (this.#names.size === 0) return {};
    const text = this.names.map((name) => name.replace(/[^\x21-\x2b\x2d-\x7e]/g, "?")).join(", ");
    return { "x-lantern-ignored-fields": text };
  }
}

/** The fields that a server has ignored since it was started. */
export class IgnoredNames {
  readonly #seen: Set<string> = new Set();
  readonly #log: (line: string) => void;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /** Each is logged once. @param where The path of the request. */
  see(where: string, names: readonly string[]): void {
    const fresh = names.filter((name) => {
      const full = `${where} ${name}`;
      if (this.#seen.has(full) || this.#seen.size >= MOST_REMEMBERED) return false;
      this.#seen.add(full);
      return true;
    });
    if (fresh.length === 0) return;
    this.#log(
      `${where}: ignored ${fresh.map((name) => JSON.stringify(name)).join(", ")}, without which the answer means the same (--strict-fields refuses such requests)`,
    );
  }

  /** "/v1/messages safeguards", for GET /props. */
  get list(): readonly string[] {
    return [...this.#seen];
  }
}
