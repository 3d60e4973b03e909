// A measuring thread's entry: it runs the rounds that src/machine/measure.ts asks for. The platform starts it.

import { serveMeasure } from "../machine/thread.ts";
import { currentPlatform } from "../platform/current.ts";

const platform = await currentPlatform();
serveMeasure({ port: platform.enginePort(), now: platform.now, native: platform.native });
