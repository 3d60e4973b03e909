// Entry of the single-file program: bin/lantern.js without the search for a better Node, because it contains its own.

import { main } from "../apps/cli/main.ts";
import { endWith } from "../src/platform/node-process.ts";

endWith(await main(process.argv.slice(2)));
