// The reporter as vitest takes it from a file: as a default export.

import { TallyReporter } from "./tally.ts";

export default TallyReporter;
