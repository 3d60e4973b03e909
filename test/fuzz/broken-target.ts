// A fuzz target that misbehaves as its input says: what the runner is tested with.

import type { FuzzTarget, Json } from "./target.ts";

interface Input {
  does: string;
  also: string[];
}

export const target: FuzzTarget = {
  name: "broken",
  describe: "for tests of the runner",
  make(seed, base) {
    const before = (base as unknown as Input | undefined)?.also.length ?? 0;
    const does = ["works", "works", "works", "throws", "waits"][seed % 5]!;
    return { does, also: ["noise", does, `${before > 3 ? 3 : before}`, String(seed)] };
  },
  async run(_seed, input) {
    const { does, also } = input as unknown as Input;
    if (does === "waits") await new Promise((resolve) => setTimeout(resolve, 1));
    if (does === "throws" && also.includes("throws")) throw new TypeError(`broken, ${also.length}`);
    if (does === "hangs") for (;;);
    if (does === "eats") {
      const held: Json[] = [];
      for (;;) held.push(Array(100_000).fill(held.length));
    }
    if (does === "dies") process.kill(process.pid, "SIGKILL");
    return does;
  },
};
