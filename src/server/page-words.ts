// Translates option names in the library's messages into labels and fields for readers in the app or over HTTP, as
// src/cli/flag-words.ts does for the command line.

const words: readonly (readonly [RegExp, string])[] = [
  [/\b([a-z][A-Za-z]+)\(\): /g, "$1: "],
  [/\ballow it to be replaced \(replace: true\)/g, "delete that file first"],
  [/\bUse a contextSize of at most (\d+)/g, "Use a context of at most $1 tokens"],
  [/, or open the model with a larger contextSize/g, ", or load the model with a larger context"],
  [
    /\bOpen the model with a larger parallel, or contextSize/g,
    "Load the model with a larger context",
  ],
  [/\bgpuLayers (\d+) or auto\b/g, "$1 GPU layers"],
  [
    /\bUse generate\(\), or choose a template by name with the chatTemplate option/g,
    "Load it with a chat template, or let it continue a text",
  ],
  [/\bcontextSize\b/g, "context"],
  [/ \(kvType\)/g, ""],
  [/\bkvType\b/g, "type of the KV cache"],
  [/\bgpuLayers\b/g, "GPU layers"],
  [/\bgpuFor\b/g, "what the GPU computes"],
  [/\bchatTemplate\b/g, "chat template"],
  [/\bmemoryBytes\b/g, "memory"],
  [/\bdraftTokens\b/g, "drafted tokens"],
  [/\bmaxTokens\b/g, "max_tokens"],
  [/\blogitBias\b/g, "logit_bias"],
  [/\bsaveBase\b/g, "saved base"],
];

export function inPageWords(message: string): string {
  return words.reduce((text, [name, word]) => text.replace(name, word), message);
}
