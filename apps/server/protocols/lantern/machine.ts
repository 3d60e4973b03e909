// This machine over HTTP, for the web app: its measurement, its tune file, the memory of the served models, and their
// profiles. A measurement is started here, takes seconds, and is polled with the rest.

import * as z from "zod";
import {
  analyzeTune,
  inspect,
  LanternError,
  type ModelInspection,
  machineMeasurement,
  rememberedMachine,
  rememberedTune,
} from "../../../../src/index.ts";
import type { ServedModel, ServerContext } from "../../context.ts";
import { ApiError, describeError, openaiErrors } from "../../errors.ts";
import { type ModelLibrary, publicInfo, withoutFolders } from "../../models/library.ts";
import { json, type RouteFamily } from "../../route.ts";
import { queryFields } from "./service.ts";

const profileQuery = z.strictObject({ model: z.string().max(500).exactOptional() });

/** Progress of a measurement, 0 to 1, or the reason why the last one failed. */
interface Measuring {
  share: number;
  error: string | null;
}

export function machineRoutes(server: ServerContext, library: ModelLibrary): RouteFamily {
  let measuring: Measuring | null = null;
  const measure = async (): Promise<void> => {
    const mine: Measuring = { share: 0, error: null };
    measuring = mine;
    try {
      await machineMeasurement({
        anew: true,
        signal: server.stopSignal,
        onProgress: (share) => {
          mine.share = share;
        },
      });
      measuring = null;
    } catch (error) {
      const { message } = describeError(error, (bug) => server.log(String(bug)));
      mine.error = message;
    }
  };
  return {
    name: "lantern-machine",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: "/lantern/v1/machine",
        access: "admin",
        handle: async () => {
          const models = server.models.list().map((served) => modelView(served, library));
          return json({
            machine: (await rememberedMachine()) ?? null,
            measuring,
            models: await Promise.all(models),
            ...(await tuneView()),
          });
        },
      },
      {
        method: "GET",
        path: "/lantern/v1/machine/usage",
        access: "admin",
        handle: async () => {
          await server.usage.latest();
          return json({ samples: server.usage.samples });
        },
      },
      {
        method: "POST",
        path: "/lantern/v1/machine/measure",
        access: "admin",
        handle: () => {
          const busy = measuring !== null && measuring.error === null;
          if (!busy) void measure();
          return json({ measuring }, 202);
        },
      },
      {
        method: "GET",
        path: "/lantern/v1/profile",
        access: "admin",
        handle: async (call) => {
          const served = server.models.named(queryFields(call, profileQuery).model);
          return json(await profileView(served));
        },
      },
    ],
  };
}

/** The size of a model's weights, by purpose. */
interface MemoryPart {
  part: string;
  bytes: number;
}

async function modelView({ id, model }: ServedModel, library: ModelLibrary): Promise<object> {
  const { info } = model;
  const location = await library.locate(id);
  const inspection = location === undefined ? undefined : await inspectQuietly(location);
  const { stateBytesHeld: kvBytes } = await model.status();
  const weights: MemoryPart[] = inspection
    ? weightParts(inspection)
    : [{ part: "weights", bytes: info.weightBytes }];
  const activationBytes = inspection?.memory?.activationBytes ?? null;
  return { id, info: publicInfo(info), memory: { weights, kvBytes, activationBytes } };
}

/** A file that was moved meanwhile must not hide all other values. */
async function inspectQuietly(location: string): Promise<ModelInspection | undefined> {
  try {
    return await inspect(location);
  } catch (error) {
    if (error instanceof LanternError) return undefined;
    throw error;
  }
}

/** The first pattern that matches a tensor's name applies. */
const parts: readonly [RegExp, string][] = [
  [/^token_embd|^position_embd/, "embedding"],
  [/^output\./, "output"],
  [/norm/, "norms"],
  [/attn/, "attention"],
  [/ffn/, "feed forward"],
  [/./, "other"],
];

function weightParts({ tensors }: ModelInspection): MemoryPart[] {
  const bytes = new Map<string, number>();
  for (const tensor of tensors) {
    const part = parts.find(([pattern]) => pattern.test(tensor.name))![1];
    bytes.set(part, (bytes.get(part) ?? 0) + tensor.bytes);
  }
  return [...bytes]
    .map(([part, size]) => ({ part, bytes: size }))
    .sort((a, b) => b.bytes - a.bytes);
}

/** The stored times, or the reason why none can be used. */
async function tuneView(): Promise<{ tune: object | null; tuneNote: string | null }> {
  try {
    const file = await rememberedTune();
    const { groups, gain } = analyzeTune(file);
    // Experts have one variant of their matmuls, and nothing to compare.
    const matrices = groups.filter(({ group }) => group.experts === undefined);
    const tune = {
      date: file.date,
      features: file.features,
      profiles: file.profiles,
      groups: matrices.map(({ group: { dtype, n, k, threads }, points, crossovers }) => ({
        dtype,
        n,
        k,
        threads,
        points,
        crossovers,
      })),
      gain,
    };
    return { tune, tuneNote: null };
  } catch (error) {
    if (error instanceof LanternError) {
      return { tune: null, tuneNote: withoutFolders(error.message) };
    }
    throw error;
  }
}

async function profileView({ id, model }: ServedModel): Promise<object> {
  try {
    return { model: id, report: await model.profile() };
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    throw new ApiError({
      status: 409,
      type: "invalid_request_error",
      code: "not_profiled",
      param: "model",
      message: error.message,
    });
  }
}
