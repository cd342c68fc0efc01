// Addresses of the page: /KIND, and /KIND/ID for what is open. An ID may have dots, slashes and percent signs.

import { useLocation } from "wouter";

/** Return the address that opens one task, actor, run, … */
export function addressOf(kind: string, id: string): string {
  return `/${kind}/${encodeURIComponent(id)}`;
}

/** Return the ID in the address, or null. */
export function useOpenId(): string | null {
  useLocation(); // renders again when the address changes
  // Not the parameter of the route: the router has decoded it partly, so "50%25" cannot be told from "50%".
  const [, ...rest] = window.location.pathname.slice(1).split("/");
  return decoded(rest.join("/")) || null;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}
