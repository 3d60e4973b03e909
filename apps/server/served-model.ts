// A model under the name that clients use.

import type { Model } from "../../src/index.ts";
import type { ModelPreset } from "./models/on-demand.ts";

export interface ServedModel {
  id: string;
  model: Model;
  /** Seconds since 1970. */
  created: number;
  /** Its file name, without folders; undefined: not known. */
  file?: string | undefined;
  /** Further names that requests may use. */
  aliases?: readonly string[] | undefined;
  /** Defaults of its requests. */
  preset?: ModelPreset | undefined;
  /** For a variant of a model: the name of that model, which is the one in memory. */
  of?: string | undefined;
}

/** The name under which its model is in memory. */
export function heldId({ id, of }: ServedModel): string {
  return of ?? id;
}

/** Another name for a model, with settings of its own (models/made.ts). */
export interface Variant {
  readonly of: string;
  readonly preset: ModelPreset;
  /** Seconds since 1970. */
  readonly created: number;
}
