// Who may import whom in src/ and apps/: the table that imports.test.ts enforces, and the one list of it.
//
// From the ground up: base -> dtypes -> graph -> models -> engine, with formats, tokenizers, chat, kernels and backends beside it.
// Above them machine -> load -> tune -> open.ts and threads/ -> tools/ -> index.ts: composition roots, which only
// put things together. On that stand the apps, which use the public API. No import runs up, and none in a circle; imports.test.ts checks it.

/** Something that may be imported: a folder of src/ ("base"), a file there ("backends/backend.ts"), or an app ("apps/server"). */
export interface Allowed {
  readonly path: string;
  /** Only `import type`: nothing of it is there at run time. */
  readonly typesOnly: boolean;
}

export interface Rule {
  /**
   * A folder of src/, a file at its top, or an app; of a folder and one in it, the inner one's rule counts. Files under one rule
   * may import each other, unless `apart`.
   */
  readonly of: string;
  readonly may: readonly Allowed[];
  readonly npm: readonly string[];
  /** The folder's subfolders must not import each other. */
  readonly apart?: boolean;
  readonly why: string;
}

const all = (...paths: string[]): Allowed[] => paths.map((path) => ({ path, typesOnly: false }));
const types = (...paths: string[]): Allowed[] => paths.map((path) => ({ path, typesOnly: true }));

