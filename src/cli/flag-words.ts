// Translates option names in the library's messages (contextSize, kvType) into flags for readers at the command line.
// One table, applied on the way to the terminal.

/** In this order, longer ones first. */
const words: readonly (readonly [RegExp, string])[] = [
  [/\b([a-z][A-Za-z]+)\(\): /g, "$1: "],
  [/\ballow it to be replaced \(replace: true\)/g, "replace it with --force"],
  [
    /\bLeave out mask, range, strict and numa/g,
    "Leave out --cpu-mask, --cpu-range, --cpu-strict and --numa",
  ],
  [
    /\bLeave out mask, range and strict, or numa/g,
    "Leave out --cpu-mask, --cpu-range and --cpu-strict, or --numa",
  ],
  [/^binding: numa "(\w+)"/, "--numa $1"],
  [/^binding: /, ""],
  [/^(mask|range): (?=got)/, "--cpu-$1: "],
  [/^numa "(\w+)"/, "--numa $1"],
  [/\bgpuLayers (\d+) or auto\b/g, "-ngl $1 or -ngl auto"],
  [/\bgpuLayers 0\b/g, "-ngl 0"],
  [/\bUse a contextSize of at most/g, "Use -c with at most"],
  [/\bwith the option profile: true/g, "with --profile"],
  [
    /\bUse generate\(\), or choose a template by name with the chatTemplate option/g,
    'Use "lantern run", or choose a template with --template',
  ],
  [/\bopen the model with a larger contextSize/g, "use a larger -c"],
  [/\bOpen the model with a larger parallel, or contextSize/g, "Use a larger --parallel, or -c"],
  [/\bOpen the model with kvType f32/g, "Use --cache-type f32"],
  [/\bor with backend "cpu"/g, "or use --backend cpu"],
  [/\bbackend "cpu"/g, "--backend cpu"],
  [/\bOpen the model without exact\b/g, "Drop --exact"],
  [/\bopen the model without exact\b/g, "drop --exact"],
  [/^exact: /, "--exact: "],
  [/^mtp: /, "--mtp: "],
  [/\bOpen it without mtp\b/g, "Drop --mtp"],
  [/\bdraftModel\b/g, "--model-draft"],
  [/\bdraftThreads\b/g, "--threads-draft"],
  [/\bdraftGpuLayers\b/g, "--gpu-layers-draft"],
  [/\bcontextSize\b/g, "-c"],
  [/\bkvType\b/g, "--cache-type"],
  [/\bgpuLayers\b/g, "--gpu-layers"],
  [/\btuneFile\b/g, "--tune-file"],
  [/\bmStep\b/g, "--m-step"],
  [/\bmNum\b/g, "--m-num"],
  [/\bwith mode quick\b/g, "with --quick"],
  [/\bgpuFor\b/g, "--gpu-for"],
  [/\bwith this file among its adapters\b/g, "with --lora FILE"],
  [/^adapters: /, "--lora: "],
  [/\bopen it without adapters\b/g, "drop --lora"],
  [/\boverrideTensors\b/g, "--override-tensor"],
  [/\bcpuExperts\b/g, "--n-cpu-moe"],
  [/\bexpertSlots: got 0\./g, "--hot-fraction: got 0."],
  [/\bexpertSlots\b/g, "--expert-slots"],
  [/\bchatTemplate\b/g, "--chat-template"],
  [/\bmemoryBytes\b/g, "--memory"],
  [/\bramBytes\b/g, "--ram"],
  [/\bdraftTokens\b/g, "--draft-tokens"],
  [/\bmaxTokens\b/g, "-n"],
  [/\blogitBias\b/g, "--logit-bias"],
  [/\bsaveBase\b/g, "--save-base"],
  // An option's name at the start of a message.
  [
    /^(threads|level|backend|weights|kv|device|context|rate|acceptance|pooling|parallel|tolerance|layers|tokens|tensor type): (?=got|")/,
    "--$1: ",
  ],
  [/^--tensor type: /, "--tensor-type: "],
];

export function inFlags(message: string): string {
  return words.reduce((text, [name, flag]) => text.replace(name, flag), message);
}
