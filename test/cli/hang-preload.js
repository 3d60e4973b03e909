// Loaded into every thread of a process by signals.test.ts: when the file that LANTERN_TEST_HANG names is there, threads other than
// the first say so in a file and hang, in JavaScript ("loop") or in a call that JavaScript cannot interrupt ("call").

import { existsSync, openSync, writeFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";

const { LANTERN_TEST_HANG: file, LANTERN_TEST_HANG_IN: how } = process.env;

if (!isMainThread && file) {
  const look = setInterval(() => {
    if (!existsSync(file)) return;
    clearInterval(look);
    writeFileSync(`${file}ing`, "");
    if (how === "loop") for (;;);
    openSync(file, "r"); // a pipe that nobody writes to: the system call does not return
  }, 20);
  look.unref();
}
