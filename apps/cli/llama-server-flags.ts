// What becomes of llama-server's flags, a row each, beside those that `lantern serve` has under the same name: other names of flags of
// ours, flags that stand for several, flags without a meaning here (accepted, with a line that says why), and flags that ask for
// something that is not there (refused, with the reason: an answer would be another one). flag-names.ts translates names for every
// command, hidden-flags.ts adds the rest to serve. test/cli/llama-server-flags.test.ts holds it against llama-server's list.

interface LlamaFlag {
  /** All its names; sentences use the first long one. */
  readonly names: string;
  /** Its value, as commander writes it: "<n>", "[when]"; none: it takes none. */
  readonly value?: string;
  /** Our name of it. */
  readonly ours?: string;
  /** The flags that it stands for. */
  readonly stands?: readonly string[];
  /** Why it changes nothing here. */
  readonly note?: string;
  /** Why it cannot be honoured, and what to do instead. */
  readonly refused?: string;
  /** Values that ask for nothing: no note and no refusal. */
  readonly usual?: RegExp;
}

const named = (ours: string, ...names: readonly string[]): LlamaFlag[] =>
  names.map((name) => ({ names: name, ours }));
const oneModel = (repo: string, ...more: readonly string[]): readonly string[] => [
  "--hf-repo",
  `ggml-org/${repo}-GGUF`,
  ...more,
];
const fillServer = ["--port", "8012", "--cache-reuse", "256"];
const largeServer = ["--port", "8013", "--parallel", "2", "--ctx-size", "131072"];
const plainSampling = ["--temp", "1", "--top-p", "1", "--top-k", "0", "--min-p", "0.01"];
const smallDraft = ["--hf-repo-draft", "ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF"];

const onePool = "one pool of threads computes prompts and tokens, as --threads and --cpu-mask say";
const ofDraft = "the draft model's threads are bound and scheduled as the model's";
const wholeWeights = "weights are read into memory of their own, as --mmap and --ram say";
const ownLog =
  "the log goes to standard error: redirect it, and choose what it has with --log-level";
const oneGpu = "one GPU is used: --gpu-layers says for how many layers";
const fits = "layers are put on the GPU as far as they fit unless --gpu-layers says otherwise";
const pagedCache =
  "all sequences share one paged cache that grows with its use (docs/use/cache.md)";
const oneTable =
  "n-grams are looked up in one table that needs no sizes; --spec-draft-n-max limits a draft";
const noImages = "images and audio are not read. Leave it out, and use the model for text";
const tools = "the server runs no tools of its own. Tools of MCP servers: --mcp-config FILE";
const ownPage = "the web app keeps its settings in the browser";
const control = "control vectors are not supported. Leave it out, or use a LoRA adapter (--lora)";