export const rules: readonly Rule[] = [
  {
    of: "base",
    may: [],
    npm: [],
    why: "everything stands on base, so base stands on nothing",
  },
  {
    of: "options",
    may: all("base"),
    npm: [],
    why: "an option is a row of data: whoever has a name, a range or a sentence for it reads the row",
  },
  {
    of: "platform",
    may: all("base"),
    npm: ["webgpu"],
    why: "the edge to the machine knows nothing of models, so that it can be replaced as a whole",
  },
  {
    of: "dtypes",
    may: all("base"),
    npm: [],
    why: "a tensor type is arithmetic on bytes",
  },
  {
    of: "formats",
    may: [...all("base", "dtypes"), ...types("platform/platform.ts")],
    npm: [],
    why: "a format reads from whatever ByteSource it is given: a file, HTTP, a browser File",
  },
  {
    of: "tokenizers",
    may: all("base"),
    npm: [],
    why: "text to ids needs a vocabulary and no model",
  },
  {
    of: "grammar",
    may: [...all("base"), ...types("tokenizers/tokenizer.ts", "api")],
    npm: [],
    why: "which tokens may come next follows from a grammar and a vocabulary; no model, no engine",
  },
  {
    of: "chat",
    may: [...all("base"), ...types("api")],
    npm: ["@huggingface/jinja"],
    why: "a conversation to text needs a template and no model",
  },
  {
    of: "graph",
    may: all("base", "dtypes"),
    npm: [],
    why: "the graph is data: it knows no model and no backend",
  },
  {
    of: "models",
    may: all("base", "dtypes", "graph"),
    npm: [],
    why: "an architecture builds a graph and never asks who will run it",
  },
  {
    of: "kernels/ir",
    may: all("base"),
    npm: [],
    why: "the IR is a language: it knows no tensors, no dtypes and no target",
  },
  {
    of: "kernels/asm",
    may: [],
    npm: [],
    why: "an assembler knows bytes and instructions, not what they are for",
  },
  {
    of: "kernels/lower",
    may: all("base", "kernels/ir", "kernels/asm"),
    npm: [],
    why: "a lowering translates any kernel, whatever it computes",
  },
  {
    of: "kernels/ops",
    may: [...all("base", "dtypes", "kernels/ir"), ...types("kernels/target.ts")],
    npm: [],
    why: "a kernel is described once, for every target",
  },
  {
    of: "kernels",
    may: all("base", "dtypes", "kernels"),
    npm: [],
    why: "kernels work on bytes that someone else has laid out: no graph, no backend",
  },
  {
    of: "backends",
    may: [...all("base", "dtypes", "graph", "kernels"), ...types("platform/platform.ts", "api")],
    npm: [],
    apart: true,
    why: "a backend runs a graph, whatever model it came from, and works without any other backend",
  },
  {
    of: "engine",
    may: [
      ...all("base", "dtypes", "graph", "models", "tokenizers", "grammar", "chat", "profile"),
      ...all("limits", "options"),
      ...types("api", "backends/backend.ts", "platform/block-files.ts", "platform/platform.ts"),
    ],
    npm: [],
    why: "the engine is handed a backend and a thread; choosing them is the business of src/threads and src/load",
  },
  {
    of: "limits",
    may: [...all("base", "dtypes", "graph", "models"), ...types("api")],
    npm: [],
    why: "what the hardware allows is arithmetic: it measures nothing and runs nothing",
  },
  {
    of: "profile",
    may: [
      ...all("base", "dtypes", "graph", "limits"),
      ...all("backends/backend.ts"),
      ...types("api"),
    ],
    npm: [],
    why: "where the time went is arithmetic on what was recorded: it measures nothing and runs nothing",
  },
  {
    of: "api",
    may: types("base", "dtypes/held-types.ts", "dtypes/kv-types.ts", "options"),
    npm: [],
    why: "the public types are types, on which the rooms above may stand",
  },
  {
    of: "catalog",
    may: all("base", "platform/download.ts"),
    npm: [],
    why: "finding and downloading files needs a platform and no model; hub-api.ts asks the hub, without its package",
  },
  {
    of: "machine",
    may: [...all("base", "kernels", "backends", "limits", "platform"), ...types("api")],
    npm: [],
    why: "what this machine can do is measured with kernels of our own, without a model",
  },
  {
    of: "load",
    may: [
      ...all("base", "platform", "catalog/resolve.ts", "formats", "tokenizers", "chat", "backends"),
      ...all("models"),
      ...types("api"),
    ],
    npm: [],
    why: "from a model's name to its open file, what that contains, its tokenizer and the backend that runs it",
  },
  {
    of: "tune",
    may: [
      ...all(
        "base",
        "dtypes",
        "graph",
        "kernels",
        "backends",
        "limits",
        "machine",
        "load",
        "platform",
      ),
      ...all("formats/half-weights.ts", "models/build.ts"),
      ...types("api", "formats/model-file.ts"),
    ],
    npm: [],
    why: "tuning measures kernels on a backend, and tokens of a model on a GPU; it needs no engine",
  },
  {
    of: "open.ts",
    may: [
      ...all("base", "options", "platform", "dtypes", "engine", "load/locate.ts", "machine"),
      ...types("api"),
    ],
    npm: [],
    why: "the caller's composition root; models, formats and backends belong to the engine's thread",
  },
  {
    of: "threads",
    may: [
      ...all("base", "platform", "dtypes", "formats", "backends", "engine", "profile", "load"),
      ...all("machine", "tune", "tools/quantize/thread.ts"),
      ...types("kernels/target.ts"),
    ],
    npm: [],
    why: "the entry points of threads, and composition roots there; nothing imports them, the platform starts them",
  },
  {
    of: "tools/inspect",
    may: [
      ...all("base", "dtypes/kv-types.ts", "engine/arguments.ts", "engine/memory.ts"),
      ...all("formats/half-weights.ts", "load", "models"),
      ...types("api", "formats/model-file.ts"),
    ],
    npm: [],
    why: "a composition root: an open model file, put before what reads headers",
  },
  {
    of: "tools/perplexity",
    may: [...all("base", "engine/logprob-rows.ts"), ...types("api", "platform/platform.ts")],
    npm: [],
    why: "a tool reads and writes what it is given; opening models and files is its api.ts's business",
  },
  {
    of: "tools/perplexity/api.ts",
    may: [
      ...all("base", "platform", "tools/inspect/api.ts", "open.ts", "tools/perplexity"),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: a model, a text and a base file, put before the tool",
  },
  {
    of: "tools/cache",
    may: all(
      "base",
      "platform",
      "engine/tiers/erase.ts",
      "engine/tiers/owners.ts",
      "engine/tiers/segment.ts",
      "engine/tiers/state-about.ts",
    ),
    npm: [],
    why: "a composition root: the platform's folders, put before what reads and erases stored state",
  },
  {
    of: "tools/convert",
    may: all("base", "dtypes", "formats", "models", "tokenizers"),
    npm: [],
    why: "a conversion is planned and written from an open model file into a sink; no engine, no platform",
  },
  {
    of: "tools/convert/api.ts",
    may: [...all("base", "platform", "formats", "load", "tools/convert"), ...types("api")],
    npm: [],
    why: "a composition root: an open model, put before the tool, and a file for its output",
  },
  {
    of: "tools/quantize",
    may: [...all("base", "dtypes", "formats", "kernels"), ...types("api", "platform/platform.ts")],
    npm: [],
    why: "a quantization is planned and computed from an open model file into a sink, on threads that it is given",
  },
  {
    of: "tools/quantize/api.ts",
    may: [
      ...all("base", "platform", "formats", "models", "load", "open.ts", "tools/quantize"),
      ...all("tools/convert/as-gguf.ts", "tools/inspect/api.ts"),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: an open model (as GGUF, whatever its format) and threads, put before the tool, and a file for its output",
  },
  {
    of: "tools/quantize/report.ts",
    may: [
      ...all("base", "tools/limits/api.ts", "machine/machine.ts", "tools/perplexity/api.ts"),
      ...types("api"),
    ],
    npm: [],
    why: "what limits and perplexity say of two models, put side by side",
  },
  {
    of: "tools/sparsify",
    may: [...all("base", "dtypes", "graph", "formats"), ...types("backends/backend.ts")],
    npm: [],
    why: "a tool is handed a loaded backend and windows of tokens; loading is its api.ts's business",
  },
  {
    of: "tools/sparsify/api.ts",
    may: [
      ...all("base", "platform", "dtypes", "graph", "formats", "models", "backends", "load"),
      ...all("machine/native.ts", "engine/memory.ts", "tools/sparsify"),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: a model in a backend and a text, put before the tool, and a file for its output",
  },
  {
    of: "tools/verify",
    may: [...all("base", "dtypes", "graph"), ...types("api", "backends/backend.ts")],
    npm: [],
    why: "a tool is handed backends and a plan; making them is compose.ts's business",
  },
  {
    of: "tools/verify/api.ts",
    may: [...all("tools/verify"), ...types("api")],
    npm: [],
    why: "a verification loads what it compares when it is asked to",
  },
  {
    of: "tools/verify/compose.ts",
    may: [
      ...all("base", "platform", "dtypes", "graph", "formats", "models", "backends", "load"),
      ...all("machine/native.ts", "engine/memory.ts", "tools/verify"),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: a model's file and backends, put before the tool",
  },
  {
    of: "tools/limits",
    may: [
      ...all("base", "dtypes", "formats", "graph", "models", "limits", "platform", "catalog"),
      ...all("engine/memory.ts", "machine", "load", "tools/inspect/api.ts"),
      ...all("tune/measured-choices.ts"),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: headers, this machine and remembered speeds, put before the arithmetic of src/limits",
  },
  {
    of: "tools/bench",
    may: [
      ...all(
        "base",
        "platform",
        "dtypes",
        "graph",
        "backends",
        "machine/native.ts",
        "kernels/features.ts",
        "kernels/matmul-variants.ts",
        "kernels/ops/matmul/row-tiles.ts",
        "kernels/target.ts",
        "tune/matmul-graph.ts",
      ),
      ...types("api"),
    ],
    npm: [],
    why: "a composition root: one op on a backend, without a model",
  },
  {
    of: "index.ts",
    may: [
      ...all("base", "dtypes/held-types.ts", "dtypes/kv-types.ts", "models/table.ts", "open.ts"),
      ...all("models/embed-prefixes.ts", "chat/answer", "engine/generation.ts"),
      ...all("engine/tools/schema-check.ts"),
      ...all("tools/inspect/api.ts", "machine", "tune/api.ts"),
      ...all(
        "tools/cache/api.ts",
        "tools/bench/api.ts",
        "tools/convert/api.ts",
        "tools/limits",
        "tools/perplexity/api.ts",
      ),
      ...all("tools/quantize/api.ts", "tools/quantize/report.ts", "tools/sparsify/api.ts"),
      ...all("tools/verify/api.ts"),
      ...types("api", "limits", "tune"),
    ],
    npm: [],
    why: "the public API is a list of names, nothing else",
  },
  {
    of: "apps/sessions",
    may: [...all("base", "options", "platform/database.ts"), ...types("index.ts")],
    npm: ["zod"],
    why: "conversations need a database and somebody who answers; which ones, the server says",
  },
  {
    of: "apps/batch",
    may: [...all("base", "platform/database.ts")],
    npm: [],
    why: "batches need a database, a folder and somebody who answers; which ones, the server says",
  },
  {
    of: "apps/server",
    may: [
      ...all("index.ts", "apps/sessions", "apps/batch", "platform/database.ts", "base", "options"),
      ...all("platform/node-socket-file.ts", "platform/node-tls.ts"),
      ...types("catalog/derived.ts", "platform/node-static.ts"),
    ],
    npm: ["hono", "@hono/node-server", "zod"],
    why: "a face uses what every user of the package can use, the public API, and the helpers of base",
  },
  {
    of: "apps/cluster",
    may: all("index.ts", "base", "platform", "apps/batch"),
    npm: ["@nats-io/nats-core", "@nats-io/transport-node", "@nats-io/jetstream"],
    why: "a model on other machines is a model: servers use it as any other; errors travel as they do between threads",
  },
  {
    of: "apps/mcp",
    may: [
      ...all("index.ts", "base", "options", "platform/node-trusted-path.ts"),
      ...types("platform/node-lines.ts"),
    ],
    npm: [
      "@modelcontextprotocol/sdk/client/index.js",
      "@modelcontextprotocol/sdk/client/streamableHttp.js",
      "@modelcontextprotocol/sdk/server/index.js",
      "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js",
      "@modelcontextprotocol/sdk/types.js",
      "zod",
    ],
    why: "tools of other programs and for them; the machine's part of it is handed in",
  },
  {
    of: "apps/cli",
    may: all(
      "index.ts",
      "apps/server/serve.ts",
      "apps/server/host-names.ts",
      "apps/batch",
      "catalog",
      "apps/cluster",
      "apps/mcp",
      "platform",
      "base",
      "options",
    ),
    npm: ["commander"],
    why: "a face uses what every user of the package can use, the public API, and the helpers of base",
  },
  {
    of: "apps/web",
    may: [
      ...all("index.ts", "base", "options", "limits", "grammar", "tools/perplexity/picture.ts"),
      ...all("tools/limits/model-facts.ts", "apps/cluster", "apps/sessions/calls.ts"),
      ...types("apps/server", "apps/sessions"),
    ],
    npm: ["dompurify", "highlight.js", "katex", "marked", "preact"],
    why: "the page is a client of the server, whose types it shares; limits, schemas and pictures are computed in the page by the library's own code",
  },
];

/** Globals of a machine or a browser that only src/platform may name. */
export const platformGlobals: readonly string[] = [
  "process",
  "navigator",
  "Worker",
  "fetch",
  "Buffer",
  "XMLHttpRequest",
];
