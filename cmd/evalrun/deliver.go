package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// maxPayload is how large a delivered payload may be.
const maxPayload = 64 << 20

func deliverCommand(g *globals) *cobra.Command {
	var payload string
	d := runner.Delivery{By: "deliver"}
	cmd := &cobra.Command{
		Use:   "deliver TRIGGER|SOURCE/KEY (--payload FILE|- | --fail MESSAGE | --cancel)",
		Short: "Hand in the result that a trigger waits for",
		Long: `Hand in what a trigger waits for: the result of a job, an answer, or that the job failed or was
cancelled.

The trigger is named by its id, a unique beginning or end of it, or its source and item key; then
the delivery is for every trigger that waits for these. Prints what became of the delivery: accepted
("accepted 2" for two triggers), duplicate (the trigger has one already), late (its deadline has
passed, or nobody waits for it any more) or parked (nothing matches yet; kept for 7 days). Go on
with evalrun resume, unless an executor is running.

A job that evalrun asks its source for is refused without --force. With it the payload takes the
place of the job's result, and the job is cancelled where the source can.`,
		Example: `  evalrun deliver 0197c3a2 --payload result.json
  echo '{"answer": 42}' | evalrun deliver external/job-42 --payload -`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			if cmd.Flags().Changed("payload") {
				given++
				var err error
				if d.Payload, err = readPayload(cmd, payload); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("fail") {
				given++
				d.Failed = true
			}
			if d.Cancelled {
				given++
			}
			if given != 1 {
				return usageError("give one of --payload FILE, --fail MESSAGE and --cancel")
			}
			return g.deliver(cmd, args[0], d, nil, nil)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&d.Force, "force", false, forceUsage)
	f.StringVar(&d.Person, "by", "", "`WHO` answers, if a person does")
	f.StringVar(&payload, "payload", "", "a `FILE` with the payload, one JSON document; - is stdin")
	f.StringVar(&d.Message, "fail", "", "the job failed, with `MESSAGE`")
	f.BoolVar(&d.Cancelled, "cancel", false, "the job was cancelled")
	return cmd
}

const forceUsage = "also answer for a job that evalrun asks its source for; the job is cancelled"

// answerCommand is approve or deny.
func answerCommand(g *globals, verb string) *cobra.Command {
	var data, reason, by string
	var force bool
	cmd := &cobra.Command{
		Use:   verb + " TRIGGER",
		Short: "Answer a question to a person: " + verb,
		Long: fmt.Sprintf(`Answer a trigger that waits for a person. The payload is {"action":%q,"approved":%t},
with "reason" and "data" if they are given. The first answer counts. The same once more is a
duplicate and does no harm; another one is kept, and the exit code is 2.`, verb, verb == "approve"),
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer := map[string]any{"action": verb, "approved": verb == "approve"}
			if reason != "" {
				answer["reason"] = reason
			}
			if data != "" {
				content, err := readPayload(cmd, data)
				if err != nil {
					return err
				}
				answer["data"] = content
			}
			payload, err := json.Marshal(answer)
			if err != nil {
				return internal(err)
			}
			if !cmd.Flags().Changed("by") {
				by = userName()
			}
			return g.deliver(cmd, args[0], runner.Delivery{Payload: payload, By: verb, Person: by, Force: force},
				func(s *runner.Store) error {
					if verb != "approve" || force {
						return nil
					}
					note, err := s.ApprovalNote(cmd.Context(), args[0])
					if err == nil && note != "" {
						err = usageError("%s: %s; deny it, or use --force to tell the agent all the same", args[0], note)
					}
					return err
				},
				func(r runner.Receipt) error { return contradiction(r, verb == "approve") })
		},
	}
	forced := forceUsage
	if verb == "approve" {
		forced += "; also approve what the agent will ask again"
	}
	cmd.Flags().BoolVar(&force, "force", false, forced)
	cmd.Flags().StringVar(&reason, "reason", "", "the `REASON`")
	cmd.Flags().StringVar(&by, "by", "", "`WHO` answers; you by default")
	cmd.Flags().StringVar(&data, "data", "", "a `FILE` with more data, one JSON document; - is stdin")
	return cmd
}

// contradiction returns an error if a trigger had another answer before, which counts.
func contradiction(r runner.Receipt, approved bool) error {
	words := map[bool]string{true: "approved", false: "denied"}
	had := "answered"
	var answer struct{ Approved *bool }
	if text := string(r.Earlier.Payload); text == "true" || text == "false" {
		had = words[text == "true"]
	} else if json.Unmarshal(r.Earlier.Payload, &answer) == nil && answer.Approved != nil {
		had = words[*answer.Approved]
	}
	if r.Disposition != runner.Duplicate || had == words[approved] {
		return nil
	}
	by := r.Earlier.By
	if r.Earlier.Person != "" {
		by += " (" + r.Earlier.Person + ")"
	}
	return usageError("trigger %s is already %s, by %s, at %s: that counts, and this answer changes nothing", r.Trigger.TriggerID, had,
		redact.Line(by), r.Earlier.ReceivedAt.Local().Format(time.DateTime))
}

