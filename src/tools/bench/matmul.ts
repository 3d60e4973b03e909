// The speed of one matmul, [m, k] x [n, k]^T, on the backend of a model at this opt level and thread count. It runs a graph of one matmul
// (and the embedding that feeds it) like a model's batches. So it includes a model's costs: rounding the activations, and the threads'
// barriers. A composition root like open.ts.

import type { MatmulBenchOptions, MatmulSpeed, RegisterTile } from "../../api/api.ts";
import { type Backend, evenCapacity } from "../../backends/backend.ts";
import { allBackends, type BackendRequest } from "../../backends/table.ts";
import { ModelError, UsageError } from "../../base/errors.ts";
import { median, takeRounds } from "../../base/measure.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../dtypes/table.ts";
import { makePlan } from "../../graph/plan.ts";
import { chooseOptLevel } from "../../machine/native.ts";
import { currentPlatform } from "../../platform/current.ts";
import {
  floats,
  matmulBatch,
  matmulGraph,
  matmulName,
  uploadSample,
} from "../../tune/matmul-graph.ts";
import { registerTiles, tileRequest } from "./tile.ts";

/** The fraction of the measuring time for the warm-up. */
const warmupShare = 0.25;
const warmupTokens = 16;

/** Opt level 1 of a model has the reference's bits. Its speed would flatter the others: the loops that one writes first are compiled here. */
const firstLoops = {
  level: 2,
  rowTile: "scalar",
  native: "opt level 1 has no machine code",
} as const;

export async function measureMatmul(options: MatmulBenchOptions): Promise<MatmulSpeed> {
  const { n, k, m, threads, seconds } = options;
  const dtype = checkedType(options);
  const platform = await currentPlatform();
  const optLevel = await chooseOptLevel(options, platform);
  const tiled = tileRequest(options.tile, { dtype: dtype.name, n, k, m, ...optLevel });
  const backend = chooseBackend({
    ...optLevel,
    ...(optLevel.level === 1 ? firstLoops : tiled),
    threads,
    startThread: () => platform.startThread("compute"),
  });
  try {
    const graph = matmulGraph(dtype, n, k);
    const plan = makePlan(graph, { maxTokens: m, maxOutputs: m });
    await backend.prepare(plan, evenCapacity(1, floats));
    for (const weight of graph.weights) await uploadSample(backend, weight);
    const timed = async (tokens: number): Promise<number> => {
      const batch = matmulBatch(tokens, plan.limits);
      const started = platform.now();
      await backend.run(batch);
      return (platform.now() - started) / 1000;
    };
    // Code is compiled and optimized while it runs.
    for (let spent = 0; spent < seconds * warmupShare; ) {
      spent += await timed(Math.min(m, warmupTokens));
    }
    const times: number[] = [];
    let spent = 0;
    await takeRounds({
      rounds: (done) => done > 0 && spent >= seconds,
      measure: () => timed(m),
      keep: (time) => {
        times.push(time);
        spent += time;
      },
    });
    return { gflops: (2 * n * k * m) / median(times) / 1e9, kernel: kernelOf(backend) };
  } finally {
    backend.dispose();
  }
}

/** The register tiles that this opt level has for this matmul on this machine. */
export async function tilesOf(
  options: Pick<MatmulBenchOptions, "type" | "n" | "k" | "m" | "level">,
): Promise<RegisterTile[]> {
  const { n, k, m } = options;
  const dtype = checkedType(options).name;
  const optLevel = await chooseOptLevel(options, await currentPlatform());
  return registerTiles({ dtype, n, k, m, ...optLevel });
}

function checkedType({ type, k }: Pick<MatmulBenchOptions, "type" | "k">): DType {
  const dtype = dtypeByName(type);
  if (!dtype) {
    const known = allDTypes().map(({ name }) => name);
    throw new UsageError(`type: got "${type}", expected one of ${known.join(", ")}`);
  }
  if (k % dtype.blockElems === 0) return dtype;
  throw new UsageError(
    `K: got ${k}, but rows of ${dtype.name} are a multiple of ${dtype.blockElems} values`,
  );
}

function chooseBackend(request: BackendRequest): Backend {
  const entry = allBackends().find((candidate) => candidate.available(request) === true);
  if (entry) return entry.create(request);
  throw new ModelError(`no backend can run opt level ${request.level} on this machine`);
}

/** The backend's note on the matmul; all its notes if none names it. */
function kernelOf(backend: Backend): string {
  const lines = backend.explain();
  const named = lines.find((line) => line.startsWith(`${matmulName}: `));
  const text = named?.slice(matmulName.length + 2) ?? lines.join("; ");
  return backend.kernels === undefined ? text : `${backend.kernels}: ${text}`;
}