export const llamaServerFlags: readonly LlamaFlag[] = [
  // Other names.
  ...named("--gpu-layers", "-ngl", "--n-gpu-layers"),
  ...named("--parallel", "-np"),
  ...named("--override-tensor", "-ot"),
  ...named("--cpu-moe", "-cmoe"),
  ...named("--n-cpu-moe", "-ncmoe"),
  ...named("--model-draft", "-md", "--spec-draft-model"),
  ...named("--threads-draft", "-td", "--spec-draft-threads"),
  ...named("--gpu-layers-draft", "-ngld", "--spec-draft-ngl", "--n-gpu-layers-draft"),
  ...named("--cpu-range", "-Cr"),
  ...named("--cache-type-k", "-ctk"),
  ...named("--cache-type-v", "-ctv"),
  ...named("--json-schema-file", "-jf"),
  ...named("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n"),
  ...named("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
  ...named("--spec-draft-p-min", "--draft-p-min"),
  ...named("--embeddings", "--embedding"),
  ...named("--reranking", "--rerank"),
  ...named("--keep-alive", "--sleep-idle-seconds"),
  ...named("--predict", "--n-predict"),
  ...named("--batch-size", "-b"),
  ...named("--ubatch-size", "-ub"),
  ...named("--temp", "--temperature"),
  ...named("--typical", "--typical-p"),
  ...named("--top-nsigma", "--top-n-sigma"),
  ...named("--sampler-seq", "--sampling-seq"),
  ...named("--logit-bias", "-l"),
  ...named("--cache-ram", "-cram"),
  ...named("--hf-repo", "-hf", "-hfr"),
  ...named("--hf-file", "-hff"),
  ...named("--hf-token", "-hft"),
  ...named("--hf-repo-draft", "-hfd", "-hfrd", "--spec-draft-hf"),
  ...named("--model-url", "-mu"),
  ...named("--device", "-dev"),
  ...named("--timeout", "-to"),
  ...named("--reasoning", "-rea"),
  ...named("--web", "--ui", "--webui"),
  ...named("--no-web", "--no-ui", "--no-webui"),
  ...named("--cors", "--cors-origins"),
  ...named("--mcp-config", "--mcp-servers-config"),
  ...named("--verbose", "-v", "--log-verbose"),
  ...named("--verbosity", "-lv", "--log-verbosity"),
  ...named("--help", "--usage"),
  // Several flags in one.
  { names: "--log-disable", stands: ["--log-level", "error"] },
  {
    names: "--embd-gemma-default",
    stands: oneModel(
      "embeddinggemma-300M-qat-q4_0",
      "--port",
      "8011",
      "-c",
      "2048",
      "--embeddings",
    ),
  },
  ...["1.5b", "3b", "7b"].map((size) => ({
    names: `--fim-qwen-${size}-default`,
    stands: oneModel(`Qwen2.5-Coder-${size.toUpperCase()}-Q8_0`, ...fillServer),
  })),
  ...["7b", "14b"].map((size) => ({
    names: `--fim-qwen-${size}-spec`,
    stands: oneModel(`Qwen2.5-Coder-${size.toUpperCase()}-Q8_0`, ...smallDraft, ...fillServer),
  })),
  {
    names: "--fim-qwen-30b-default",
    stands: oneModel("Qwen3-Coder-30B-A3B-Instruct-Q8_0", ...fillServer),
  },
  ...["20b", "120b"].map((size) => ({
    names: `--gpt-oss-${size}-default`,
    stands: oneModel(`gpt-oss-${size}`, ...largeServer, ...plainSampling),
  })),
  ...["4b", "12b"].map((size) => ({
    names: `--vision-gemma-${size}-default`,
    refused: `${noImages}: -hf ggml-org/gemma-3-${size}-it-qat-GGUF`,
  })),
  // Without a meaning here.
  { names: "-tb --threads-batch", value: "<n>", note: onePool },
  { names: "-Cb --cpu-mask-batch", value: "<m>", note: onePool },
  { names: "-Crb --cpu-range-batch", value: "<lo-hi>", note: onePool },
  { names: "--cpu-strict-batch", value: "<0|1>", note: onePool },
  ...["--prio", "--prio-batch"].map((names) => ({
    ...{ names, value: "<n>", usual: /^0$/ },
    note: "threads have the priority of the process: start it with nice",
  })),
  ...["--poll", "--poll-batch"].map((names) => ({
    ...{ names, value: "<n>" },
    note: "how long threads wait busily is measured on each machine",
  })),
  {
    names: "--swa-full",
    note: "layers with a window keep what later prompts can use without it",
  },
  {
    names: "-fa --flash-attn",
    value: "[when]",
    note: "attention is always computed in blocks, without a matrix of scores in memory",
  },
  { names: "--perf --no-perf", note: "timings are always measured, and cost nothing" },
  { names: "-e --escape --no-escape", note: "the server gets no prompts from its flags" },
  {
    names: "-kvo --kv-offload -nkvo --no-kv-offload",
    note: "the cache of a layer is where the layer is: --gpu-layers",
  },
  { names: "--repack -nr --no-repack", note: "weights are packed as the kernels read them" },
  { names: "--no-host", note: "there are no host buffers between memory and the kernels" },
  { names: "-dt --defrag-thold", value: "<n>", note: pagedCache },
  { names: "--mlock", note: wholeWeights },
  { names: "-dio --direct-io -ndio --no-direct-io", note: wholeWeights },
  { names: "-lm --load-mode", value: "<mode>", note: wholeWeights },
  { names: "-sm --split-mode", value: "<mode>", note: oneGpu, usual: /^(none|layer)$/ },
  { names: "-ts --tensor-split", value: "<shares>", note: oneGpu },
  { names: "-mg --main-gpu", value: "<n>", note: oneGpu, usual: /^0$/ },
  { names: "-fit --fit", value: "[when]", note: fits, usual: /^on$/ },
  { names: "-fitt --fit-target", value: "<mib>", note: fits },
  { names: "-fitc --fit-ctx", value: "<n>", note: fits },
  {
    names: "--check-tensors",
    note: 'logits that are no numbers are an error anyway; "lantern verify" checks a file',
  },
  { names: "--log-file", value: "<path>", note: ownLog },
  { names: "--log-colors", value: "[when]", note: ownLog },
  { names: "--log-prefix --no-log-prefix", note: ownLog },
  { names: "--log-timestamps --no-log-timestamps", note: ownLog },
  { names: "--log-prompts-dir", value: "<path>", note: "prompts are never written to a log" },
  ...[
    "--spec-draft-type-k -ctkd --cache-type-k-draft",
    "--spec-draft-type-v -ctvd --cache-type-v-draft",
  ].map((names) => ({
    names,
    value: "<type>",
    note: "the draft model's cache has the model's type",
  })),
  { names: "-bs --backend-sampling", note: "tokens are sampled on the processor" },
  {
    names: "--spec-draft-backend-sampling --no-spec-draft-backend-sampling",
    note: "drafts are sampled on the processor",
  },
  { names: "-lcs --lookup-cache-static", value: "<path>", note: oneTable },
  { names: "-lcd --lookup-cache-dynamic", value: "<path>", note: oneTable },
  {
    names: "-ctxcp --ctx-checkpoints --swa-checkpoints",
    value: "<n>",
    note: "checkpoints are made at the ends of prompts and answers",
  },
  {
    names: "-cms --checkpoint-min-step",
    value: "<n>",
    note: "checkpoints are made at the ends of prompts and answers",
  },
  { names: "-kvu --kv-unified -no-kvu --no-kv-unified", note: pagedCache },
  {
    names: "--cache-idle-slots --no-cache-idle-slots",
    note: `${pagedCache}, with copies in --cache-ram`,
  },
  {
    names: "-cb --cont-batching -nocb --no-cont-batching",
    note: "requests always share batches; --parallel 1 answers one after the other",
  },
  {
    names: "-sps --slot-prompt-similarity",
    value: "<x>",
    note: `${pagedCache}: a prompt finds what is known of it in any slot`,
  },
  {
    names: "--mmproj-auto --no-mmproj --no-mmproj-auto",
    note: "no projector is ever loaded: images are not read",
  },
  {
    names: "--mmproj-offload --no-mmproj-offload",
    note: "no projector is ever loaded: images are not read",
  },
  ...[
    "-mmdev --mmproj-device",
    "--image-min-tokens",
    "--image-max-tokens",
    "--mtmd-batch-max-tokens",
  ].map((names) => ({
    names,
    value: "<n>",
    note: "no projector is ever loaded: images are not read",
  })),
  {
    names: "--media-path",
    value: "<path>",
    note: "images and audio are not read, and neither are files that a request names",
  },
  { names: "--ui-config --webui-config", value: "<json>", note: ownPage },
  { names: "--ui-config-file --webui-config-file", value: "<path>", note: ownPage },
  {
    names: "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy",
    note: "the web app reaches MCP servers through --mcp-config, without a proxy",
  },
  {
    names: "--threads-http",
    value: "<n>",
    note: "connections are answered without threads of their own",
  },
  { names: "--props", note: "settings are changed by flags and requests: POST /props answers so" },
  { names: "--jinja --no-jinja", note: "templates are always Jinja" },
  ...[
    ["--spec-draft-threads-batch -tbd --threads-batch-draft", "<n>"],
    ["--spec-draft-cpu-mask -Cd --cpu-mask-draft", "<m>"],
    ["--spec-draft-cpu-range -Crd --cpu-range-draft", "<lo-hi>"],
    ["--spec-draft-cpu-strict --cpu-strict-draft", "<0|1>"],
    ["--spec-draft-prio --prio-draft", "<n>"],
    ["--spec-draft-poll --poll-draft", "<n>"],
    ["--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft", "<m>"],
    ["--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", "<0|1>"],
    ["--spec-draft-prio-batch --prio-batch-draft", "<n>"],
    ["--spec-draft-poll-batch --poll-batch-draft", "<n>"],
  ].map(([names, value]) => ({ names: names!, value: value!, note: ofDraft })),
  ...[
    ["--spec-draft-override-tensor -otd --override-tensor-draft", "<places>"],
    ["--spec-draft-cpu-moe -cmoed --cpu-moe-draft", ""],
    ["--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", "<n>"],
    ["--spec-draft-device -devd --device-draft", "<devices>"],
  ].map(([names, value]) => ({
    names: names!,
    ...(value !== "" && { value: value! }),
    note: "--gpu-layers-draft says where the draft model is",
  })),
  { names: "--spec-draft-p-split --draft-p-split", value: "<p>", note: "drafts have no branches" },
  ...["mod-n-min", "mod-n-max", "mod-n-match", "size-n", "size-m", "min-hits"]
    .concat(
      ["simple", "map-k", "map-k4v"].flatMap((kind) => [
        `${kind}-size-n`,
        `${kind}-size-m`,
        `${kind}-min-hits`,
      ]),
    )
    .map((name) => ({ names: `--spec-ngram-${name}`, value: "<n>", note: oneTable })),
  {
    names: "--spec-default",
    note: "drafts are made by default wherever they pay: docs/use/speculation.md",
  },
  // What is not there.
  { names: "-cl --cache-list", refused: '"lantern models" lists the models of this machine' },
  { names: "--list-devices", refused: '"lantern devices" lists what this machine computes on' },
  { names: "--completion-bash", refused: "there is no completion for shells" },
  {
    names: "--rpc",
    value: "<servers>",
    refused:
      "llama.cpp's RPC servers cannot be used. Several machines serve together with --cluster (docs/use/cluster.md)",
  },
  { names: "--control-vector", value: "<file>", refused: control },
  { names: "--control-vector-scaled", value: "<files>", refused: control },
  { names: "--control-vector-layer-range", value: "<range>", refused: control },
  {
    names: "-dr --docker-repo",
    value: "<repo>",
    refused:
      "models of Docker's hub cannot be downloaded. Those of Hugging Face can: --hf-repo OWNER/REPO",
  },
  {
    names: "--adaptive-target",
    value: "<p>",
    usual: /^-/,
    refused: "there is no adaptive-p sampler. Use --min-p or --top-p",
  },
  {
    names: "--adaptive-decay",
    value: "<x>",
    note: "there is no adaptive-p sampler that would decay",
  },
  {
    names: "-sp --special",
    refused:
      "special tokens are never part of an answer's text. Requests with return_tokens get their ids",
  },
  {
    names: "--spm-infill",
    refused: "the parts of an infill are always in the order prefix, suffix, middle",
  },
  { names: "-mm --mmproj", value: "<file>", refused: noImages },
  { names: "-mmu --mmproj-url", value: "<url>", refused: noImages },
  { names: "--tools", value: "<names>", refused: tools },
  { names: "--tools-runtime", value: "<option>", refused: tools },
  {
    names: "--mcp-servers-json",
    value: "<json>",
    refused: "MCP servers come from a file. Write it there, and use --mcp-config FILE",
  },
  { names: "-ag --agent", refused: tools },
  { names: "-no-ag --no-agent", note: "the server runs no tools of its own" },
  {
    names: "--skip-chat-parsing",
    refused: "tool calls are always parsed. --reasoning-format none leaves reasoning in the text",
  },
  { names: "--no-skip-chat-parsing", note: "answers are always parsed" },
];
