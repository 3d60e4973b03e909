// Entry of a quantizing thread: quantizes the chunks that src/tools/quantize/ sends.

import { currentPlatform } from "../platform/current.ts";
import { serveQuantize } from "../tools/quantize/thread.ts";

serveQuantize((await currentPlatform()).enginePort());
