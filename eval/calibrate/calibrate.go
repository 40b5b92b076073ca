// Package calibrate says how far evaluators agree with people: their verdicts on the rollouts of a
// run are compared with labels that people gave the same rollouts.
//
// It knows scores and labels. It must not know where runs and labels come from, nor how a
// calibration is printed.
package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/input"
)

// Version is the schemaVersion of a [Document].
const Version = "1.0"

// ErrNoPairs says that no label belongs to a verdict.
var ErrNoPairs = errors.New("nothing can be compared: no label belongs to a rollout that an evaluator has scored")

// Rollout is a rollout of a run, with the scores of its evaluators.
type Rollout struct {
	ID, EvaluationID, Agent, Cluster string
	Epoch                            int
	// Scores are from 0 to 1, by evaluator; nil for one that has failed or was not run.
	Scores map[string]*float64
}

// Label is the verdict of one person on a rollout.
type Label struct {
	// Line is the line of its file, 0 if it has none.
	Line         int
	EvaluationID string
	// Agent and Epoch say which rollout of the evaluation it is; empty and 0 if there is only one.
	Agent string
	Epoch int
	Rater string
	// Value is from 0 to 1.
	Value float64
}

// Options say which evaluators are calibrated and how they are judged.
type Options struct {
	// Evaluators are calibrated, all of them with the same labels.
	Evaluators []string
	// Pass is the least score that passes.
	Pass float64
	// MinKappa is a gate for each evaluator; nil for none.
	MinKappa *float64
	stats.Settings
}

// unit is a rollout with the labels of people.
type unit struct {
	*Rollout
	values []float64
	people float64
	// tied says that as many people are for as against.
	tied bool
}

// Calibrate compares the evaluators with the labels. The error is ErrNoPairs, or about labels whose
// meaning is not clear.
func Calibrate(rollouts []Rollout, labels []Label, o Options) (*Document, error) {
	d := &Document{SchemaVersion: Version, Pass: o.Pass, Labels: len(labels),
		Unknown: []Unknown{}, Evaluators: []Evaluator{}, Gates: []Gate{}}
	units, err := d.assign(rollouts, labels)
	if err != nil {
		return nil, err
	}
	d.Labelled, d.Binary = len(units), binary(labels)
	d.reduce(units)
	paired := 0
	for _, id := range o.Evaluators {
		e := d.evaluator(id, rollouts, units, o)
		paired += e.N
		d.Evaluators = append(d.Evaluators, e)
		if o.MinKappa != nil {
			d.Gates = append(d.Gates, gate(e, d.Binary, *o.MinKappa))
		}
	}
	if paired == 0 {
		return d, ErrNoPairs
	}
	if len(o.Evaluators) > 1 {
		d.EvaluatorsAlpha = alphaOfEvaluators(units, o)
	}
	return d, nil
}

// assign finds the rollout of each label. Labels without a rollout are recorded in d.
func (d *Document) assign(rollouts []Rollout, labels []Label) (units []*unit, err error) {
	byID := map[string][]*unit{}
	var known []string
	for i := range rollouts {
		r := &rollouts[i]
		if byID[r.EvaluationID] == nil {
			known = append(known, r.EvaluationID)
		}
		byID[r.EvaluationID] = append(byID[r.EvaluationID], &unit{Rollout: r})
	}
	seen := map[string]int{}
	for _, l := range labels {
		var fitting []*unit
		for _, u := range byID[l.EvaluationID] {
			if (l.Agent == "" || l.Agent == u.Agent) && (l.Epoch == 0 || l.Epoch == u.Epoch) {
				fitting = append(fitting, u)
			}
		}
		switch {
		case byID[l.EvaluationID] == nil:
			d.Unknown = append(d.Unknown, Unknown{l.Line, l.EvaluationID, l.Agent, l.Epoch,
				"the run has no such evaluation" + input.Suggest(l.EvaluationID, known)})
			continue
		case len(fitting) == 0:
			d.Unknown = append(d.Unknown, Unknown{l.Line, l.EvaluationID, l.Agent, l.Epoch,
				"the run has no such rollout of the evaluation"})
			continue
		case len(fitting) > 1:
			return nil, fmt.Errorf(
				"%sthe label of evaluation %q fits %d rollouts; the columns agent and epoch say which one is meant",
				at(l), l.EvaluationID, len(fitting))
		}
		u := fitting[0]
		key := u.ID + "\x00" + l.Rater
		if n, twice := seen[key]; twice {
			return nil, fmt.Errorf(
				"%sa second label of evaluation %q, which line %d has labelled; several people need a column rater",
				at(l), l.EvaluationID, n)
		}
		if seen[key] = l.Line; u.values == nil {
			units = append(units, u)
		}
		u.values = append(u.values, l.Value)
	}
	return units, nil
}

