// Entry of a measuring thread: runs the rounds that src/machine/measure.ts requests.

import { serveMeasure } from "../machine/thread.ts";
import { currentPlatform } from "../platform/current.ts";

const platform = await currentPlatform();
serveMeasure({ port: platform.enginePort(), now: platform.now, native: platform.native });
