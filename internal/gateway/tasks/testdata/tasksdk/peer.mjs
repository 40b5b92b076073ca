import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

/** Gives a module of where the SDK is installed; the first argument is a file there. */
export const installed = createRequire(process.argv[2]);

/**
 * Does what the lines of stdin tell, {id, do, args}, at once and without an order, and answers each on stdout with {id, result} or {id, error}.
 * The end of stdin is the end of the process.
 */
export function serve(commands) {
  createInterface({ input: process.stdin })
    .on('line', async line => {
      const { id, do: name, args } = JSON.parse(line);
      let answer;
      try {
        answer = { result: (await commands[name](args)) ?? null };
      } catch (e) {
        answer = { error: { code: e.code, message: e.message, data: e.data } };
      }
      process.stdout.write(JSON.stringify({ id, ...answer }) + '\n');
    })
    .on('close', () => process.exit(0));
}
