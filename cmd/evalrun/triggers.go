package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/redact"
	"github.com/evalrun/evalrun/store"
	"github.com/evalrun/evalrun/trigger"
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
	Payload        json.RawMessage    `json:"payload"`
}

func newTriggerJSON(t store.Trigger) triggerJSON {
	var spec struct {
		Payload json.RawMessage `json:"payload"`
	}
	_ = json.Unmarshal(t.Spec, &spec) // the store keeps only what was marshalled
	out := triggerJSON{TriggerID: t.ID, RunID: t.RunID, RolloutID: t.RolloutID, EvaluationID: t.EvaluationID, EvaluationName: t.EvaluationName,
		InterruptID: t.InterruptID, Type: t.Type, Source: t.Source, ItemKey: t.ItemKey, FolderPath: t.FolderPath, State: t.State, CreatedAt: t.CreatedAt, Payload: spec.Payload}
	if !t.Deadline.IsZero() {
		out.Deadline = &t.Deadline
	}
	if !t.NextDue.IsZero() {
		out.NextCheck = &t.NextDue
	}
	return out
}

func listTriggers(cmd *cobra.Command, g *globals, s *store.SQLite, runID string, all bool, w io.Writer) (n int, err error) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	now := time.Now()
	err = s.Triggers(cmd.Context(), runID, all, func(t store.Trigger) error {
		n++
		if g.json {
			return enc.Encode(newTriggerJSON(t))
		}
		return writeTrigger(w, s, t, now)
	})
	return n, err
}

func writeTrigger(w io.Writer, s *store.SQLite, t store.Trigger, now time.Time) error {
	until := ""
	if !t.Deadline.IsZero() {
		until = ", until " + t.Deadline.Local().Format(time.DateTime)
	}
	_, err := fmt.Fprintf(w, "%s  %-5s %s  %s\n    %s since %s (%s)%s, source %s\n", t.ID, t.Type, redact.Terminal(t.ItemKey), redact.Terminal(t.EvaluationName),
		t.State, t.CreatedAt.Local().Format(time.DateTime), now.Sub(t.CreatedAt).Round(time.Second), until, t.Source)
	if err != nil || !t.State.IsOpen() {
		return err
	}
	_, err = fmt.Fprintf(w, "    %s\n", strings.Join(answers(s, t), "\n    "))
	return err
}

// answers are the commands that end the wait for a trigger.
func answers(s *store.SQLite, t store.Trigger) []string {
	flag := storeFlag(s)
	switch {
	case t.Source != trigger.SourceExternal:
		return []string{"evalrun asks it: " + resumeLine(s, t.RunID)}
	case t.Type == string(trigger.Task):
		return []string{"answer: " + executable + " approve" + flag + " " + t.ID, "    or: " + executable + " deny" + flag + " " + t.ID}
	}
	return []string{"answer: " + executable + " deliver" + flag + " " + t.ID + " --payload FILE"}
}
