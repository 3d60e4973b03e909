// Admission without a server: who runs, who waits, who is refused, and in which order.

import { describe, expect, test } from "vitest";
import { ApiError } from "../../apps/server/errors.ts";
import { AdmissionQueue, QUANTUM_SPENT, type Turn } from "../../apps/server/queue.ts";

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
    expect(() => queue.checkCapacity("b")).toThrow(/requests running: 1, waiting: 1/);
    expect(() => new AdmissionQueue(1, 1).checkCapacity("a", 2)).not.toThrow();
  });

  test("that could never hold a request says so: to come again would not help", () => {
    const refused = (): void => new AdmissionQueue(1, 1).checkCapacity("a", 3);
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

  test("asks turns back for clients with fewer, until each has its share", async () => {
    const queue = new AdmissionQueue(4, 10);
    const enter = (client: string) => queue.enter(client, forever, { mayPause: true });
    const turns = await Promise.all(["a", "a", "a", "a"].map(enter));
    const asked = () => turns.map(({ preempted }) => preempted.aborted);
    void enter("a");
    expect(asked()).toEqual([false, false, false, false]); // nothing to share with itself
    const others = ["b", "b", "b"].map(enter);
    expect(asked()).toEqual([false, false, true, true]); // the last ones; the third "b" would have more than "a"
    turns[3]!.release();
    await others[0]!;
    expect(asked()).toEqual([false, false, true, true]);
    turns[2]!.release();
    const turn = await others[1]!;
    // What goes on does so before the other requests of its client.
    const goesOn = queue.enter("a", forever, { mayPause: true, isBegun: true });
    expect([queue.running, queue.waiting]).toEqual([4, 3]);
    turn.release();
    await Promise.race([goesOn, others[2]!]);
    expect([queue.running, queue.waiting]).toEqual([4, 2]);
  });

  test("a turn whose quantum is spent is asked back for whoever waits, of the same client too", async () => {
    const queue = new AdmissionQueue(1, 10);
    const enter = (isSpent = false) =>
      queue.enter("a", forever, { mayPause: true, quantum: 2, isBegun: isSpent, isSpent });
    const long = await enter();
    long.spend();
    long.spend();
    expect(long.preempted.aborted).toBe(false); // nobody waits
    const short = enter();
    expect(long.preempted.reason).toBe(QUANTUM_SPENT);
    const goesOn = enter(true);
    const later = Array.from({ length: 6 }, () => enter());
    const order: string[] = [];
    void goesOn.then(() => order.push("long"));
    for (const [i, one] of later.entries()) void one.then(() => order.push(`later ${i}`));
    long.release();
    const turn = await short;
    turn.spend();
    expect(turn.preempted.aborted).toBe(false);
    turn.spend();
    expect(turn.preempted.aborted).toBe(true);
    turn.release();
    for (const one of [...later.slice(0, 4), goesOn, ...later.slice(4)]) (await one).release();
    // It lets some go first, and not all that come.
    expect(order).toEqual([0, 1, 2, 3, "long", 4, 5].map((i) => (i === "long" ? i : `later ${i}`)));
    expect([queue.running, queue.waiting]).toEqual([0, 0]);
  });

  test("a turn that cannot be given back lasts, whatever it has spent", async () => {
    const queue = new AdmissionQueue(1, 10);
    const turn = await queue.enter("a", forever, { quantum: 1 });
    const waiting = queue.enter("a", forever);
    turn.spend();
    turn.spend();
    expect(turn.preempted.aborted).toBe(false);
    turn.release();
    (await waiting).release();
  });

  test("of different clients too, where each has one turn", async () => {
    const queue = new AdmissionQueue(2, 10);
    const [one, two] = await Promise.all(
      ["a", "b"].map((client) => queue.enter(client, forever, { mayPause: true, quantum: 1 })),
    );
    const third = queue.enter("c", forever);
    expect(one!.preempted.aborted).toBe(false);
    two!.spend();
    one!.spend();
    expect([one!.preempted.aborted, two!.preempted.aborted]).toEqual([false, true]);
    two!.release();
    (await third).release();
  });

  test("asks no turn back that cannot be given back, and none for nothing", async () => {
    const queue = new AdmissionQueue(3, 10);
    const [fixed, one, two] = await Promise.all([
      queue.enter("a", forever),
      queue.enter("a", forever, { mayPause: true }),
      queue.enter("a", forever),
    ]);
    const gone = new AbortController();
    const waiting = queue.enter("b", gone.signal);
    expect([fixed, one, two].map((turn) => turn!.preempted.aborted)).toEqual([false, true, false]);
    gone.abort(new Error("gone"));
    await expect(waiting).rejects.toThrow("gone");
    one!.release();
    await queue.enter("a", forever, { isBegun: true });
    expect([queue.running, queue.waiting]).toEqual([3, 0]);
  });

  test("full, refuses the last of the client that waits with the most", async () => {
    const queue = new AdmissionQueue(1, 3);
    const own = ["a", "a", "a", "a"].map((client) => queue.enter(client, forever));
    const last = own[3]!.catch((error: unknown) => error);
    queue.checkCapacity("b");
    expect(() => queue.checkCapacity("b", 2)).toThrow(/full/); // then "b" would have more
    const turn = await own[0]!;
    const other = queue.enter("b", forever);
    expect(((await last) as ApiError).facts).toMatchObject({ status: 429, code: "queue_full" });
    await expect(queue.enter("b", forever)).rejects.toThrow(/full/);
    turn.release();
    await other;
  });

  test("keeps what has begun, whatever its length, and when it closes", async () => {
    const queue = new AdmissionQueue(1, 1);
    const turn = await queue.enter("a", forever);
    const fresh = queue.enter("b", forever);
    const begun = queue.enter("a", forever, { isBegun: true });
    queue.close();
    await expect(fresh).rejects.toThrow(/stopping/);
    turn.release();
    (await begun).release();
    expect([queue.running, queue.waiting]).toEqual([0, 0]);
  });

  test("gives no client more than its most, even if turns are free", async () => {
    const queue = new AdmissionQueue(3, 10, 2);
    const { admitted, turns } = enterAll(queue, ["a1", "a2", "a3", "b1"]);
    await settle();
    expect(admitted).toEqual(["a1", "a2", "b1"]);
    turns[2]!.release();
    await settle();
    expect([queue.running, queue.waiting]).toEqual([2, 1]);
    turns[0]!.release();
    await settle();
    expect(admitted).toEqual(["a1", "a2", "b1", "a3"]);
  });

  test("asks a turn with a grammar back where all have one, for a request without", async () => {
    const queue = new AdmissionQueue(3, 10);
    const how = { mayPause: true, isMasked: true };
    const masked = await Promise.all([1, 2, 3].map(() => queue.enter("a", forever, how)));
    const waiting = queue.enter("a", forever, how);
    expect(masked.some(({ preempted }) => preempted.aborted)).toBe(false);
    const free = queue.enter("a", forever, { mayPause: true });
    expect(masked.map(({ preempted }) => preempted.aborted)).toEqual([false, false, true]);
    masked[2]!.release();
    const turn = await free; // before the one with a grammar that came first
    expect([queue.running, queue.waiting]).toEqual([3, 1]);
    // Its quantum is spent: another one without a grammar would have its turn, but not one with.
    for (let i = 0; i < 100; i++) turn.spend();
    expect(turn.preempted.aborted).toBe(false);
    expect(masked[0]!.preempted.aborted).toBe(false);
    const other = queue.enter("a", forever, { mayPause: true });
    expect(turn.preempted.reason).toBe(QUANTUM_SPENT);
    turn.release();
    (await other).release();
    (await waiting).release();
    expect([queue.running, queue.waiting]).toEqual([2, 0]);
  });

  test("keeps the only turn without a grammar from another client's grammars", async () => {
    const queue = new AdmissionQueue(2, 10);
    const how = { mayPause: true, isMasked: true };
    const [free] = [await queue.enter("a", forever, { mayPause: true })];
    await queue.enter("a", forever, how);
    const waiting = queue.enter("b", forever, how);
    expect(free!.preempted.aborted).toBe(false);
    free!.release();
    (await waiting).release();
    // Alone, a turn is shared as any other.
    const one = new AdmissionQueue(1, 10);
    const only = await one.enter("a", forever, how);
    void one.enter("a", forever, { mayPause: true });
    expect(only.preempted.aborted).toBe(false);
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
