// unevaluatedProperties and unevaluatedItems: the members that no other part of the schema covers. The layers of a shape are the
// members that its parts have evaluated, so this is one more layer about the rest.

import type { SchemaObject } from "./documents.ts";
import type { OwnShapes } from "./own-shapes.ts";
import type { ArrayShape, MaybeBoth, ObjectShape, Shape } from "./shapes.ts";

/** Shapes that were made by negating a schema: they evaluate no properties or items. */
export function opposites(shapes: readonly Shape[]): readonly Shape[] {
  const hasLayers = shapes.some((shape) => "layers" in shape && shape.layers.length > 0);
  if (!hasLayers) return shapes;
  return shapes.map((shape): Shape => {
    if (shape.type === "object") return { ...shape, layers: shape.layers.map(opposite) };
    return shape.type === "array" ? { ...shape, layers: shape.layers.map(opposite) } : shape;
  });
}

function opposite<T extends { readonly isOpposite?: boolean }>(layer: T): T {
  return layer.isOpposite ? layer : { ...layer, isOpposite: true };
}

export function withoutUnevaluated(shape: Shape, schema: SchemaObject, own: OwnShapes): Shape {
  const { unevaluatedProperties, unevaluatedItems } = schema;
  if (shape.type === "object" && unevaluatedProperties !== undefined) {
    const rest = own.sub(unevaluatedProperties, schema, "unevaluatedProperties");
    return withoutProperties(shape, rest);
  }
  if (shape.type === "array" && unevaluatedItems !== undefined) {
    if (shape.contains.length > 0 && unevaluatedItems !== true) {
      throw own.wrong(schema, "unevaluatedItems", "beside contains it is not supported");
    }
    return withoutItems(shape, own.sub(unevaluatedItems, schema, "unevaluatedItems"));
  }
  if (shape.type === "const" && typeof shape.value === "object" && shape.value !== null) {
    const keyword = Array.isArray(shape.value) ? "unevaluatedItems" : "unevaluatedProperties";
    const isFree = schema[keyword] === undefined || schema[keyword] === true;
    if (isFree || Object.keys(shape.value).length === 0) return shape;
    throw own.wrong(schema, keyword, "beside constants it is not supported");
  }
  return shape;
}

function withoutProperties(shape: ObjectShape, rest: MaybeBoth): ObjectShape {
  const layers = shape.layers.filter(({ isOpposite }) => !isOpposite);
  if (layers.some(({ isWhole }) => isWhole)) return shape;
  const keys = layers.flatMap((layer) => [...layer.properties.keys()]);
  const layer = {
    properties: new Map(keys.map((key): [string, MaybeBoth] => [key, []])),
    patterns: layers.flatMap(({ patterns }) =>
      patterns.map(({ language }) => ({ language, both: [] })),
    ),
    rest,
    isWhole: true,
  };
  return { ...shape, layers: [...shape.layers, layer] };
}

function withoutItems(shape: ArrayShape, rest: MaybeBoth): ArrayShape {
  const layers = shape.layers.filter(({ isOpposite }) => !isOpposite);
  if (layers.some(({ isWhole }) => isWhole)) return shape;
  const length = Math.max(0, ...layers.map(({ prefix }) => prefix.length));
  const prefix = Array.from({ length }, (): MaybeBoth => []);
  return { ...shape, layers: [...shape.layers, { prefix, rest, isWhole: true }] };
}
