// The CPU seconds that a start takes, of all threads: Node itself, --version, --help, a command's help, and a run of one token. Medians
// of several rounds in turns, so that a busy machine is busy for all alike.
//
//   npm run bench:start -- [--rounds 7] [--launcher bin/lantern.js ...] [--model stories15m]

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { measure, summarize } from "../src/base/measure.ts";
import { bench, count, several, sum, text } from "./harness.ts";

const own = fileURLToPath(new URL("../bin/lantern.js", import.meta.url));
const flags = {
  rounds: count(7),
  launcher: several("FILE", [own], (path) => path),
  model: text("stories15m"),
};

/** CPU seconds of a program and all that it starts; POSIX shells count them. */
function cpuSeconds(args: readonly string[]): number {
  const script = '"$0" "$@" > /dev/null 2> /dev/null; times';
  const all = ["-c", script, process.execPath, ...args];
  const { stdout } = spawnSync("sh", all, { encoding: "utf8" });
  const ofChildren = stdout.trim().split("\n").at(-1)!;
  const parts = [...ofChildren.matchAll(/(\d+)m([\d.]+)s/g)];
  return sum(parts.map(([, minutes, seconds]) => Number(minutes) * 60 + Number(seconds)));
}

await bench("npm run bench:start --", "", flags, async ({ rounds, launcher, model }) => {
  const commands = [["--version"], ["--help"], ["run", "--help"], ["run", "-n", "1", "-m", model]];
  const contestants = [
    { name: "node -e 0", args: ["-e", "0"] },
    ...launcher.flatMap((path) =>
      commands.map((args) => ({
        name: (launcher.length > 1 ? [path, ...args] : args).join(" "),
        args: [path, ...args],
      })),
    ),
  ];
  const run = ({ args }: { args: readonly string[] }) => cpuSeconds(args);
  const { samples } = await measure({ contestants, rounds, warmUps: 1, run });
  for (const [i, { name }] of contestants.entries()) {
    const { median, min, max } = summarize(samples[i]!);
    console.log(`${median.toFixed(2)} s  ${name}  (${min.toFixed(2)} to ${max.toFixed(2)})`);
  }
});
