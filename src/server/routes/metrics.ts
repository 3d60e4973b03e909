// /metrics: counters for Prometheus.

import { openaiErrors } from "../errors.ts";
import { metricsText } from "../metrics.ts";
import type { RouteFamily } from "../route.ts";

export const metricsRoutes: RouteFamily = {
  name: "metrics",
  errors: openaiErrors,
  routes: [
    {
      method: "GET",
      path: "/metrics",
      handle: ({ server: { metrics, queue } }) => {
        const text = metricsText(metrics, [
          { name: "lantern_running", help: "Generations that run now.", value: queue.running },
          {
            name: "lantern_waiting",
            help: "Generations that wait for a place.",
            value: queue.waiting,
          },
          {
            name: "lantern_parallel",
            help: "Generations that may run at once.",
            value: queue.parallel,
          },
        ]);
        return new Response(text, { headers: { "content-type": "text/plain; version=0.0.4" } });
      },
    },
  ],
};
