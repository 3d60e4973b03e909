// npm run bench:start: the CPU seconds that a start takes, of all threads: Node itself, --version, --help, a command's help, and a
// run of one token. Medians of several rounds, one after the other in each round, so that a busy machine is busy for all alike.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "7" },
    launcher: { type: "string", multiple: true, default: [`${root}bin/lantern.js`] },
    model: { type: "string", default: "stories15m" },
  },
});

/** CPU seconds of a program and all that it starts; POSIX shells count them. */
function cpuSeconds(args: readonly string[]): number {
  const script = '"$0" "$@" > /dev/null 2> /dev/null; times';
  const { stdout } = spawnSync("sh", ["-c", script, process.execPath, ...args], {
    encoding: "utf8",
  });
  const ofChildren = stdout.trim().split("\n").at(-1)!;
  const parts = [...ofChildren.matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.reduce(
    (sum, [, minutes, seconds]) => sum + Number(minutes) * 60 + Number(seconds),
    0,
  );
}

const cases: [string, string[]][] = [["node -e 0", ["-e", "0"]]];
for (const launcher of values.launcher) {
  for (const args of [
    ["--version"],
    ["--help"],
    ["run", "--help"],
    ["run", "-n", "1", "-m", values.model],
  ]) {
    const shown = values.launcher.length > 1 ? `${launcher} ${args.join(" ")}` : args.join(" ");
    cases.push([shown, [launcher, ...args]]);
  }
}
const seconds = cases.map((): number[] => []);
for (let round = -1; round < Number(values.rounds); round++) {
  cases.forEach(([, args], i) => {
    const taken = cpuSeconds(args);
    if (round >= 0) seconds[i]!.push(taken); // the first fills caches
  });
}
cases.forEach(([name], i) => {
  const sorted = seconds[i]!.sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)]!;
  console.log(
    `${median.toFixed(2)} s  ${name}  (${sorted[0]!.toFixed(2)} to ${sorted.at(-1)!.toFixed(2)})`,
  );
});