func at(l Label) string {
	if l.Line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", l.Line)
}

func binary(labels []Label) bool {
	return !slices.ContainsFunc(labels, func(l Label) bool { return l.Value != 0 && l.Value != 1 })
}

// reduce makes one label of those of several people: for 0 and 1 the label that more than half
// give, else the mean.
func (d *Document) reduce(units []*unit) {
	var all [][]float64
	several := false
	for _, u := range units {
		sum := 0.0
		for _, v := range u.values {
			sum += v
		}
		u.people = sum / float64(len(u.values))
		if d.Binary {
			u.tied = u.people == 0.5
			u.people = math.Round(u.people)
		}
		if u.tied {
			d.Tied++
		}
		several = several || len(u.values) > 1
		all = append(all, u.values)
	}
	if several {
		d.PeopleAlpha = stats.Alpha(all, stats.Interval) // for 0 and 1 it is the nominal one
	}
}

// evaluator compares one evaluator with the people.
func (d *Document) evaluator(id string, rollouts []Rollout, units []*unit, o Options) Evaluator {
	out := Evaluator{EvaluatorID: id, Disagreements: []Disagreement{}}
	var rated []stats.Rated
	for _, u := range units {
		score := u.Scores[id]
		switch {
		case u.tied:
			continue
		case score == nil:
			out.Unscored++
			continue
		}
		rated = append(rated, stats.Rated{Judge: *score, People: u.people, Cluster: u.cluster()})
		if passes(*score, o.Pass) != passes(u.people, o.Pass) {
			out.Disagreements = append(out.Disagreements, Disagreement{u.EvaluationID, u.Agent, u.Epoch, u.ID, u.people, *score})
		}
	}
	slices.SortStableFunc(out.Disagreements, func(a, b Disagreement) int {
		return cmp.Compare(math.Abs(b.Judge-b.People), math.Abs(a.Judge-a.People))
	})
	out.N, out.Calibration = len(rated), stats.Calibrate(rated, o.Pass, o.Settings)
	passed, n := 0, 0
	for _, r := range rollouts {
		if score := r.Scores[id]; score != nil {
			if n++; passes(*score, o.Pass) {
				passed++
			}
		}
	}
	if n > 0 {
		out.Corrected = out.Correct(float64(passed)/float64(n), n)
	}
	return out
}

// cluster names the group of rollouts whose verdicts may depend on each other: epochs of one
// evaluation are no two evaluations.
func (r *Rollout) cluster() string {
	if r.Cluster != "" {
		return "cluster " + r.Cluster
	}
	return "evaluation " + r.EvaluationID
}

func passes(score, pass float64) bool { return eval.Passes(score, pass) }

// alphaOfEvaluators says how far the evaluators agree with each other on the labelled rollouts.
func alphaOfEvaluators(units []*unit, o Options) *float64 {
	var all [][]float64
	for _, u := range units {
		var scores []float64
		for _, id := range o.Evaluators {
			if score := u.Scores[id]; score != nil {
				scores = append(scores, *score)
			}
		}
		all = append(all, scores)
	}
	return stats.Alpha(all, stats.Interval)
}

// gate judges the kappa of an evaluator by its interval.
func gate(e Evaluator, binary bool, least float64) Gate {
	k := e.Kappa
	out := Gate{EvaluatorID: e.EvaluatorID, What: "kappa", Min: least, Verdict: summary.GateUndecided}
	if !binary {
		k, out.What = e.WeightedKappa, "weightedKappa"
	}
	out.Coefficient = k
	switch {
	case k.Low == nil:
	case *k.Low >= least-1e-9:
		out.Verdict = summary.GatePass
	case *k.High < least-1e-9:
		out.Verdict = summary.GateFail
	}
	return out
}
