package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func triggersCommand(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "triggers [RUN|RESULTS.json]",
		Short: "List what suspended rollouts are waiting for, and how to answer",
		Args:  between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
					return g.triggers(cmd, s, run.ID, all)
				})
			}
			return g.withStore(cmd, false, func(s *runner.Store) error { return g.triggers(cmd, s, "", all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list those that are closed")
	return cmd
}

func (g *globals) triggers(cmd *cobra.Command, s *runner.Store, runID string, all bool) error {
	out := bufio.NewWriter(stdout(cmd))
	n, now := 0, time.Now()
	list := arrayWriter{w: out}
	err := s.Triggers(cmd.Context(), runID, all, func(t runner.Trigger) error {
		n++
		if g.json {
			return list.add(t)
		}
		_, err := out.WriteString(describeTrigger(s, t, now))
		return err
	})
	if g.json && err == nil {
		err = list.close()
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return internal(err)
	}
	if n == 0 && !g.json && !g.quiet {
		printf(cmd.ErrOrStderr(), "no rollout is waiting for anything\n")
	}
	return nil
}

// payloadWidth is how much of a payload people see. A longer one is cut, with the number of missing
// characters.
const payloadWidth = 300

// describeTrigger describes a trigger: what it waits for, since when, until when, and how to answer
// it.
func describeTrigger(s *runner.Store, t runner.Trigger, now time.Time) string {
	var b strings.Builder
	printf(&b, "%s  %-5s %s  %s\n", t.TriggerID, t.Type, redact.Line(t.ItemKey), redact.Line(t.EvaluationName))
	if t.EvaluatorID != "" {
		printf(&b, "    for the evaluator %s\n", redact.Line(t.EvaluatorID))
	}
	var question struct{ Title string }
	if json.Unmarshal(t.Payload, &question) == nil && question.Title != "" { // a question to a person
		printf(&b, "    %s\n", redact.Line(question.Title))
	}
	if payload := []rune(redact.Line(string(t.Payload))); len(payload) > payloadWidth {
		printf(&b, "    %s…\n", string(payload[:payloadWidth]))
		printf(&b, "    %s more: %s triggers%s --json %s\n", counted(len(payload)-payloadWidth, "character"), executable, storeFlag(s),
			t.RunID)
	} else if len(payload) > 0 {
		printf(&b, "    %s\n", string(payload))
	}
	if t.Note != "" {
		printf(&b, "    note: %s\n", redact.Line(t.Note))
	}
	printf(&b, "    %s since %s (%s)", t.State, t.CreatedAt.Local().Format(time.DateTime),
		now.Sub(t.CreatedAt).Round(time.Second))
	if t.Deadline != nil {
		printf(&b, ", until %s", t.Deadline.Local().Format(time.DateTime))
	}
	if at := t.ExpiresAt; at != nil {
		printf(&b, ", its source forgets it at %s", at.Local().Format(time.DateTime))
	}
	printf(&b, ", source %s\n", t.Source)
	if t.Open && t.Failures > 0 {
		printf(&b, "    its source could not be asked (%d in a row): %s\n", t.Failures, redact.Line(t.LastError))
	}
	for _, d := range t.Deliveries {
		by := d.By
		if d.Person != "" {
			by += " (" + d.Person + ")"
		}
		printf(&b, "    %s: %s, by %s, at %s\n", d.Disposition, d.Status, redact.Line(by),
			d.ReceivedAt.Local().Format(time.DateTime))
	}
	if t.Open {
		printf(&b, "    %s\n", strings.Join(answers(s, t), "\n    "))
	}
	return b.String()
}

// answers returns the commands that end the wait for a trigger.
func answers(s *runner.Store, t runner.Trigger) []string {
	flag := storeFlag(s)
	switch t.Answer {
	case runner.AnswerPoll:
		if t.Elsewhere {
			return []string{"its job runs on the machine " + redact.Line(t.Machine) + ", where evalrun asks it: " +
				resumeLine(s, t.RunID),
				"   or: " + executable + " deliver" + flag + " " + t.TriggerID + " --force --fail MESSAGE, if that machine is gone"}
		}
		return []string{"evalrun asks it: " + resumeLine(s, t.RunID)}
	case runner.AnswerRating:
		return []string{"answer: " + executable + " rate" + flag + " " + t.TriggerID + " VALUE --reason REASON"}
	case runner.AnswerDecision:
		return []string{"answer: " + executable + " approve" + flag + " " + t.TriggerID,
			"    or: " + executable + " deny" + flag + " " + t.TriggerID}
	}
	return []string{"answer: " + executable + " deliver" + flag + " " + t.TriggerID + " --payload FILE"}
}
