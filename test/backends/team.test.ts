// Threads that share the chunks of instructions: each chunk is computed once, whatever the number of threads, and an
// instruction starts only when the previous one has ended. More threads than cores, so that some are always delayed.

import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test, vi } from "vitest";
import { controlWords, TeamMember } from "../../src/backends/cpu/threads/team.ts";
import { Random } from "../support/random.ts";
import {
  type CountingTeam,
  countingMember,
  countingTeam,
  INSTRUCTIONS,
  MOST_CHUNKS,
} from "./counting-team.ts";

async function helpersOf(team: CountingTeam): Promise<Worker[]> {
  const workers = Array.from(
    { length: team.threads - 1 },
    (_, i) =>
      new Worker(new URL("./counting-team.ts", import.meta.url), {
        workerData: { team, thread: i + 1 },
      }),
  );
  await Promise.all(workers.map((worker) => once(worker, "message")));
  return workers;
}

test.each([1, 2, 3, 6])("%i threads do every chunk of every batch once", async (threads) => {
  const team = countingTeam(threads);
  const words = new Int32Array(team.buffer);
  const workers = await helpersOf(team);
  const leader = countingMember(team, 0);
  const random = new Random(threads);
  for (let batch = 0; batch < 400; batch++) {
    // Few, none, or many; other numbers in every batch.
    const chunks = Array.from({ length: INSTRUCTIONS }, () =>
      random.below(4) === 0 ? random.below(2) : random.below(MOST_CHUNKS + 1),
    );
    words.set(chunks, team.chunks);
    words.fill(0, team.counts);
    let end = leader.runBatch();
    while (end === "waits") end = leader.resume(); // a helper was held back
    expect(end).toBe("done");
    const wrong = chunks.flatMap((count, i) =>
      Array.from({ length: MOST_CHUNKS }, (_, chunk) => chunk).filter(
        (chunk) => words[team.counts + i * MOST_CHUNKS + chunk] !== (chunk < count ? 1 : 0),
      ),
    );
    if (wrong.length > 0)
      expect.fail(`batch ${batch}: chunks ${wrong.join(", ")} were not done once`);
  }
  leader.stop();
  await Promise.all(workers.map((worker) => worker.terminate()));
});

test("what the leader's own chunk threw is the cause of the batch's failure", () => {
  const buffer = new SharedArrayBuffer(controlWords(1) * 4);
  const wrong = new Error("address 7: outside");
  const failing = {
    chunks: () => 2,
    run: () => {
      throw wrong;
    },
  };
  const leader = new TeamMember({ buffer, control: 0, thread: 0, threads: 1 }, [failing]);
  const printed = vi.spyOn(console, "error").mockImplementation(() => {});
  expect(() => leader.runBatch()).toThrow(
    expect.objectContaining({ message: expect.stringContaining("failed"), cause: wrong }),
  );
  expect(printed).toHaveBeenCalledWith(wrong);
  printed.mockRestore();
});
