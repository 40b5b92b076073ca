package runner

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/calibrate"
	"github.com/evalrun/evalrun/internal/dataset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// CalibrateOptions say what is calibrated.
type CalibrateOptions struct {
	// Labels is a CSV, JSON Lines or Parquet file with a label in each row; Raters is an evaluator of
	// the run whose raters gave the labels. One of them is empty.
	Labels, Raters string
	// Evaluators are calibrated. Empty means those that have asked models, or else all.
	Evaluators []string
	// Pass is the least score that passes; nil for the one of the run.
	Pass *float64
	calibrate.Options
}

// Calibrate compares evaluators of the run with labels that people gave. The error is an
// *InputError about the labels or the evaluators, and calibrate.ErrNoPairs if no label has a
// verdict.
func (r *Report) Calibrate(o CalibrateOptions) (*calibrate.Document, error) {
	h := r.Head()
	if h.Statistics == nil {
		return nil, inputError("the results document of run %s has no statistics; write it anew from its store", h.RunID)
	}
	var known, judges []string
	for _, e := range h.Statistics.PerAgent()[0].Evaluators {
		known = append(known, e.ID)
	}
	for _, id := range append(slices.Clone(o.Evaluators), o.Raters) {
		if id != "" && !slices.Contains(known, id) {
			return nil, inputError("the run has no evaluator %q%s", id, input.Suggest(id, known))
		}
	}
	var rollouts []calibrate.Rollout
	var labels []calibrate.Label
	if err := r.r.Rollouts(func(one *schemas.Rollout) error {
		rollouts = append(rollouts, scoresOf(one))
		for _, e := range one.EvaluationRunResults {
			if e.Result.Judge != nil && !slices.Contains(judges, e.EvaluatorID) {
				judges = append(judges, e.EvaluatorID)
			}
			if e.EvaluatorID == o.Raters {
				labels = append(labels, ratingsOf(one, e.Result.Ratings)...)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if o.Raters == "" {
		var err error
		if labels, err = readLabels(o.Labels); err != nil {
			return nil, err
		}
	}
	o.Options.Evaluators = o.Evaluators
	if len(o.Evaluators) == 0 {
		o.Options.Evaluators = judges
	}
	if len(o.Options.Evaluators) == 0 {
		o.Options.Evaluators = slices.DeleteFunc(known, func(id string) bool { return id == o.Raters })
	}
	o.Options.Pass = r.r.Pass
	if o.Pass != nil {
		o.Options.Pass = *o.Pass
	}
	d, err := calibrate.Calibrate(rollouts, labels, o.Options)
	if err != nil && !errors.Is(err, calibrate.ErrNoPairs) {
		return nil, inputError("%s: %w", o.Labels, err)
	}
	if err != nil && o.Raters != "" && len(labels) == 0 {
		err = fmt.Errorf("%w: the evaluator %q has no rating of a person", err, o.Raters)
	}
	d.RunID, d.EvaluationSetName = h.RunID, h.EvaluationSetName
	return d, err
}

// scoresOf converts a rollout to its scores from 0 to 1.
func scoresOf(one *schemas.Rollout) calibrate.Rollout {
	out := calibrate.Rollout{ID: one.RolloutID, EvaluationID: one.EvaluationID, Agent: one.Agent, Cluster: one.Cluster,
		Epoch: one.Epoch, Scores: map[string]*float64{}}
	for _, e := range one.EvaluationRunResults {
		if e.IsLineResult || e.Result.Score == nil {
			continue
		}
		score := *e.Result.Score
		if e.Result.Scale > 0 {
			score /= e.Result.Scale
		}
		out.Scores[e.EvaluatorID] = &score
	}
	return out
}

// ratingsOf returns the labels that people gave to a rollout while the run waited for them.
func ratingsOf(one *schemas.Rollout, ratings []schemas.Rating) (out []calibrate.Label) {
	for i, r := range ratings {
		rater := r.Rater
		if rater == "" {
			rater = strconv.Itoa(i + 1)
		}
		out = append(out,
			calibrate.Label{EvaluationID: one.EvaluationID, Agent: one.Agent, Epoch: one.Epoch, Rater: rater, Value: r.Score})
	}
	return out
}

// readLabels reads a file with a label in each row.
func readLabels(path string) (out []calibrate.Label, err error) {
	err = dataset.EachRow(path, func(row *input.Node, line int) error {
		l, err := labelOf(row)
		l.Line = line
		out = append(out, l)
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: expected a row for each label, found none", path)
	}
	if err != nil {
		return nil, &InputError{Err: err}
	}
	return out, nil
}

func labelOf(row *input.Node) (l calibrate.Label, err error) {
	text := func(key string) string {
		n := row.Member(key)
		if n == nil || n.Kind == input.Null {
			return ""
		}
		if n.Kind == input.Bool {
			return string(n.JSON())
		}
		return n.Text
	}
	l.EvaluationID, l.Agent, l.Rater = text("evaluationId"), text("agent"), text("rater")
	if l.EvaluationID == "" {
		return l, errors.New("expected the id of an evaluation in evaluationId")
	}
	if epoch := text("epoch"); epoch != "" {
		if l.Epoch, err = strconv.Atoi(epoch); err != nil || l.Epoch < 1 {
			return l, fmt.Errorf("epoch: expected a whole number from 1, got %q", epoch)
		}
	}
	label := text("label")
	switch strings.ToLower(strings.TrimSpace(label)) {
	case "true", "pass", "yes":
		l.Value = 1
	case "false", "fail", "no":
	default:
		// NaN fails both comparisons.
		if l.Value, err = strconv.ParseFloat(strings.TrimSpace(label), 64); err != nil || !(l.Value >= 0 && l.Value <= 1) {
			return l, fmt.Errorf("label: expected a number from 0 to 1, or true or false, got %q", label)
		}
	}
	return l, nil
}

// VerdictOfCalibration is the verdict of the gates of a calibration. The reason names the gates
// that have not passed.
func VerdictOfCalibration(d *calibrate.Document) (v Verdict, reason string) {
	return verdictOfGates(d.Gates, func(g calibrate.Gate) gateVerdict {
		return gateVerdict{g.Verdict, report.CalibrationGateSentence(g)}
	}, Undecided)
}

// WriteCalibration writes a calibration in one of the ComparisonFormats.
func WriteCalibration(w io.Writer, d *calibrate.Document, format string) error {
	if format == "json" {
		return writeJSON(w, d)
	}
	return report.WriteCalibration(w, d, format == "markdown")
}
