// What private-files.test.ts runs in a process of its own, with an umask and a home: everything that Lantern keeps is
// written once, as the commands do it. Arguments: the umask, and a file to save a conversation to.

import { announceServer } from "../../src/catalog/servers.ts";
import { nodeTerminal } from "../../src/platform/node-cli.ts";
import { defaultDatabaseFile, openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { nodeSmallFiles } from "../../src/platform/node-small-files.ts";

const [, , umask, conversation] = process.argv;
process.umask(Number.parseInt(umask!, 8));

const database = openNodeDatabase(defaultDatabaseFile("sessions.db"));
database.exec("CREATE TABLE IF NOT EXISTS secrets (text TEXT)");
database.exec("INSERT INTO secrets VALUES ('mine')");

const small = nodeSmallFiles();
await small.read("machine.json");
await small.write("tune.json", "{}");

const platform = nodeDownloadPlatform();
await announceServer(platform, { url: "http://127.0.0.1:1", since: "now", models: [] });
const folder = platform.join(platform.cacheFolder, "hf", "owner");
await platform.makeFolder(folder);
await platform.lock(platform.join(folder, "model.gguf.lock"));
await platform.writeText(platform.join(folder, "model.gguf.part.json"), "{}");
await (await platform.openAppend(platform.join(folder, "model.gguf.part"), 0)).close();

await nodeTerminal().writeText(conversation!, "said");

process.exit(0); // as a kill would: the database's log stays
