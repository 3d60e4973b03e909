// A measuring thread's entry: it runs the rounds that src/tune/machine.ts asks for. The platform starts it.

import { currentPlatform } from "./platform/current.ts";
import { serveMeasure } from "./tune/machine-thread.ts";

const platform = await currentPlatform();
serveMeasure({ port: platform.enginePort(), now: platform.now, native: platform.native });
