// The route families, one line each. A family is a file in this folder; app.ts mounts what stands here. Families that
// need more than the context (a database, say) are made by src/serve.ts and handed to it beside these.

import type { RouteFamily } from "../route.ts";
import { llamacppRoutes } from "./llamacpp.ts";
import { metricsRoutes } from "./metrics.ts";
import { openaiModelRoutes } from "./openai-models.ts";

export const routeFamilies: readonly RouteFamily[] = [
  openaiModelRoutes,
  llamacppRoutes,
  metricsRoutes,
];
