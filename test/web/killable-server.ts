// A server with the web app in a process of its own, for tests that kill it: as `lantern serve` does, it keeps its secret and its
// conversations in the data folder. Argument: the folder of the built app. It prints one line of JSON when it is ready.

import { startServer } from "../../apps/server/serve.ts";
import { readAssets } from "../../src/platform/node-assets.ts";
import { defaultDatabaseFile, openNodeDatabase } from "../../src/platform/node-database.ts";
import { keptSecret } from "../../src/platform/node-kept-secret.ts";
import { scriptedModel } from "./scripted-model.ts";

const { url, token } = await startServer({
  models: { scripted: scriptedModel({ answer: () => "So it is." }) },
  version: "test",
  port: 0,
  secret: keptSecret().secret,
  sessions: (options) => openNodeDatabase(defaultDatabaseFile("sessions.db"), options),
  assets: readAssets(`${process.argv[2]}/`)!,
});
console.log(JSON.stringify({ url, token }));
