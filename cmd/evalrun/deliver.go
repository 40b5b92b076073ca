package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// maxPayload is how large a delivered payload may be.
const maxPayload = 64 << 20

func deliverCommand(g *globals) *cobra.Command {
	var payload, fail string
	var cancelled, force bool
	cmd := &cobra.Command{
		Use:   "deliver TRIGGER|SOURCE/KEY (--payload FILE|- | --fail MESSAGE | --cancel)",
		Short: "Hand in the payload that a trigger waits for",
		Long: `Hand in what a trigger waits for: the result of a job, an answer, or that the job failed or was cancelled.

The trigger is named by its id, a unique beginning of it, or its source and item key; then the delivery is for every
trigger that waits for these. Prints what became of the delivery: accepted ("accepted 2" for two triggers), duplicate
(the trigger has one already), late (its deadline has passed, or nobody waits for it any more) or parked (nothing matches
yet; kept for 7 days). Go on with evalrun resume, unless an executor is running.

A job that evalrun asks its source for is refused without --force. With it the payload takes the place of the job's
result, and the job is cancelled where the source can.`,
		Example: `  evalrun deliver 0197c3a2 --payload result.json
  echo '{"answer": 42}' | evalrun deliver external/job-42 --payload -`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := store.Delivery{Status: store.StatusSuccessful, By: "deliver"}
			given := 0
			if cmd.Flags().Changed("payload") {
				given++
				data, err := readPayload(cmd, payload)
				if err != nil {
					return err
				}
				d.Payload = data
			}
			if cmd.Flags().Changed("fail") {
				given++
				d.Status, d.Fault = store.StatusFaulted, fault.New("job", fail)
			}
			if cancelled {
				given++
				d.Status = store.StatusCancelled
			}
			if given != 1 {
				return usageError("give one of --payload FILE, --fail MESSAGE and --cancel")
			}
			return g.deliver(cmd, args[0], d, force)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&force, "force", false, forceUsage)
	f.StringVar(&payload, "payload", "", "a `FILE` with the payload, one JSON document; - is stdin")
	f.StringVar(&fail, "fail", "", "the job failed, with `MESSAGE`")
	f.BoolVar(&cancelled, "cancel", false, "the job was cancelled")
	return cmd
}

const forceUsage = "also answer for a job that evalrun asks its source for; the job is cancelled"

