// Trusted Types: browsers that know them take HTML only from a policy, and the server's headers allow the page one. All HTML for it must
// come from sanitize.ts; there is nothing to check here.

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

/** A policy object in browsers with Trusted Types, where it makes an object of each string; the plain rules in all others. */
export const policy: Policy = trustedTypes?.createPolicy("lantern", rules) ?? rules;
