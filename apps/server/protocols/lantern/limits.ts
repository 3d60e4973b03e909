// Limits over HTTP, for the web app: what this machine, or a device by name, allows a served model. The arithmetic is
// limits() of the public API. It never measures the machine (machine.ts does).

import * as z from "zod";
import {
  type BackendInfo,
  type GpuMeasurement,
  type LimitsOptions,
  limits,
  rememberedGpu,
  rememberedMachine,
} from "../../../../src/index.ts";
import type { ServerContext } from "../../context.ts";
import { ApiError, notFound, openaiErrors } from "../../errors.ts";
import type { ModelLibrary } from "../../models/library.ts";
import { json, type RouteFamily } from "../../route.ts";
import { queryFields } from "./service.ts";

const limitsQuery = z.strictObject({
  model: z.string().max(500).exactOptional(),
  device: z.string().max(100).exactOptional(),
  context: z.coerce.number().int().min(1).max(1_048_576).exactOptional(),
});

export function limitRoutes(server: ServerContext, library: ModelLibrary): RouteFamily {
  return {
    name: "lantern-limits",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: "/lantern/v1/limits",
        access: "admin",
        handle: async (call) => {
          const { model, device, context } = queryFields(call, limitsQuery);
          const { id, model: served } = server.models.named(model);
          const location = await library.locate(id);
          if (location === undefined) {
            throw notFound(`the file of ${id} is not known here`, "model", "no_file");
          }
          const { backend, contextSize, kvType, heldAs } = served.info;
          return json(
            await limits(location, {
              ...(device === undefined ? whereItRuns(backend) : { device }),
              context: context ?? contextSize,
              kv: kvType,
              ...(heldAs && heldAs.matrices > 0 && { weights: heldAs.type }),
              serving: {}, // with measured results, which the page compares with its own choices
              machine: measuredMachine,
              gpu: measuredGpu,
            }),
          );
        },
      },
    ],
  };
}

/** The GPU if it has every layer; otherwise the processor. */
function whereItRuns({
  placement,
  threads,
}: BackendInfo): Pick<LimitsOptions, "device" | "threads"> {
  const isOnGpu = placement.length > 0 && placement.every(({ isDevice }) => isDevice);
  return isOnGpu ? { device: "this-gpu" } : { threads };
}

type Machine = NonNullable<Awaited<ReturnType<typeof rememberedMachine>>>;

async function measuredMachine(): Promise<Machine> {
  const machine = await rememberedMachine({ quick: true });
  if (machine) return machine;
  throw notMeasured(
    'this machine has not been measured yet. Measure it on the Machine page, or with "lantern machine"',
  );
}

async function measuredGpu(): Promise<GpuMeasurement> {
  const gpu = await rememberedGpu({ quick: true });
  if (gpu) return gpu;
  throw notMeasured(
    'the GPU has not been measured yet. Measure it with "lantern devices --measure"',
  );
}

function notMeasured(message: string): ApiError {
  return new ApiError({
    status: 409,
    type: "invalid_request_error",
    code: "not_measured",
    param: null,
    message,
  });
}
