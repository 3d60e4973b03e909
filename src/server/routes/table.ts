// The route families, one line each. A family is a file in this folder; app.ts mounts what stands here. Families that
// need more than the context (a database, say) are made by src/server/serve.ts and handed to it beside these.

import type { RouteFamily } from "../route.ts";
import { anthropicRoutes } from "./anthropic.ts";
import { lanternLoginRoutes } from "./lantern-login.ts";
import { lanternStatusRoutes } from "./lantern-status.ts";
import { llamacppRoutes } from "./llamacpp.ts";
import { metricsRoutes } from "./metrics.ts";
import { ollamaRoutes } from "./ollama.ts";
import { openaiChatRoutes } from "./openai-chat.ts";
import { openaiCompletionRoutes } from "./openai-completions.ts";
import { openaiEmbeddingRoutes } from "./openai-embeddings.ts";
import { openaiModelRoutes } from "./openai-models.ts";
import { openaiResponseRoutes } from "./openai-responses.ts";

export const routeFamilies: readonly RouteFamily[] = [
  openaiModelRoutes,
  openaiChatRoutes,
  openaiCompletionRoutes,
  openaiResponseRoutes,
  openaiEmbeddingRoutes,
  anthropicRoutes,
  ollamaRoutes,
  llamacppRoutes,
  metricsRoutes,
  lanternLoginRoutes,
  lanternStatusRoutes,
];
