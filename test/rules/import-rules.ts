// Who may import whom in src/: the table that imports.test.ts enforces, and the one list of it.
//
// The flow is base -> dtypes -> graph -> models -> engine, with formats, tokenizers, chat, kernels and backends beside it; the
// composition roots at the top of src/ are the only place where all of it meets.

/** Something of src/ that may be imported: a folder ("base"), or one file ("backends/backend.ts"). */
export interface Allowed {
  readonly path: string;
  /** Only `import type`: nothing of it is there at run time. */
  readonly typesOnly: boolean;
}

export interface Rule {
  /**
   * A folder of src/, or a file at its top; of a folder and one in it, the inner one's rule counts. Files under one rule
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
    of: "chat",
    may: all("base"),
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
    may: [...all("base", "dtypes", "graph", "kernels"), ...types("platform/platform.ts")],
    npm: [],
    apart: true,
    why: "a backend runs a graph, whatever model it came from, and works without any other backend",
  },
  {
    of: "engine",
    may: [
      ...all("base", "dtypes", "graph", "models", "tokenizers", "chat", "profile"),
      ...all("limits"),
      ...types("api.ts", "backends/backend.ts", "platform/platform.ts"),
    ],
    npm: [],
    why: "the engine is handed a backend and a thread; choosing them is the composition roots' business",
  },
  {
    of: "limits",
    may: all("base", "dtypes", "graph", "models"),
    npm: [],
    why: "what the hardware allows is arithmetic: it measures nothing and runs nothing",
  },
  {
    of: "profile",
    may: [
      ...all("base", "dtypes", "graph", "limits"),
      ...all("backends/backend.ts"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "where the time went is arithmetic on what was recorded: it measures nothing and runs nothing",
  },
  {
    of: "tune",
    may: [
      ...all("base", "dtypes", "graph", "kernels", "backends", "limits"),
      ...types("api.ts", "platform/platform.ts", "tune.ts"),
    ],
    npm: [],
    why: "tuning measures kernels on a backend; it needs no model's weights and no engine",
  },
  {
    of: "tools/perplexity",
    may: [...all("base", "engine/logprob-rows.ts"), ...types("api.ts", "platform/platform.ts")],
    npm: [],
    why: "a tool reads and writes what it is given; opening models and files is its composition root's business",
  },
  {
    of: "tools/convert",
    may: all("base", "dtypes", "formats", "models", "tokenizers"),
    npm: [],
    why: "a conversion is planned and written from an open model file into a sink; no engine, no platform",
  },
  {
    of: "tools/quantize",
    may: [
      ...all("base", "dtypes", "formats", "kernels"),
      ...types("api.ts", "platform/platform.ts"),
    ],
    npm: [],
    why: "a quantization is planned and computed from an open model file into a sink, on threads that it is given",
  },
  {
    of: "catalog",
    may: all("base", "platform/download.ts"),
    npm: [],
    why: "finding and downloading files needs a platform and no model; hub-api.ts asks the hub, without its package",
  },
  {
    of: "cli",
    may: all("index.ts", "serve.ts", "catalog", "platform", "base/by-name.ts"),
    npm: ["commander"],
    why: "a face uses what every user of the package can use: the public API",
  },
  {
    of: "sessions",
    may: [...all("base", "platform/database.ts"), ...types("api.ts")],
    npm: ["zod"],
    why: "conversations need a database and somebody who answers; which ones, the server says",
  },
  {
    of: "server",
    may: all("index.ts", "sessions", "platform/database.ts", "base/by-name.ts"),
    npm: ["hono", "@hono/node-server", "zod"],
    why: "a face uses what every user of the package can use: the public API",
  },
  {
    of: "serve.ts",
    may: [...all("base/by-name.ts", "index.ts", "server"), ...types("platform/database.ts")],
    npm: [],
    why: "the server's composition root: models, routes and a socket meet here",
  },
  {
    of: "api",
    may: types("base", "limits"),
    npm: [],
    why: "the public types are types; api.ts hands them to everybody else",
  },
  {
    of: "api.ts",
    may: types("api", "base", "limits"),
    npm: [],
    why: "the public types are types",
  },
  {
    of: "index.ts",
    may: [
      ...all("base/errors.ts", "open.ts", "bench.ts", "machine.ts", "limits-report.ts", "tune.ts"),
      ...all("gpu.ts", "native.ts", "perplexity.ts"),
      ...all("convert.ts", "quantize.ts", "quantize-report.ts", "verify.ts"),
      ...all("model-fit.ts", "speeds.ts"),
      ...types("api.ts", "limits", "tune"),
    ],
    npm: [],
    why: "the public API is a list of names, nothing else",
  },
  {
    of: "open.ts",
    may: [
      ...all("base", "platform", "catalog/resolve.ts", "dtypes", "formats", "models", "engine"),
      ...all("compose.ts", "machine.ts"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "the caller's composition root; a backend belongs to the engine's thread",
  },
  {
    of: "perplexity.ts",
    may: [...all("base/errors.ts", "platform", "open.ts", "tools/perplexity"), ...types("api.ts")],
    npm: [],
    why: "a composition root: a model, a text and a base file, put before the tool",
  },
  {
    of: "convert.ts",
    may: [
      ...all("base/errors.ts", "platform", "formats", "compose.ts", "open.ts", "tools/convert"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "a composition root: an open model, put before the tool, and a file for its output",
  },
  {
    of: "quantize.ts",
    may: [
      ...all("base", "platform", "formats", "models", "open.ts", "tools/quantize"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "a composition root: an open model and threads, put before the tool, and a file for its output",
  },
  {
    of: "quantize-report.ts",
    may: [...all("limits-report.ts", "machine.ts", "perplexity.ts"), ...types("api.ts")],
    npm: [],
    why: "what limits and perplexity say of two models, put side by side",
  },
  {
    of: "quantize-thread.ts",
    may: all("platform", "tools/quantize"),
    npm: [],
    why: "a quantizing thread's entry; nothing imports it, the platform starts it",
  },
  {
    of: "tune.ts",
    may: [
      ...all("base", "native.ts", "platform", "tune"),
      ...all("tune-gpu.ts", "tune-matmul.ts", "tune-store.ts"),
    ],
    npm: [],
    why: "tuning loads what it measures when it is asked to",
  },
  {
    of: "tune-matmul.ts",
    may: [
      ...all("base", "native.ts", "open.ts", "platform", "tune", "tune-store.ts"),
      ...types("backends/cpu/native/native.ts", "kernels", "tune.ts"),
    ],
    npm: [],
    why: "a composition root of its own: products on a backend, without a model",
  },
  {
    of: "tune-gpu.ts",
    may: [
      ...all("base/errors.ts", "platform", "backends/webgpu/device.ts", "tune"),
      ...all("tune-matmul.ts", "tune-store.ts"),
      ...types("tune.ts"),
    ],
    npm: [],
    why: "a composition root of its own: products on a GPU, without a model",
  },
  {
    of: "tune-store.ts",
    may: [
      ...all("tune"),
      ...types(
        "backends/cpu/native/native.ts",
        "backends/webgpu/device.ts",
        "platform/platform.ts",
      ),
    ],
    npm: [],
    why: "where times are kept, for whoever makes or uses them",
  },
  {
    of: "native.ts",
    may: [
      ...all("base", "platform", "backends/cpu/native/native.ts", "backends/cpu/native/levels.ts"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "a composition root: this platform's way to run machine code, and the lowerings where it has one",
  },
  {
    of: "gpu.ts",
    may: [
      ...all("base/errors.ts", "platform", "backends/webgpu/device.ts", "tune"),
      ...types("api.ts", "limits"),
    ],
    npm: [],
    why: "a composition root: this platform's GPU, asked what it can do, and its measurement, remembered or made",
  },
  {
    of: "machine.ts",
    may: [...all("gpu.ts", "native.ts", "platform", "limits", "tune"), ...types("api.ts")],
    npm: [],
    why: "a composition root: this machine's measurement, remembered or made",
  },
  {
    of: "speeds.ts",
    may: [...all("platform"), ...types("api.ts")],
    npm: [],
    why: "a composition root: what runs reached here, remembered",
  },
  {
    of: "model-fit.ts",
    may: [
      ...all("base/errors.ts", "platform", "limits", "limits-report.ts", "machine.ts", "open.ts"),
      ...all("speeds.ts"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "a composition root: headers, limits and remembered speeds, put together for a list of models",
  },
  {
    of: "limits-report.ts",
    may: [...all("limits", "limits-compose.ts"), ...types("api.ts")],
    npm: [],
    why: "limits are worked out when somebody asks; what that needs is loaded then",
  },
  {
    of: "limits-compose.ts",
    may: [
      ...all("base", "dtypes", "graph", "models", "limits", "platform", "catalog"),
      ...all("gpu.ts", "machine.ts", "measured-choices.ts", "open.ts"),
      ...types("api.ts", "limits-report.ts"),
    ],
    npm: [],
    why: "a composition root: a model's header and a device, put before the arithmetic",
  },
  {
    of: "measure-thread.ts",
    may: all("platform", "tune"),
    npm: [],
    why: "a measuring thread's entry; nothing imports it, the platform starts it",
  },
  {
    of: "bench.ts",
    may: [...all("bench-matmul.ts"), ...types("api.ts")],
    npm: [],
    why: "a benchmark loads what it measures when it is asked to",
  },
  {
    of: "bench-matmul.ts",
    may: [
      ...all("base", "native.ts", "platform", "dtypes", "graph", "backends", "tune/product.ts"),
      ...types("api.ts"),
    ],
    npm: [],
    why: "a composition root of its own: one op on a backend, without a model",
  },
  {
    of: "compose.ts",
    may: [...all("base", "tokenizers", "chat"), ...types("formats")],
    npm: [],
    why: "what both composition roots put together in the same way",
  },
  {
    of: "engine-thread.ts",
    may: [
      ...all("base", "platform", "dtypes", "formats", "backends", "engine", "profile"),
      ...all("compose.ts", "choose-backend.ts", "measured-choices.ts"),
      ...all("native.ts", "tune/default-notes.ts", "tune/tune-target.ts"),
      ...types("kernels/target.ts", "tune/use.ts"),
    ],
    npm: [],
    why: "the engine thread's composition root; nothing imports it, the platform starts it",
  },
  {
    of: "text-thread.ts",
    may: [...all("platform", "formats", "engine/text-host.ts", "compose.ts"), ...types("engine")],
    npm: [],
    why: "a text thread's composition root: a tokenizer and a template, no weights; the platform starts it",
  },
  {
    of: "tools/verify",
    may: [...all("base", "dtypes", "graph"), ...types("backends/backend.ts")],
    npm: [],
    why: "a tool is handed backends and a plan; making them is its composition root's business",
  },
  {
    of: "verify.ts",
    may: [...all("verify-compose.ts"), ...types("api.ts", "tools/verify")],
    npm: [],
    why: "a verification loads what it compares when it is asked to",
  },
  {
    of: "verify-compose.ts",
    may: [
      ...all(
        "base",
        "platform",
        "dtypes",
        "graph",
        "formats",
        "models",
        "backends",
        "tools/verify",
      ),
      ...all("compose.ts", "choose-backend.ts", "native.ts", "open.ts", "engine/memory.ts"),
      ...types("api.ts", "verify.ts"),
    ],
    npm: [],
    why: "a composition root: a model's file and backends, put before the tool",
  },
  {
    of: "choose-backend.ts",
    may: [...all("base", "backends"), ...types("platform/platform.ts")],
    npm: [],
    why: "which backends compute a model, for the composition roots that hold them",
  },
  {
    of: "measured-choices.ts",
    may: [
      ...all("limits", "machine.ts", "native.ts", "platform/current.ts", "tune", "tune-store.ts"),
      ...types(
        "backends/cpu/native/native.ts",
        "backends/webgpu/device.ts",
        "engine/engine.ts",
        "formats/model-file.ts",
        "platform/platform.ts",
      ),
    ],
    npm: [],
    why: "what measurements decide at load, in a file that is loaded when there are any",
  },
  {
    of: "worker.ts",
    may: [
      ...all("platform", "engine-thread.ts", "compute-thread.ts", "measure-thread.ts"),
      ...all("quantize-thread.ts", "text-thread.ts"),
    ],
    npm: [],
    why: "every worker's entry in a browser: it loads the thread's own; nothing imports it, the platform starts it",
  },
  {
    of: "compute-thread.ts",
    may: all("backends", "platform"),
    npm: [],
    why: "a compute thread's entry; nothing imports it, the platform starts it",
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
