// The history of memory and load: arithmetic on readings that a test has made up, and what a real server says.

import { expect, test } from "vitest";
import type { ServedModel } from "../../apps/server/context.ts";
import { type SystemReading, UsageHistory } from "../../apps/server/usage.ts";
import type { EngineStatus, ModelInfo } from "../../src/index.ts";
import { testServer } from "./test-server.ts";

const system: SystemReading = {
  atMs: 0,
  cores: 4,
  memoryBytes: 1000,
  availableBytes: 600,
  residentBytes: 300,
  busySeconds: 100,
  ownSeconds: 50,
};

function served(status: Partial<EngineStatus>, isDevice: boolean): ServedModel {
  const place = { backend: "webgpu", firstLayer: 0, layers: 1, hasOutput: true, weightBytes: 7 };
  const placement = [{ ...place, isDevice, ...(isDevice && { adapter: "A GPU" }) }];
  return {
    id: "m",
    model: {
      info: { backend: { placement } } as unknown as ModelInfo,
      health: async () => ({ status: "ok", restarts: 0 }),
      status: async () => ({
        stateBytesHeld: 5,
        memory: { weightBytes: 7, kvBytes: 9, workBytes: 3 },
        ...status,
      }),
    } as unknown as ServedModel["model"],
    created: 0,
  } as ServedModel;
}

test("shares are those of the time between two samples, of all cores", async () => {
  const clock = { ms: 0, reading: system, status: { busyMs: 100 } };
  const models = { list: () => [served(clock.status, true)] };
  const history = new UsageHistory(
    { models, now: () => clock.ms, time: () => clock.ms } as never,
    () => clock.reading,
  );
  const first = await history.sample();
  expect(first.machine).toMatchObject({
    memoryBytes: 1000,
    availableBytes: 600,
    ownCpu: null,
    cpu: null,
  });
  expect(first.models).toEqual([
    { id: "m", weightBytes: 7, kvBytes: 5, scratchBytes: 3, device: "A GPU", busy: null },
  ]);
  clock.ms = 5000;
  clock.status = { busyMs: 1350 };
  clock.reading = { ...system, atMs: 5000, busySeconds: 110, ownSeconds: 55 };
  const second = await history.sample();
  expect(second.machine).toMatchObject({ ownCpu: 0.25, cpu: 0.5 }); // 5 and 10 of 20 CPU seconds
  expect(second.models[0]!.busy).toBe(0.25);
  clock.status = { busyMs: 10 }; // the profile was reset
  clock.ms = 10_000;
  expect((await history.sample()).models[0]!.busy).toBeNull();
});

test("the history has an end", async () => {
  const history = new UsageHistory(
    { models: { list: () => [] }, now: () => 0, time: () => 0 } as never,
    undefined,
  );
  for (let i = 0; i < 130; i++) await history.sample();
  expect(history.samples).toHaveLength(120);
  expect(history.samples[0]).toEqual({ time: 0, machine: null, models: [] });
});

test("a server says it, over its route and in /metrics", async () => {
  const { server, close } = await testServer({
    readSystem: () => system,
    library: {} as never,
  });
  try {
    const { samples } = (await (await fetch(`${server.url}/lantern/v1/machine/usage`)).json()) as {
      samples: { models: object[] }[];
    };
    expect(samples.at(-1)!.models).toEqual([
      {
        id: "stories15m",
        weightBytes: expect.any(Number),
        kvBytes: expect.any(Number),
        scratchBytes: expect.any(Number),
        device: null,
        busy: null,
      },
    ]);
    const text = await (await fetch(`${server.url}/metrics`)).text();
    for (const kind of ["weights", "kv", "scratch"]) {
      expect(text).toMatch(
        new RegExp(`^lantern_memory_bytes\\{model="stories15m",kind="${kind}"\\} [1-9]`, "m"),
      );
    }
    expect(text).toMatch(/^lantern_machine_memory_available_bytes 600$/m);
  } finally {
    await close();
  }
});
