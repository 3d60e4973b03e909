// Trusted Types: browsers that know them take HTML only from a policy, and the server's headers allow the page one. What goes through it
// must come from sanitize.ts; there is nothing to check here.

interface Policy {
  createHTML(html: string): string;
  createScriptURL(url: string): string;
}

interface Factory {
  createPolicy(name: string, rules: Policy): Policy;
}

const rules: Policy = {
  createHTML: (html) => html,
  createScriptURL: (url) => {
    throw new TypeError(`the page loads no scripts by their address: got ${url.slice(0, 200)}`);
  },
};

const { trustedTypes } = globalThis as { trustedTypes?: Factory };

/** An object takes the place of each string where the browser has Trusted Types, and is one for everybody else. */
export const policy: Policy = trustedTypes?.createPolicy("lantern", rules) ?? rules;
