// The schema as given: every object in it with its path and base address, and the target of each $ref.
//
// Schemas refer to each other by number, so that a set of schemas that must all hold is a list of numbers.

import { GrammarError } from "../errors.ts";
import type { Meter } from "../meter.ts";

export type SchemaObject = Readonly<Record<string, unknown>>;

interface Place {
  readonly parent: object | undefined;
  readonly key: string;
  readonly base: string;
}

const NO_BASE = "schema://root/";
const MOST_OBJECTS = 2_000_000;
/** Values here are data, not schemas. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set(["enum", "const", "default", "examples"]);

export function isObject(value: unknown): value is SchemaObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export class Documents {
  readonly root: unknown;
  /** Drafts before 2019-09: a $ref replaces its neighbours. */
  readonly isLegacy: boolean;
  readonly #places: Map<object, Place> = new Map();
  readonly #byAddress: Map<string, object> = new Map();
  /** The number of schemas that have a $dynamicAnchor of the name; of $recursiveAnchor as "". */
  readonly #dynamic: Map<string, number> = new Map();
  readonly #ids: Map<object, number> = new Map();
  readonly #schemas: SchemaObject[] = [];
  readonly #meter: Meter | undefined;

  constructor(root: unknown, meter?: Meter) {
    this.root = root;
    this.#meter = meter;
    const dialect = isObject(root) && typeof root.$schema === "string" ? root.$schema : "";
    this.isLegacy = /draft-0[3467]/.test(dialect);
    if (isObject(root)) this.#index(root);
  }

  #index(root: SchemaObject): void {
    this.#byAddress.set(NO_BASE, root);
    const stack: { value: object; place: Place }[] = [
      { value: root, place: { parent: undefined, key: "", base: NO_BASE } },
    ];
    while (stack.length > 0) {
      const { value, place } = stack.pop()!;
      if (this.#places.has(value)) continue;
      this.#meter?.spend(1);
      if (this.#places.size >= MOST_OBJECTS) {
        throw new GrammarError(`json schema: more than ${MOST_OBJECTS} objects`);
      }
      const base = this.#name(value, place.base);
      this.#places.set(value, { ...place, base });
      for (const [key, inner] of Object.entries(value)) {
        if (typeof inner !== "object" || inner === null || DATA_KEYWORDS.has(key)) continue;
        stack.push({ value: inner as object, place: { parent: value, key, base } });
      }
    }
  }

  /** Notes the addresses of an object that names itself, and returns the base for its members. */
  #name(value: object, base: string): string {
    if (Array.isArray(value)) return base;
    const schema = value as SchemaObject;
    let own = base;
    const id = schema.$id ?? schema.id;
    if (typeof id === "string") {
      const address = resolveAddress(id, base);
      if (address !== undefined) {
        if (id.startsWith("#")) this.#byAddress.set(address, value);
        else {
          own = address.split("#", 1)[0]!;
          if (!this.#byAddress.has(own)) this.#byAddress.set(own, value);
        }
      }
    }
    if (typeof schema.$dynamicAnchor === "string") this.#countDynamic(schema.$dynamicAnchor);
    if (schema.$recursiveAnchor === true) this.#countDynamic("");
    for (const anchor of [schema.$anchor, schema.$dynamicAnchor]) {
      if (typeof anchor === "string") this.#byAddress.set(`${own}#${anchor}`, value);
    }
    return own;
  }

  #countDynamic(anchor: string): void {
    this.#dynamic.set(anchor, (this.#dynamic.get(anchor) ?? 0) + 1);
  }

  /** Schemas that a dynamic reference to the address may mean, depending on how it was come to. */
  candidates(ref: string): number {
    return this.#dynamic.get(ref.slice(ref.indexOf("#") + 1)) ?? 0;
  }

  /** The number of a schema. */
  id(schema: SchemaObject): number {
    let id = this.#ids.get(schema);
    if (id === undefined) {
      id = this.#schemas.push(schema) - 1;
      this.#ids.set(schema, id);
    }
    return id;
  }

  schema(id: number): SchemaObject {
    return this.#schemas[id]!;
  }

  /** "#/properties/name", for messages. */
  path(schema: object): string {
    const keys: string[] = [];
    for (let at: object | undefined = schema; at; ) {
      const place: Place | undefined = this.#places.get(at);
      if (place?.parent === undefined) break;
      keys.push(place.key.replaceAll("~", "~0").replaceAll("/", "~1"));
      at = place.parent;
    }
    return ["#", ...keys.reverse()].join("/");
  }

  /** The target of a $ref in `schema`. */
  resolve(ref: string, schema: SchemaObject): unknown {
    this.#meter?.spend(2 + ref.length / 16);
    const base = this.#places.get(schema)?.base ?? NO_BASE;
    const address = resolveAddress(ref, base);
    if (address === undefined) return undefined;
    const [document = "", fragment = ""] = address.split("#", 2);
    const found = this.#byAddress.get(document);
    if (fragment === "") return found;
    if (!fragment.startsWith("/")) return this.#byAddress.get(address);
    let at: unknown = found;
    for (const part of fragment.slice(1).split("/")) {
      if (typeof at !== "object" || at === null) return undefined;
      const key = decode(part).replaceAll("~1", "/").replaceAll("~0", "~");
      at = Object.hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined;
    }
    return at;
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function resolveAddress(ref: string, base: string): string | undefined {
  try {
    if (ref.startsWith("#")) return `${base}${ref}`;
    return new URL(ref, base).href;
  } catch {
    return undefined;
  }
}
