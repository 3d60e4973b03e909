// The quantize report over HTTP, for the web app: the effect of a smaller type on a model of this machine. One report
// is made at a time, in memory; no file is written. It is started, polled, and can be stopped.
//
// A name from a request is looked up by the library; it never becomes a path.

import * as z from "zod";
import {
  type ByteSink,
  compareQuantized,
  convert,
  inspect,
  LanternError,
  type ModelLocation,
  type QuantizedComparison,
  type QuantizeResult,
  quantize,
  quantizeTypes,
} from "../../../../src/index.ts";
import type { ServerContext } from "../../context.ts";
import { ApiError, describeError, notFound, openaiErrors } from "../../errors.ts";
import { type ModelLibrary, withoutFolders } from "../../models/library.ts";
import { json, type RouteFamily } from "../../route.ts";
import { bodyFields } from "./service.ts";

const wanted = z.strictObject({
  model: z.string().min(1).max(500),
  type: z.string().min(1).max(20),
  text: z.string().max(2_000_000).exactOptional(),
});
const nothing = z.strictObject({});

/** Window size in tokens and number of windows: enough to compare types, and done in about a minute on a small model. */
const window = { contextSize: 128, chunks: 20 };
/** The quantized model is held in memory; larger ones must use the command line. */
const mostBytes = 2e9;

export type QuantizeReport = QuantizeResult & QuantizedComparison;

interface Job {
  readonly model: string;
  readonly type: string;
  /** The current phase, for display. */
  phase: string;
  /** Fraction of it that is done: 0 to 1. */
  share: number;
  error: string | null;
  report: QuantizeReport | null;
}

type Wanted = z.infer<typeof wanted>;

export function quantizeRoutes(server: ServerContext, library: ModelLibrary): RouteFamily {
  let job: Job | null = null;
  let abort: AbortController | undefined;
  const view = async (): Promise<object> => ({
    types: await quantizeTypes({ imatrix: false }), // a report is made without one
    job,
  });
  const isRunning = () => job !== null && job.error === null && job.report === null;
  const start = (fields: Wanted, location: string): void => {
    const mine: Job = {
      model: fields.model,
      type: fields.type,
      phase: "reading",
      share: 0,
      error: null,
      report: null,
    };
    const stop = new AbortController();
    [job, abort] = [mine, stop];
    const signal = AbortSignal.any([stop.signal, server.stopSignal]);
    makeReport(location, fields, mine, signal).then(
      (report) => {
        mine.report = report;
      },
      (error: unknown) => {
        mine.error = describe(error, server);
        if (stop.signal.aborted && job === mine) job = null;
      },
    );
  };
  return {
    name: "lantern-quantize",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: "/lantern/v1/quantize",
        access: "admin",
        handle: async () => json(await view()),
      },
      {
        method: "POST",
        path: "/lantern/v1/quantize",
        access: "admin",
        handle: async (call) => {
          const fields = await bodyFields(call, wanted);
          const location = await library.locate(fields.model);
          if (location === undefined) {
            const name = fields.model.slice(0, 100);
            throw notFound(`the file of "${name}" is not on this machine`, "model", "no_file");
          }
          if (isRunning()) throw busy();
          start(fields, location);
          return json(await view(), 202);
        },
      },
      {
        method: "POST",
        path: "/lantern/v1/quantize/cancel",
        access: "admin",
        handle: async (call) => {
          await bodyFields(call, nothing);
          if (isRunning()) abort?.abort();
          else job = null;
          return json(await view());
        },
      },
    ],
  };
}

async function makeReport(
  location: string,
  { type, text }: Wanted,
  job: Job,
  signal: AbortSignal,
): Promise<QuantizeReport> {
  const at = (phase: string, share: number) => Object.assign(job, { phase, share });
  const progress =
    (phase: string) =>
    ({ loadedBytes, totalBytes }: { loadedBytes: number; totalBytes: number }) =>
      at(phase, totalBytes > 0 ? loadedBytes / totalBytes : 0);
  const before = await ggufOf(location, (sink) =>
    convert(location, sink, { signal, onProgress: progress("converting to GGUF") }),
  );
  const { bytesAfter } = await quantize(before, new Memory(), type, { dryRun: true, signal });
  checkSize(bytesAfter);
  const memory = new Memory();
  const onProgress = progress(`quantizing to ${type}`);
  const result = await quantize(before, memory, type, { measure: true, signal, onProgress });
  const comparison = await compareQuantized(before, memory.file(), {
    text,
    ...window,
    signal,
    onProgress: ({ of, window: done, windows }) => at(`reading the text: ${of}`, done / windows),
  });
  return { ...result, ...comparison };
}

/** quantize() reads GGUF files; a model in another format is first converted, in memory. */
async function ggufOf(
  location: string,
  convertInto: (sink: ByteSink) => Promise<unknown>,
): Promise<string | File> {
  const { format, totalBytes } = await inspect(location);
  if (/^gguf/i.test(format)) return location;
  checkSize(totalBytes);
  const memory = new Memory();
  await convertInto(memory);
  return memory.file();
}

class Memory implements ByteSink {
  readonly #parts: Uint8Array<ArrayBuffer>[] = [];

  async write(bytes: Uint8Array): Promise<void> {
    this.#parts.push(bytes.slice());
  }

  file(): File & ModelLocation {
    return new File(this.#parts, "model.gguf");
  }
}

function checkSize(bytes: number): void {
  if (bytes <= mostBytes) return;
  throw new ApiError({
    status: 413,
    type: "invalid_request_error",
    code: "too_large",
    param: "model",
    message: `the quantized model would have ${(bytes / 1e9).toFixed(1)} GB, but the web app makes reports in memory, up to ${mostBytes / 1e9} GB. Use "lantern quantize --report"`,
  });
}

function busy(): ApiError {
  return new ApiError({
    status: 409,
    type: "invalid_request_error",
    code: "task_in_progress",
    param: null,
    message: "another report is being made. Stop it, or wait until it is complete",
  });
}

function describe(error: unknown, server: ServerContext): string {
  if (error instanceof LanternError) return withoutFolders(error.message);
  return describeError(error, (bug) => server.log(String(bug))).message;
}
