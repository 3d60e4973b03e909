// Admission without a server: who runs, who waits, who is refused, and in which order.

import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/server/errors.ts";
import { AdmissionQueue, type Turn } from "../../src/server/queue.ts";

const forever = new AbortController().signal;

/** Lets promises that are settled run their callbacks. */
const settle = () => new Promise((resolve) => setTimeout(resolve));

/** Enters in order, and notes who was admitted in which order. */
function enterAll(queue: AdmissionQueue, clients: readonly string[]) {
  const admitted: string[] = [];
  const turns: Turn[] = [];
  for (const client of clients) {
    void queue.enter(client[0]!, forever).then((turn) => {
      admitted.push(client);
      turns.push(turn);
    });
  }
  return { admitted, turns };
}

describe("the queue", () => {
  test("runs as many as it may, and the others when turns get free", async () => {
    const queue = new AdmissionQueue(2, 10);
    const { admitted, turns } = enterAll(queue, ["a1", "a2", "a3"]);
    await settle();
    expect(admitted).toEqual(["a1", "a2"]);
    expect([queue.running, queue.waiting]).toEqual([2, 1]);
    turns[0]!.release();
    turns[0]!.release(); // twice is once
    await settle();
    expect(admitted).toEqual(["a1", "a2", "a3"]);
    expect([queue.running, queue.waiting]).toEqual([2, 0]);
  });

  test("lets clients take turns, however many requests each has", async () => {
    const queue = new AdmissionQueue(1, 10);
    const { admitted, turns } = enterAll(queue, ["a1", "a2", "a3", "b1", "b2", "c1"]);
    for (let served = 0; served < 6; served++) {
      await settle();
      turns[served]!.release();
    }
    expect(admitted).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"]);
    expect([queue.running, queue.waiting]).toEqual([0, 0]);
  });

  test("refuses when nobody more may wait, and says when to come again", async () => {
    const queue = new AdmissionQueue(1, 1);
    enterAll(queue, ["a1", "a2"]);
    const refused = await queue.enter("b", forever).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ApiError);
    expect((refused as ApiError).facts).toMatchObject({ status: 429, code: "queue_full" });
    expect((refused as ApiError).facts.retryAfterSeconds).toBeGreaterThan(0);
    expect(() => queue.checkRoom(1)).toThrow(/requests running: 1, waiting: 1/);
    expect(() => new AdmissionQueue(1, 1).checkRoom(2)).not.toThrow();
  });

  test("that could never hold a request says so: to come again would not help", () => {
    const refused = (): void => new AdmissionQueue(1, 1).checkRoom(3);
    expect(refused).toThrow(/3 answers at once, but the server has room for 2/);
    expect(refused).toThrow(
      expect.objectContaining({ facts: expect.objectContaining({ status: 400 }) }),
    );
  });

  test("forgets who leaves while waiting", async () => {
    const queue = new AdmissionQueue(1, 1);
    const { turns } = enterAll(queue, ["a1"]);
    await settle();
    const gone = new AbortController();
    const waiting = queue.enter("b", gone.signal);
    gone.abort(new Error("gone"));
    await expect(waiting).rejects.toThrow("gone");
    expect(queue.waiting).toBe(0);
    turns[0]!.release();
    expect(queue.running).toBe(0);
    await expect(queue.enter("b", gone.signal)).rejects.toThrow("gone");
  });

  test("closed, refuses who waits and who comes", async () => {
    const queue = new AdmissionQueue(1, 1);
    enterAll(queue, ["a1"]);
    const waiting = queue.enter("b", forever);
    queue.close();
    await expect(waiting).rejects.toThrow(/stopping/);
    await expect(queue.enter("c", forever)).rejects.toThrow(/stopping/);
    expect(queue.running).toBe(1);
  });
});
