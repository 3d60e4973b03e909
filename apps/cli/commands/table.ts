// The commands, in the order in which the help shows them. The entries for the list of commands are here; the rest is loaded
// when that command is called, since loading all of them takes ten times as long as one.

import type { CliCommand } from "../command.ts";

export const commands: readonly CliCommand[] = [
  {
    name: "run",
    summary: "continue a text",
    body: async () => (await import("./run.ts")).runCommand,
  },
  {
    name: "chat",
    summary: "talk with a chat model",
    body: async () => (await import("./chat.ts")).chatCommand,
  },
  {
    name: "embed",
    args: "<model> [texts...]",
    summary: "turn texts into vectors, and show how alike they are",
    body: async () => (await import("./embed.ts")).embedCommand,
  },
  {
    name: "rerank",
    args: "<model> [documents...]",
    summary: "sort documents by how well they answer a query",
    body: async () => (await import("./rerank.ts")).rerankCommand,
  },
  {
    name: "serve",
    summary:
      "serve the web app, and APIs that are compatible with OpenAI, Anthropic, Ollama and llama.cpp",
    body: async () => (await import("./serve.ts")).serveCommand,
  },
  {
    name: "launch",
    args: "[client] [model] [args...]",
    summary:
      "start a coding agent (Claude Code, Codex, opencode, ...) with a model of this machine",
    body: async () => (await import("./launch.ts")).launchCommand,
  },
  {
    name: "worker",
    summary: "compute for the other machines of a cluster",
    body: async () => (await import("./worker.ts")).workerCommand,
  },
  {
    name: "batch",
    args: "[input]",
    summary:
      "answer the requests of a file, as many at a time as pays; or look at a server's batches",
    body: async () => (await import("./batch.ts")).batchCommand,
  },
  {
    name: "mcp",
    summary: "offer generate, embed, tokenize and limits to other programs, as an MCP server",
    body: async () => (await import("./mcp.ts")).mcpCommand,
  },
  {
    name: "models",
    summary: "list models: those on this machine, those it could run, and how fast",
    body: async () => (await import("./models.ts")).modelsCommand,
  },
  {
    name: "pull",
    args: "<name>",
    summary: "download a model",
    body: async () => (await import("./pull.ts")).pullCommand,
  },
  {
    name: "search",
    args: "<words...>",
    summary: "search the Hugging Face hub for models",
    body: async () => (await import("./search.ts")).searchCommand,
  },
  {
    name: "rm",
    args: "<name>",
    summary: "delete a model from this machine",
    body: async () => (await import("./rm.ts")).rmCommand,
  },
  {
    name: "ps",
    summary: "show the running servers, their models, memory and users",
    body: async () => (await import("./ps.ts")).psCommand,
  },
  {
    name: "inspect",
    args: "<model>",
    summary: "show what is in a model file: metadata, tensors, types, sizes, memory needed",
    body: async () => (await import("./inspect.ts")).inspectCommand,
  },
  {
    name: "convert",
    args: "<model> <out.gguf>",
    summary: "write a Hugging Face folder or a llama2.c checkpoint as a GGUF file",
    body: async () => (await import("./convert.ts")).convertCommand,
  },
  {
    name: "quantize",
    args: "<input> <output> <type>",
    summary: "write a GGUF file with fewer bits per weight",
    body: async () => (await import("./quantize.ts")).quantizeCommand,
  },
  {
    name: "imatrix",
    summary: "measure which weights of a model matter most (an importance matrix), for quantize",
    body: async () => (await import("./imatrix.ts")).imatrixCommand,
  },
  {
    name: "sparsify",
    args: "<model>",
    summary: "make predictors of the neurons that are zero, for a model with ReLU",
    body: async () => (await import("./sparsify.ts")).sparsifyCommand,
  },
  {
    name: "tokenize",
    args: "<text...>",
    summary: "show the tokens of a text",
    body: async () => (await import("./tokenize.ts")).tokenizeCommand,
  },
  {
    name: "logits",
    summary: "show the logits of every position of a prompt",
    body: async () => (await import("./logits.ts")).logitsCommand,
  },
  {
    name: "perplexity",
    args: "[models...]",
    summary: "measure how well a model predicts a text",
    body: async () => (await import("./perplexity.ts")).perplexityCommand,
  },
  {
    name: "bench",
    summary: "measure how fast a model runs on this machine",
    body: async () => (await import("./bench.ts")).benchCommand,
  },
  {
    name: "limits",
    args: "[model]",
    summary: "show the highest speed that a device allows a model, and what fits in its memory",
    body: async () => (await import("./limits.ts")).limitsCommand,
  },
  {
    name: "machine",
    summary: "show how fast this machine is, and measure it the first time",
    body: async () => (await import("./machine.ts")).machineCommand,
  },
  {
    name: "doctor",
    summary: "show what this machine can do, what is missing, and what to type",
    body: async () => (await import("./doctor.ts")).doctorCommand,
  },
  {
    name: "devices",
    summary: "show the GPU that --backend webgpu would use, and the memory in use",
    body: async () => (await import("./devices.ts")).devicesCommand,
  },
  {
    name: "verify",
    summary: "check that CPU and GPU compute what the reference computes, op by op",
    body: async () => (await import("./verify.ts")).verifyCommand,
  },
  {
    name: "tune",
    summary: "find the fastest kernels for a model on this machine, and use them from then on",
    body: async () => (await import("./tune.ts")).tuneCommand,
  },
];
