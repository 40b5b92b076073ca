#!/usr/bin/env node
'use strict'
// Starts the program that the package for this system has.
const name = `evalrun-${process.platform}-${process.arch}`
let program
try {
  program = require.resolve(`${name}/bin/evalrun`)
} catch {
  console.error(`evalrun: the package ${name} is not installed. Install evalrun again without --omit=optional` +
    ' (--no-optional); if there is no such package, evalrun has no program for this system.')
  process.exit(2)
}
const args = process.argv.slice(2)
if (process.execve) { // Node 23.11 and later: the program takes the place of this process
  process.removeAllListeners('warning') // it is said to be experimental
  process.on('warning', () => {})
  process.execve(program, ['evalrun', ...args], process.env)
}
const child = require('child_process').spawn(program, args, { stdio: 'inherit' })
// A terminal sends SIGINT to the program, too, which counts how often it comes.
process.on('SIGINT', () => {})
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
child.on('error', error => {
  console.error(`evalrun: ${error.message}`)
  process.exit(4)
})
child.on('exit', (code, signal) => {
  if (!signal) process.exit(code)
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
})
