package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

func triggersCommand(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "triggers [RUN|RESULTS.json]",
		Short: "List what is waited for, since when, until when, and how to answer",
		Args:  between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var s *store.SQLite
			runID := ""
			if len(args) == 1 {
				s, runID, err = g.findRun(cmd.Context(), args[0])
			} else {
				s, err = g.open(true)
			}
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, internal(s.Close())) }()
			out := bufio.NewWriter(stdout(cmd))
			n, err := listTriggers(cmd, g, s, runID, all, out)
			if err := errors.Join(err, out.Flush()); err != nil {
				return internal(err)
			}
			if n == 0 && !g.json && !g.quiet {
				printf(cmd.ErrOrStderr(), "nothing is waited for\n")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list triggers that wait no more")
	return cmd
}

// triggerJSON is a trigger as --json prints it, one a line.
type triggerJSON struct {
	TriggerID      string             `json:"triggerId"`
	RunID          string             `json:"runId"`
	RolloutID      string             `json:"rolloutId"`
	EvaluationID   string             `json:"evaluationId"`
	EvaluationName string             `json:"evaluationName"`
	InterruptID    string             `json:"interruptId"`
	Type           string             `json:"type"`
	Source         string             `json:"source"`
	ItemKey        string             `json:"itemKey"`
	FolderPath     string             `json:"folderPath,omitempty"`
	State          store.TriggerState `json:"state"`
	CreatedAt      time.Time          `json:"createdAt"`
	Deadline       *time.Time         `json:"deadline"`
	NextCheck      *time.Time         `json:"nextCheck"`
	// LastError is why its source could not be asked the last time, or its job not be started.
	LastError string `json:"lastError,omitempty"`
	// ExpiresAt is when the source forgets the result.
	ExpiresAt *time.Time      `json:"expiresAt,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	// Deliveries are there with --all only.
	Deliveries []deliveryJSON `json:"deliveries,omitempty"`
}

// deliveryJSON is something that was delivered for a trigger.
type deliveryJSON struct {
	Disposition store.Disposition `json:"disposition"`
	Status      store.Status      `json:"status"`
	By          string            `json:"by"`
	ReceivedAt  time.Time         `json:"receivedAt"`
}

func deliveriesOf(ctx context.Context, s *store.SQLite, triggerID string) (out []deliveryJSON, err error) {
	all, err := s.Deliveries(ctx, triggerID)
	for _, d := range all {
		out = append(out, deliveryJSON{d.Disposition, d.Status, d.By, d.ReceivedAt})
	}
	return out, err
}

func newTriggerJSON(t store.Trigger) triggerJSON {
	out := triggerJSON{TriggerID: t.ID, RunID: t.RunID, RolloutID: t.RolloutID, EvaluationID: t.EvaluationID, EvaluationName: t.EvaluationName,
		InterruptID: t.InterruptID, Type: t.Type, Source: t.Source, ItemKey: t.ItemKey, FolderPath: t.FolderPath, State: t.State, CreatedAt: t.CreatedAt, Payload: payloadOf(t)}
	if !t.Deadline.IsZero() {
		out.Deadline = &t.Deadline
	}
	if !t.NextDue.IsZero() {
		out.NextCheck = &t.NextDue
	}
	out.ExpiresAt, out.LastError = specOf(t).ExpiresAt, t.LastError
	return out
}

// specOf is what the agent said of what it waits for.
func specOf(t store.Trigger) (spec wait.Spec) {
	_ = json.Unmarshal(t.Spec, &spec) // the store keeps only what was marshalled
	return spec
}

func payloadOf(t store.Trigger) json.RawMessage { return specOf(t).Visible() }

func listTriggers(cmd *cobra.Command, g *globals, s *store.SQLite, runID string, all bool, w io.Writer) (n int, err error) {
	now := time.Now()
	redactors := map[string]*redact.Redactor{}
	err = s.Triggers(cmd.Context(), runID, all, func(t store.Trigger) error {
		n++
		red, ok := redactors[t.RunID]
		if !ok {
			if red, err = redactorOf(cmd.Context(), s, t.RunID); err != nil {
				return err
			}
			redactors[t.RunID] = red
		}
		var deliveries []deliveryJSON
		if all {
			if deliveries, err = deliveriesOf(cmd.Context(), s, t.ID); err != nil {
				return err
			}
		}
		if !g.json {
			_, err := io.WriteString(w, red.String(describeTrigger(s, t, deliveries, now)))
			return err
		}
		shown := newTriggerJSON(t)
		shown.Deliveries = deliveries
		line, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		_, err = w.Write(append(red.JSON(line), '\n'))
		return err
	})
	return n, err
}

// payloadWidth is how much of a payload people see.
const payloadWidth = 300

// describeTrigger says what is waited for, since when, until when, and how to answer.
func describeTrigger(s *store.SQLite, t store.Trigger, deliveries []deliveryJSON, now time.Time) string {
	var b strings.Builder
	printf(&b, "%s  %-5s %s  %s\n", t.ID, t.Type, redact.Line(t.ItemKey), redact.Line(t.EvaluationName))
	var question struct{ Title string }
	if json.Unmarshal(payloadOf(t), &question) == nil && question.Title != "" { // what a person is asked
		printf(&b, "    %s\n", redact.Line(question.Title))
	}
	if payload := []rune(redact.Line(string(payloadOf(t)))); len(payload) > payloadWidth {
		printf(&b, "    %s…\n", string(payload[:payloadWidth]))
	} else if len(payload) > 0 {
		printf(&b, "    %s\n", string(payload))
	}
	printf(&b, "    %s since %s (%s)", t.State, t.CreatedAt.Local().Format(time.DateTime), now.Sub(t.CreatedAt).Round(time.Second))
	if !t.Deadline.IsZero() {
		printf(&b, ", until %s", t.Deadline.Local().Format(time.DateTime))
	}
	if at := specOf(t).ExpiresAt; at != nil {
		printf(&b, ", its source forgets it at %s", at.Local().Format(time.DateTime))
	}
	printf(&b, ", source %s\n", t.Source)
	if t.State.IsOpen() && t.Failures > 0 {
		printf(&b, "    its source could not be asked (%d in a row): %s\n", t.Failures, redact.Line(t.LastError))
	}
	for _, d := range deliveries {
		printf(&b, "    %s: %s, by %s, at %s\n", d.Disposition, d.Status, redact.Line(d.By), d.ReceivedAt.Local().Format(time.DateTime))
	}
	if t.State.IsOpen() {
		printf(&b, "    %s\n", strings.Join(answers(s, t), "\n    "))
	}
	return b.String()
}

// answers are the commands that end the wait for a trigger.
func answers(s *store.SQLite, t store.Trigger) []string {
	flag := storeFlag(s)
	switch {
	case t.Source != wait.SourceExternal:
		return []string{"evalrun asks it: " + resumeLine(s, t.RunID)}
	case t.Type == string(wait.Task):
		return []string{"answer: " + executable + " approve" + flag + " " + t.ID, "    or: " + executable + " deny" + flag + " " + t.ID}
	}
	return []string{"answer: " + executable + " deliver" + flag + " " + t.ID + " --payload FILE"}
}
