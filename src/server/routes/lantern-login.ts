// How the web app gets its cookie where it was not opened with the printed address: with the token or the admin key that a
// person pasted into it. Open to everybody, since whoever asks has nothing yet; what is wrong gives nothing.

import * as z from "zod";
import { adminRefused, openaiErrors } from "../errors.ts";
import type { RouteFamily } from "../route.ts";
import { bodyFields } from "./lantern-service.ts";

const given = z.strictObject({ key: z.string().min(1).max(1000) });

export const lanternLoginRoutes: RouteFamily = {
  name: "lantern-login",
  errors: openaiErrors,
  routes: [
    {
      method: "POST",
      path: "/lantern/v1/login",
      access: "open",
      handle: async (call) => {
        const { key } = await bodyFields(call, given);
        const cookie = await call.login(key.trim());
        const { access } = call.server.settings;
        if (cookie !== undefined) return new Response(null, { headers: { "set-cookie": cookie } });
        throw adminRefused(access.adminKey === undefined ? "token" : "key", false);
      },
    },
  ],
};
