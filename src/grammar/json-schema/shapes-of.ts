// The interface between the negation of schemas and the normalizer (normalize.ts implements it; negate.ts uses it).

import type { Documents, SchemaObject } from "./documents.ts";
import type { OwnShapes } from "./own-shapes.ts";
import type { MaybeBoth, Shape } from "./shapes.ts";
import type { StringLanguages } from "./strings.ts";

export interface ShapesOf {
  readonly documents: Documents;
  readonly own: OwnShapes;
  readonly strings: StringLanguages;
  shapes(all: MaybeBoth): readonly Shape[];
  join(a: readonly Shape[], b: readonly Shape[]): readonly Shape[];
  add(lists: readonly (readonly Shape[])[]): readonly Shape[];
  list(schema: SchemaObject, keyword: string): MaybeBoth[];
  turned(sub: MaybeBoth): MaybeBoth;
  target(schema: SchemaObject, keyword: string): MaybeBoth;
}
