// The layer and stem of a tensor of a Hugging Face folder: the parts of its name.

/** "model.layers.3.rest": the number of the layer (undefined outside of them) and the rest. */
const placed =
  /^(?:model\.|transformer\.|gpt_neox\.|backbone\.|ernie\.)?(?:(?:layers|h|blocks|decoder_layer)\.(\d{1,6})\.)?(.+)$/;

/** The layer of a tensor and its name there; outside of layers, the name. */
export function placeOf(name: string): { layer: number | undefined; rest: string } {
  const [, layer, rest] = placed.exec(textName(name)) as unknown as [string, string?, string?];
  return { layer: layer === undefined ? undefined : Number(layer), rest: rest! };
}

/** The name without the prefix that a model with pictures or sound puts before its language model. */
export function textName(name: string): string {
  return name.replace(/^(?:model\.)?(?:language_model|text_model)\.(?:model\.)?/, "model.");
}