// answerCommand is approve or deny.
func answerCommand(g *globals, verb string) *cobra.Command {
	var data, reason string
	var force bool
	cmd := &cobra.Command{
		Use:   verb + " TRIGGER",
		Short: "Answer what a person was asked: " + verb,
		Long: fmt.Sprintf(`Answer a trigger that waits for a person. The payload is {"action":%q,"approved":%t}, with "reason" and "data" if
they are given.`, verb, verb == "approve"),
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
			return g.deliver(cmd, args[0], store.Delivery{Status: store.StatusSuccessful, Payload: payload, By: verb}, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, forceUsage)
	cmd.Flags().StringVar(&reason, "reason", "", "the `REASON`")
	cmd.Flags().StringVar(&data, "data", "", "a `FILE` with more data, one JSON document; - is stdin")
	return cmd
}

func readPayload(cmd *cobra.Command, path string) (json.RawMessage, error) {
	in, name := cmd.InOrStdin(), "stdin"
	if path != "-" {
		f, err := input.Open(path)
		if err != nil {
			return nil, usageError("%w", unreadable(path, err))
		}
		defer f.Close()
		in, name = f, path
	}
	data, err := input.ReadAll(in, name, maxPayload)
	if err != nil {
		return nil, usageError("%w", unreadable(name, err))
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, notJSON(name, data, err)
	}
	return out.Bytes(), nil
}

// notJSON says where a payload goes wrong.
func notJSON(name string, data []byte, err error) error {
	if _, problem := input.ParseJSON(name, data); problem != nil {
		err = problem
	}
	return usageError("%w; a payload is one JSON document, in which a text stands in quotes", err)
}

// deliver delivers and prints the disposition.
func (g *globals) deliver(cmd *cobra.Command, name string, d store.Delivery, force bool) error {
	return g.withStore(func(s *store.SQLite) error {
		receipt, err := deliverTo(cmd.Context(), s, name, d, force)
		if err != nil {
			return err
		}
		for _, runID := range runsOf(receipt) {
			if err := g.settleFailure(cmd, s, d, runID); err != nil {
				return err
			}
		}
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
	})
}

// receiptJSON is a receipt as --json prints it: with the first trigger that it is of, and all that have accepted the delivery.
func receiptJSON(r store.Receipt) map[string]any {
	of := func(t store.Trigger) map[string]any {
		return map[string]any{"triggerId": nilIfEmpty(t.ID), "runId": nilIfEmpty(t.RunID), "rolloutId": nilIfEmpty(t.RolloutID)}
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

// runsOf are the runs of the triggers that have accepted a delivery.
func runsOf(r store.Receipt) (ids []string) {
	for _, t := range r.Accepted {
		if !slices.Contains(ids, t.RunID) {
			ids = append(ids, t.RunID)
		}
	}
	return ids
}

// whatNow says what a disposition means for whoever delivered.
func whatNow(s *store.SQLite, r store.Receipt) string {
	switch r.Disposition {
	case store.Duplicate:
		return "it had a delivery before, which counts; this one is kept"
	case store.Late:
		if t := r.Trigger; !t.Deadline.IsZero() && (t.State.IsOpen() || t.State == store.TriggerExpired) {
			return "it came after the deadline, " + t.Deadline.Local().Format(time.DateTime) + "; the delivery is kept"
		}
		return "nobody waits for it any more; the delivery is kept"
	case store.Parked:
		return "nobody waits for it yet; the delivery is kept for 7 days (evalrun triggers lists what is waited for)"
	}
	var lines []string
	for _, runID := range runsOf(r) {
		lines = append(lines, "go on with: "+resumeLine(s, runID))
	}
	return strings.Join(lines, "\n")
}

// asked are the sources that evalrun asks for the results of jobs.
var asked = []string{wait.SourceExec, wait.SourceHTTP, wait.SourceUiPath, wait.SourceMCP}

func deliverTo(ctx context.Context, s *store.SQLite, name string, d store.Delivery, force bool) (store.Receipt, error) {
	if source, key, ok := strings.Cut(name, "/"); ok {
		if key == "" || !slices.Contains(wait.SourceNames, source) {
			return store.Receipt{}, usageError("%q: expected SOURCE/KEY, the source one of %s%s", name, strings.Join(wait.SourceNames, ", "), input.Suggest(source, wait.SourceNames))
		}
		if !force && slices.Contains(asked, source) {
			return store.Receipt{}, usageError("%s: evalrun asks the source %s for the results of its jobs; evalrun resume RUN does so now. %s", name, source, withForce)
		}
		d.Source, d.ItemKey = source, key
	} else {
		t, err := s.Trigger(ctx, name)
		switch {
		case err == nil && !force && t.State.IsOpen() && slices.Contains(asked, t.Source):
			return store.Receipt{}, usageError("trigger %s waits for %s %s, for whose result evalrun asks the source %s; %s does so now. %s",
				t.ID, t.Type, redact.Line(t.ItemKey), t.Source, resumeLine(s, t.RunID), withForce)
		case err == nil:
			d.TriggerID = t.ID
		case !errors.Is(err, store.ErrNotFound):
			return store.Receipt{}, internal(err)
		case !mayBeTrigger(ctx, s, name):
			return store.Receipt{}, usageError("%w; evalrun triggers lists them", err)
		default:
			d.TriggerID = name // it may still come
		}
	}
	receipt, err := s.Deliver(ctx, d)
	return receipt, internal(err)
}

const withForce = "Give --force to answer in its place: the job is then cancelled where the source can"

// mayBeTrigger tells the id of a trigger that is not there yet, which can be derived from its rollout's, from one that never will be.
func mayBeTrigger(ctx context.Context, s store.Store, name string) bool {
	id, err := uuid.Parse(name)
	if err != nil || id.String() != name || id.Version() != 5 {
		return false
	}
	_, err = s.RunOf(ctx, name)
	return errors.Is(err, store.ErrNotFound)
}

func nilIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// settleFailure brings the results document up to date if the delivery may have been the end of a rollout, or of the run: a failure that its agent
// cannot take.
func (g *globals) settleFailure(cmd *cobra.Command, s *store.SQLite, d store.Delivery, runID string) error {
	if d.Status == store.StatusSuccessful {
		return nil
	}
	run, err := s.Run(cmd.Context(), runID)
	if err != nil {
		return internal(err)
	}
	if run.Final() {
		return g.settle(cmd.Context(), cmd, s, runID, workFlags{})
	}
	red, err := redactorOf(cmd.Context(), s, runID)
	if err != nil {
		return err
	}
	return internal((&output{store: s, redact: red}).saveDocument(cmd.Context(), runID, ""))
}
