// Package runner is evalrun as a library: it runs eval sets against agents, lets rollouts wait, and
// scores them when they are done. The command evalrun parses flags, calls this package and prints.
//
// Use the functions in this order:
//
//   - [Open] opens a store, the folder that holds runs. [OpenRun] opens the one that a results
//     document or a run's id names.
//   - [Load] reads an eval set, or task directories, and says what is wrong with them.
//   - [Store.Create] plans a run and stores the plan. No agent has been started by then.
//   - [Store.Run] works on the run until nothing can go on without waiting, or with RunOptions.Wait
//     until the run is final. Its [Result] has a [Verdict].
//   - [Store.Resume] first asks once for everything that the run waits for, and then does the same.
//     Call it in another process, hours later, if you like.
//   - [Store.Execute] looks after all runs of a store for as long as its context lives.
//   - [Store.Deliver] delivers to a trigger of a rollout; [Store.Cancel] ends a run or a rollout.
//   - [Store.Score] scores what a run has stored again, with its evaluators or with others.
//   - [Store.Triggers] lists what runs wait for, [Store.Runs] and [Store.Find] describe runs.
//   - [Store.Report] and [OpenReport] convert results. A program that only reads results documents
//     or events needs the package schemas alone.
//
// A context ends the work at once: agents are ended, and their segments are repeated when the run
// goes on. Close Options.Drain to let running agents finish first. Several runs and executors may
// work on a store at the same time, in one process or in many.
//
// An [*InputError] is about the input, and its text is for the person who gave it: it names an
// option by the flag that evalrun has for it. Every other error is a failure of evalrun or of the
// machine. A rollout that faults is no error but part of the result.
//
// The package never prints, exits or changes the folder of the process, and it keeps nothing in
// variables of its own. Do not write into a store's folder, and do not copy the folder while a
// process works on it. A program other than evalrun must name evalrun in OpenOptions.Executable to
// run ACP agents, tasks or local jobs. Do not show an agent's output without the redaction that
// events, reports and documents of this package have had.
package runner
