// A thread of Lantern's that hangs when it is told to: a message that contains the magic words ends in a loop, before the
// thread's own code sees it. Everything else is the real thread. Its data says which one it is.

import { parentPort, workerData } from "node:worker_threads";

const { entry, words } = workerData as { entry: string; words: string };
const port = parentPort!;
const listen = port.on.bind(port);
port.on = ((name: "message", listener: (message: unknown) => void) =>
  listen(name, (message: { params?: unknown }) => {
    if (JSON.stringify(message.params ?? "").includes(words)) for (;;); // only its end ends this
    listener(message);
  })) as typeof port.on;
await import(`../../src/threads/${entry}.ts`);
