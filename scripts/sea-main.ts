// Where the single-file program starts: bin/lantern.js without a search for a better Node, since it brings its own.

import { main } from "../src/cli/main.ts";

process.exitCode = await main(process.argv.slice(2));
