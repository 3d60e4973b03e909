// --log-level and LANTERN_LOG: what stderr says at each level. stdout is the same at all of them.

import { describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

async function run(args: string[], environment: Record<string, string> = {}) {
  const terminal = new FakeTerminal();
  Object.assign(terminal.environment, environment);
  const code = await main(args, terminal);
  return { code, stdout: terminal.stdout, stderr: terminal.stderr };
}

const wrong = { LANTERN_LOG: "loud" };

describe("a generation", async () => {
  const file = await tinyFile();
  // A context above the trained one gives a warning, the timings are an info.
  const flags = ["-m", file.path, "-p", "the", "-n", "2", "--temp", "0", "-c", "100000", "-t", "1"];
  const said = async (args: string[], environment?: Record<string, string>) => {
    const { code, stdout, stderr } = await run(args, environment);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/\S/) });
    return {
      warning: /^Warning: a context of/m.test(stderr),
      timings: /tokens\/s/.test(stderr),
      debug: /debug: run: Lantern \d.*\n(.*\n)*debug: backend cpu, 1 thread/.test(stderr),
    };
  };
  const levels = {
    warn: { warning: true, timings: false, debug: false },
    info: { warning: true, timings: true, debug: false },
    debug: { warning: true, timings: true, debug: true },
  };

  test("error, and what a flag asks for at every level", async () => {
    const { stdout, stderr } = await run(["run", ...flags, "--explain", "--log-level", "error"]);
    expect(stdout).toMatch(/\S/);
    expect(stderr).toMatch(/^backend cpu, 1 thread\n/);
    expect(stderr).not.toMatch(/Warning|tokens\/s|debug:/);
  });

  test("warn, before the command; the flag wins over the variable", async () => {
    const debug = { LANTERN_LOG: "debug" };
    expect(await said(["--log-level", "warn", "run", ...flags], debug)).toEqual(levels.warn);
  });

  test("info, without a flag", async () => {
    expect(await said(flags)).toEqual(levels.info);
  });

  test("debug, from the variable", async () => {
    expect(await said(["run", ...flags], { LANTERN_LOG: "debug" })).toEqual(levels.debug);
    file.remove();
  });
});

test("an error is said at every level", async () => {
  const { code, stderr } = await run(["run", "-m", "/no/such.gguf", "--log-level", "error"]);
  expect(code).toBeGreaterThan(0);
  expect(stderr).toMatch(/^lantern: .*such\.gguf/);
});

test("a wrong level is an error of usage", async () => {
  const flag = await run(["machine", "--log-level", "loud"]);
  expect(flag.code).toBe(2);
  expect(flag.stderr).toContain("Allowed choices are error, warn, info, debug.");
  const variable = await run(["machine"], wrong);
  expect(variable).toEqual({
    code: 2,
    stdout: "",
    stderr: 'lantern: LANTERN_LOG: got "loud", expected one of error, warn, info, debug\n',
  });
  // A flag wins even over a wrong variable.
  expect((await run(["tokenize", "--log-level", "loud"], wrong)).stderr).not.toContain(
    "LANTERN_LOG",
  );
});
