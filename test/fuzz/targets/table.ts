// The fuzz targets by name. A new one is a file in this folder that exports `target`, and a line here.

export const fuzzTargets: ReadonlyMap<string, URL> = new Map(
  [
    ...["gguf", "adapter", "safetensors", "tokenizer", "template", "http", "shapes", "grammar"],
    ...["settings", "regexes", "grammar-cost"],
  ].map((name) => [name, new URL(`${name}.ts`, import.meta.url)]),
);
