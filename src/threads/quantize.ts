// A quantizing thread's entry: it quantizes the chunks that src/tools/quantize/ sends. The platform starts it.

import { currentPlatform } from "../platform/current.ts";
import { serveQuantize } from "../tools/quantize/thread.ts";

serveQuantize((await currentPlatform()).enginePort());
