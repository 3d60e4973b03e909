// Why a test is skipped, for its title: CI counts what was not run by these reasons, and fails where none is given.

/** What follows the title of a test that is skipped; "" where it runs. */
export function skippedFor(reason: string, isSkipped: boolean): string {
  return isSkipped ? ` [skipped: ${reason}]` : "";
}
