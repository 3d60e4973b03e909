// The login of the web app: it gets its cookie, if it was not opened with the printed URL, with the token or the admin
// key that a person pasted into it, as Authorization: Bearer. Open to all clients, because the client has no rights
// yet: no body is read, and a wrong secret gives no rights.

import { adminLocalOnly, adminRefused, openaiErrors } from "../../errors.ts";
import type { RouteFamily } from "../../route.ts";

export const lanternLoginRoutes: RouteFamily = {
  name: "lantern-login",
  errors: openaiErrors,
  routes: [
    {
      method: "POST",
      path: "/lantern/v1/login",
      access: "open",
      handle: async ({ login, server }) => {
        const cookie = await login("header");
        if (cookie !== undefined) return new Response(null, { headers: { "set-cookie": cookie } });
        const { adminKey, token } = server.settings.access;
        if (adminKey === undefined && token === undefined) throw adminLocalOnly();
        throw adminRefused(adminKey === undefined ? "token" : "key", false);
      },
    },
  ],
};
