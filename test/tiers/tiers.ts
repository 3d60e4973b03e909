// Which tests `npm test` leaves to `npm run test:all`: those that take a browser, a GPU that the processor plays, real models,
// installed packages, or many seconds. Everything is in one of five tiers: quick, rest, long, slow and GPU. .ci/run runs them all, one
// after the other.

import { fileURLToPath } from "node:url";
import type { ViteUserConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** GPU tests whose GPU is in another process or thread, or that change the process: each file has a process of its own. */
export const gpuElsewhere: readonly string[] = [
  "test/backends/{exact-matrix,split-models,webgpu-lost,webgpu-memory,webgpu-subgroups}.test.ts",
  "test/browser/webgpu.test.ts",
  "test/cli/{devices,gpu-limits,gpu-verify}.test.ts",
  "test/engine/adapters-webgpu.test.ts",
];

/** Those that are nothing without half floats, which SwiftShader does not have. */
export const gpuHalves: readonly string[] = [
  "test/backends/webgpu-{attention-matrices,experts-matrices,matrices}.test.ts",
];

/** A GPU that the processor plays: compiling its shaders takes seconds for each model. (Their texts are held by hashes.) */
export const gpu: readonly string[] = [
  ...gpuElsewhere,
  ...gpuHalves,
  "test/backends/{exact-arithmetic,exact-ops,expert-slots-gpu,offload-gpu,split-gpu,split-tensors-gpu,stream-gpu,switch-gpu}.test.ts",
  "test/backends/webgpu-{adjusted,best,engine,exchange,experts,lookahead,lookahead-recurrent,fused,growth,layers,profile,routed,scans,warm-up,widened}.test.ts",
  "test/conformance/{attention-webgpu,webgpu,webgpu-derived,webgpu-guarded}.test.ts",
  "test/engine/{saved/saved-state,state/mixed-state}-webgpu.test.ts",
  "test/models/webgpu-{archs,golden,tiny-golden}.test.ts",
  "test/tune/{gpu-tune,layer-tune}.test.ts",
];

/**
 * What runs on a second driver as well: every kind of kernel once, and what depends on half floats, subgroups, the size of bindings and
 * memory. How the host uses kernels (what flies, grows, is saved, streamed, split, tuned, printed) is the same on any driver.
 */
export const gpuSecond: readonly string[] = [
  ...gpuHalves,
  "test/backends/{exact-arithmetic,exact-ops}.test.ts",
  "test/backends/webgpu-{best,engine,exchange,experts,fused,layers,memory,routed,scans,subgroups,widened}.test.ts",
  "test/cli/devices.test.ts",
  "test/conformance/{attention-webgpu,webgpu}.test.ts",
  "test/models/webgpu-tiny-golden.test.ts",
];

/**
 * Many seconds each, and what they look at is held by others, too: every kernel in every shape, also for processors that this
 * one is not (hashes hold the code); tokenizers of all real vocabularies (vectors hold some); files of types that search a codebook
 * (vectors hold their blocks); tuning at the first start; the example programs of
 * the documents; the executable; frames while a long answer is drawn.
 */
export const slow: readonly string[] = [
  "test/backends/{matmul-variants,native-matmuls,split,weights}.test.ts",
  "test/browser/{document,machine,profile}.test.ts",
  "test/chat/words-shared.test.ts",
  "test/conformance/{guarded,interpreted,wasm-variants}.test.ts",
  "test/cli/{bench,first-tune,machine,make-model,profile}.test.ts",
  "test/docs/{additions,options,references}.test.ts",
  "test/dtypes/real-files.test.ts",
  "test/engine/{lifetime,strange-weights}.test.ts",
  "test/formats/half-weights.test.ts",
  "test/models/{archs-levels,archs-speculate,hostile-files,tiny-golden}.test.ts",
  "test/package/sea.test.ts",
  "test/tokenizers/{bounds,oracle}.test.ts",
  "test/tools/{convert-real,perplexity,perplexity-cli,quantize-codebooks}.test.ts",
  "test/web/{fast,places,quantize}.test.ts",
  "test/kernels/{arm64-kernels,arm64-pairs,arm64-unpacked,attention,machine,matmul,matmul-widths}.test.ts",
  "test/kernels/{native-variants,random-kernels,schedule,scheduled-matmuls}.test.ts",
];

/** A quarter of a minute and more each: where there is time, right after the rest. */
export const long: readonly string[] = [
  "test/backends/disk-hostile.test.ts",
  "test/cli/{chat-terminal,log-level,launch/own-server}.test.ts",
  "test/cluster/{lines,lost-start,processes}.test.ts",
  "test/conformance/wasm.test.ts",
  "test/docs/mission.test.ts",
  "test/engine/watchdog.test.ts",
  "test/engine/tiers/restart.test.ts",
  "test/faults/**",
  "test/engine/kv-types.test.ts",
  "test/models/golden.test.ts",
  "test/formats/gguf-real.test.ts",
  "test/platform/native-teardown.test.ts",
  "test/server/{agent-sessions,cache-kill,deletion,disk,kill-writes,lantern-kill,lora-hostile,samplers}.test.ts",
  "test/tools/{commands,quantize}.test.ts",
  "test/web/{access,facts,gone,kept-page,models,rich,robust,story,worker,worker-batches}.test.ts",
  "test/browser/opfs.test.ts",
  "test/backends/disk-experts.test.ts",
  "test/engine/disk-weights.test.ts",
  "test/engine/speculate/{draft-open,next-layer}.test.ts",
];

/** What else `npm test` leaves out. */
export const rest: readonly string[] = [
  // A browser.
  "test/browser/!(document|webgpu|machine|opfs|profile).test.ts",
  "test/web/!(access|facts|fast|gone|kept-page|models|places|quantize|rich|robust|story|worker|worker-batches).test.ts",
  // Real models and files.
  "test/formats/huggingface-archs.test.ts",
  "test/models/{archs,recurrent}.test.ts",
  "test/tokenizers/{regex,vectors}.test.ts",
  "test/tools/{convert,convert-errors,quantize-api,quantize-search,sparsify}.test.ts",
  // Bundles, made and run.
  "test/cli/checkout-bundle.test.ts",
  // A copy of the sources, compiled and run.
  "test/docs/!(additions|mission).test.ts",
  // Processes: packages, other Nodes, measuring, killing.
  "test/cli/{bench-serve,bin,embed,isa,commands,launch/launch,manage,resume,serve-access,serve-many,serve-models,serve-flags,signals,verify}.test.ts",
  "test/engine/{adapters-hostile,adapters-llamacpp,kv-range,llamacpp-seed,lost-device,non-finite,profile,roomy-context}.test.ts",
  "test/engine/tiers/{real-folders,rounding}.test.ts",
  "test/{cli,server}/cache.test.ts",
  "test/cluster/{cluster,lost-store,shared-batches}.test.ts",
  "test/{cli/chat-mcp,mcp/own-server,mcp/servers}.test.ts",
  "test/package/package.test.ts",
  "test/platform/binding.test.ts",
  "test/server/{backups,clients,late-answers,reach,grammar,hostile,ignore-eos,keep-alive,kept-token,many-models,lantern-sessions,llamacpp-protocol,restart,slots,stop,two-processes,watchdog}.test.ts",
  "test/sessions/{backups,crash,exchange}.test.ts",
  "test/tune/{knobs,machine,run-tune}.test.ts",
  // Kernels.
  "test/kernels/x64-kernels.test.ts",
  "test/backends/{exact-splits,experts,file-pieces,guard,memory64,native,neurons,pack-kernels,threads}.test.ts",
  "test/conformance/{attention,reference}.test.ts",
  "test/kernels/{elementwise,lower-x64,tiles}.test.ts",
  "test/fuzz/shapes.test.ts",
  "test/grammar/hostile.test.ts",
  // More than five seconds of a processor each.
  "test/chat/{answer-vectors,tool-grammar}.test.ts",
  "test/engine/speculate/decoder.test.ts",
  "test/engine/adapters.test.ts",
  "test/rules/regexes.test.ts",
  "test/server/lifecycle.test.ts",
  "test/kernels/kernel-hashes.test.ts",
];

/** Folders of functions: their tests compute, and look at what came out. */
const pure =
  /^test\/(base|catalog|chat|dtypes|formats|grammar|graph|limits|profile|tokenizers|tune)\//;

/** Words of those that change their environment, clock, modules, tables or globals, listen to the process, or start anything. */
const changing =
  /\bvi\.|process\.(?!arch|platform|cwd|execPath|version|hrtime|memoryUsage)|globalThis|[sS]pawn|Worker\b|worker_threads|setFlags|launchBrowser|nodePlatform|startServer|listen\(|\bopen\(|\bmain\(|\bregister(Arch|Backend|DType)\b|mixed-arch/;

/** Whether a test file leaves its process as it was, so that others may share it. */
export function sharesProcess(path: string, text: string): boolean {
  return pure.test(path) && !changing.test(text);
}

/** Half a minute and more. One that begins last would run alone at the end; where nothing ran before, vitest knows no times. */
const longest = [
  "backends/webgpu-fused",
  "browser/browser",
  "browser/webgpu",
  "models/golden",
  "package/package",
  "conformance/webgpu",
  "backends/split-models",
  "tools/commands",
  "web/robust",
  "engine/lifetime",
  "cli/first-tune",
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean =>
      longest.some((name) => moduleId.endsWith(`/test/${name}.test.ts`));
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => Number(isLong(b)) - Number(isLong(a)));
  }
}

/** What all tiers share. */
export const shared: NonNullable<ViteUserConfig["test"]> = {
  pool: "forks",
  maxWorkers: 2,
  sequence: { sequencer: LongestFirst },
  env: {
    // No test depends on what this machine was measured at, or measures it unless it is about that.
    LANTERN_NO_LIMIT: "1",
    LANTERN_NO_TUNE: "1",
    // Conversations of tests are not kept, except in a folder that a test names.
    LANTERN_NO_CACHE_DISK: "1",
    // Nor is the token of the user's servers used.
    LANTERN_DATA: fileURLToPath(new URL("../../node_modules/.cache/data", import.meta.url)),
    // Hundreds of processes and threads load the same modules: they are stripped of types and compiled once.
    // Not in /tmp, where another user could have put something first.
    NODE_COMPILE_CACHE: fileURLToPath(
      new URL("../../node_modules/.cache/compile", import.meta.url),
    ),
  },
  // Nothing waits for these: a poll ends when what it waits for is there. On a busy machine that takes many times as long as on
  // a free one, and a test that fails there says nothing about the code.
  testTimeout: 240_000,
  expect: { poll: { timeout: 60_000 } },
  hookTimeout: 600_000, // some compile the sources
};