// userName is the name of the user who runs evalrun, or empty if the system does not tell.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

func readPayload(cmd *cobra.Command, path string) (json.RawMessage, error) {
	in, name := cmd.InOrStdin(), "stdin"
	if path != "-" {
		f, err := input.Open(path)
		if err != nil {
			return nil, usageError("%w", input.Unreadable(path, err))
		}
		defer f.Close()
		in, name = f, path
	}
	data, err := input.ReadAll(in, name, maxPayload)
	if err != nil {
		return nil, usageError("%w", input.Unreadable(name, err))
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, notJSON(name, data, err)
	}
	return out.Bytes(), nil
}

// notJSON returns an error that says where a payload is not JSON.
func notJSON(name string, data []byte, err error) error {
	if _, problem := input.ParseJSON(name, data); problem != nil {
		err = problem
	}
	return usageError("%w; a payload is one JSON document, in which a text stands in quotes", err)
}

// deliver delivers, and prints the disposition. It does not deliver if before returns an error, and
// returns the error of after at the end; both may be nil.
func (g *globals) deliver(cmd *cobra.Command, name string, d runner.Delivery, before func(*runner.Store) error,
	after func(runner.Receipt) error) error {
	return g.withStore(cmd, false, func(s *runner.Store) error {
		if before != nil {
			if err := before(s); err != nil {
				return err
			}
		}
		receipt, err := s.Deliver(cmd.Context(), name, d)
		var polled *runner.PolledError
		if errors.As(err, &polled) {
			return polledError(s, name, polled)
		}
		if err != nil {
			return err
		}
		if err := g.printReceipt(cmd, s, receipt); err != nil || after == nil {
			return err
		}
		return after(receipt)
	})
}

// printReceipt prints the outcome of a delivery.
func (g *globals) printReceipt(cmd *cobra.Command, s *runner.Store, receipt runner.Receipt) error {
	if g.json {
		return printJSON(cmd, receiptJSON(receipt))
	}
	if n := len(receipt.Accepted); n > 1 {
		printf(stdout(cmd), "%s %d\n", receipt.Disposition, n)
	} else {
		printf(stdout(cmd), "%s\n", receipt.Disposition)
	}
	if !g.quiet {
		printf(cmd.ErrOrStderr(), "%s\n", whatNow(s, receipt))
	}
	return nil
}

// polledError tells the user what to do instead of delivering, when evalrun asks the job's source
// itself.
func polledError(s *runner.Store, name string, e *runner.PolledError) error {
	const withForce = "Give --force to answer in its place: the job is then cancelled where the source can"
	if e.TriggerID == "" {
		return usageError("%s: %w; evalrun resume RUN does so now. %s", name, e, withForce)
	}
	return usageError("%w; %s does so now. %s", e, resumeLine(s, e.RunID), withForce)
}

// receiptJSON is a receipt as --json prints it: with the first trigger that it is for, and all
// triggers that have accepted the delivery.
func receiptJSON(r runner.Receipt) map[string]any {
	of := func(t runner.TriggerRef) map[string]any {
		return map[string]any{"triggerId": nilIfEmpty(t.TriggerID), "runId": nilIfEmpty(t.RunID),
			"rolloutId": nilIfEmpty(t.RolloutID)}
	}
	out := of(r.Trigger)
	out["disposition"] = r.Disposition
	var accepted []any
	for _, t := range r.Accepted {
		accepted = append(accepted, of(t))
	}
	if accepted != nil {
		out["accepted"] = accepted
	}
	return out
}

func nilIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// whatNow explains a disposition to the person who delivered.
func whatNow(s *runner.Store, r runner.Receipt) string {
	switch r.Disposition {
	case runner.Duplicate:
		return "it had a delivery before, which counts; this one is kept"
	case runner.Late:
		if !r.Overdue.IsZero() {
			return "it came after the deadline, " + r.Overdue.Local().Format(time.DateTime) + "; the delivery is kept"
		}
		return "nobody waits for it any more; the delivery is kept"
	case runner.Parked:
		return "nobody waits for it yet; the delivery is kept for 7 days (evalrun triggers lists what is waited for)"
	}
	var lines []string
	for _, runID := range r.RunIDs() {
		lines = append(lines, "go on with: "+resumeLine(s, runID))
	}
	return strings.Join(lines, "\n")
}
