package runner

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// ComparisonFormats are the formats that [WriteComparison] can write.
var ComparisonFormats = []string{"text", "json", "markdown"}

// Compare compares a baseline with a candidate. The error is an *InputError if the sides cannot be
// compared, and compare.ErrNoPairs if nothing is scored on both.
func Compare(a, b compare.Side, o compare.Options) (*compare.Document, error) {
	d, err := compare.Compare(a, b, o)
	if err != nil && !errors.Is(err, compare.ErrNoPairs) {
		return nil, &InputError{Err: err}
	}
	return d, err
}

// SelfTest compares the halves of the epochs of one run, by the named figure.
func SelfTest(a compare.Side, by string, seed uint64) (*compare.SelfTestDocument, error) {
	d, err := compare.SelfTest(a, by, seed)
	if err != nil {
		return nil, &InputError{Err: err}
	}
	return d, nil
}

// VerdictOf is the verdict of the gates of a comparison; undecided is the verdict of an undecided
// gate. The reason names the gates that have not passed.
func VerdictOf(d *compare.Document, undecided Verdict) (v Verdict, reason string) {
	return verdictOfGates(d.Gates, func(g compare.Gate) gateVerdict {
		return gateVerdict{g.Verdict, report.GateSentence(d, g)}
	}, undecided)
}

// gateVerdict is the verdict of a gate, and the sentence that explains it.
type gateVerdict struct {
	summary.GateVerdict
	sentence string
}

func verdictOfGates[G any](gates []G, of func(G) gateVerdict, undecided Verdict) (v Verdict, reason string) {
	var lost, open []string
	for _, g := range gates {
		switch one := of(g); one.GateVerdict {
		case summary.GateFail:
			lost = append(lost, one.sentence)
		case summary.GateUndecided:
			open = append(open, one.sentence)
		}
	}
	switch {
	case lost != nil:
		return Failed, strings.Join(lost, "; ")
	case open != nil:
		return undecided, strings.Join(open, "; ")
	}
	return Passed, ""
}

// WriteComparison writes a comparison in one of the ComparisonFormats.
func WriteComparison(w io.Writer, d *compare.Document, format string) error {
	switch format {
	case "json":
		return writeJSON(w, d)
	case "markdown":
		return report.WriteComparisonMarkdown(w, d)
	}
	return report.WriteComparison(w, d)
}

// WriteSelfTest writes a self-test in one of the ComparisonFormats.
func WriteSelfTest(w io.Writer, d *compare.SelfTestDocument, format string) error {
	if format == "json" {
		return writeJSON(w, d)
	}
	return report.WriteSelfTest(w, d, format == "markdown")
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// OpenSide reads a results document as a side of a comparison: all agents of the run, or only the
// named one. It reads the document once.
func OpenSide(path, agent string) (compare.Side, error) {
	r, err := report.OpenOnce(path)
	if err != nil {
		return compare.Side{}, &InputError{Err: err}
	}
	s, err := (&Report{r: r}).Side(agent)
	if errors.As(err, new(input.Problem)) {
		return s, &InputError{Err: err} // the document has an invalid rollout
	}
	return s, err
}

// Side returns the report as a side of a comparison: all agents of the run, or only the named one.
func (r *Report) Side(agent string) (compare.Side, error) {
	h := r.Head()
	s := compare.Side{Agent: agent, Source: compare.Source{RunID: h.RunID, EvaluationSetName: h.EvaluationSetName,
		EvaluationSetDigest: h.EvaluationSetDigest, PlanDigest: h.PlanDigest, Agents: []string{}, Final: h.Final},
		About: about(h)}
	if h.Statistics == nil {
		return s, inputError("the results document of run %s has no statistics; write it anew from its store", h.RunID)
	}
	set := setOf(h.Statistics)
	s.Epochs, s.Reduce, s.Pass = set.Epochs, set.Reduce, set.Thresholds.Pass
	s.Interval = set.Interval
	for _, a := range h.Statistics.PerAgent() {
		for _, e := range a.Evaluators {
			at := slices.IndexFunc(s.Evaluators, func(one compare.Evaluator) bool { return one.ID == e.ID })
			if at < 0 {
				at = len(s.Evaluators)
				s.Evaluators = append(s.Evaluators, compare.Evaluator{ID: e.ID, Name: e.Name, Digest: e.Digest})
			}
			if agent == "" || agent == a.Agent {
				s.Evaluators[at].NotRun += e.NotRun
			}
		}
	}
	s.Judges = h.Statistics.Judges
	statistics := summary.New(set, kinds.All)
	statistics.Outcomes = func(o summary.Outcome) {
		e := &s.Evaluations[len(s.Evaluations)-1]
		e.Outcome = o
	}
	seen, rollouts := map[string]bool{}, map[rolloutKey]bool{}
	var last *schemas.Rollout
	err := r.r.Outlines(func(one *schemas.Rollout) error {
		k := rolloutKey{one.EvaluationID, one.Agent, one.Epoch}
		if rollouts[k] {
			return inputError("run %s has epoch %d of evaluation %s and agent %s twice", h.RunID, one.Epoch, one.EvaluationID,
				one.Agent)
		}
		rollouts[k] = true
		if err := checkScores(one); err != nil {
			return inputError("run %s: evaluation %s, epoch %d: %w", h.RunID, one.EvaluationID, one.Epoch, err)
		}
		next := last == nil || last.EvaluationID != one.EvaluationID || last.Agent != one.Agent
		if next && last != nil {
			statistics.Close() // its outcome belongs to the evaluation that is still the last
		}
		if next {
			s.Evaluations = append(s.Evaluations, compare.Evaluation{Name: one.EvaluationName, Digest: digestOf(one)})
		}
		e := &s.Evaluations[len(s.Evaluations)-1]
		e.Task = cmp.Or(e.Task, one.TaskDigest)
		if one.Image != "" && !slices.Contains(e.Images, one.Image) {
			e.Images = append(e.Images, one.Image)
		}
		if one.Error != nil {
			e.Faults = append(e.Faults, one.Error.Category)
		}
		e.Rollouts = append(e.Rollouts,
			compare.Rollout{RolloutID: one.RolloutID, Epoch: one.Epoch, Status: r.r.StatusOf(one), Score: one.Score})
		if !seen[one.Agent] {
			seen[one.Agent], s.Agents = true, append(s.Agents, one.Agent)
		}
		statistics.Add(rolloutOf(one))
		last = one
		return nil
	})
	statistics.Close()
	s.N = len(s.Evaluations)
	return s, err
}

// rolloutKey identifies a rollout of a document.
type rolloutKey struct {
	evaluation, agent string
	epoch             int
}

// checkScores makes sure that scores lie in their scales.
func checkScores(one *schemas.Rollout) error {
	if s := one.Score; s != nil && !(*s >= 0 && *s <= 1+1e-9) {
		return fmt.Errorf("expected a score from 0 to 1, got %g", *s)
	}
	for _, e := range one.EvaluationRunResults {
		scale := cmp.Or(e.Result.Scale, 1)
		if s := e.Result.Score; s != nil && !(*s >= 0 && *s <= scale*(1+1e-9)) {
			return fmt.Errorf("evaluator %s: expected a score from 0 to %g, got %g", e.EvaluatorID, scale, *s)
		}
	}
	return nil
}

// setOf returns the part of the eval set that statistics need, from the statistics of a document.
func setOf(s *summary.Summary) *eval.Set {
	set := &eval.Set{Epochs: s.Epochs, Reduce: s.Reduce, Interval: s.Interval,
		Thresholds: eval.Thresholds{Pass: s.Thresholds.Pass}}
	for _, e := range s.PerAgent()[0].Evaluators {
		def := eval.Definition{ID: e.ID, Name: e.Name, Weight: e.Weight}
		if e.ID == eval.Verifier.ID {
			def.Type = eval.TypeVerifier
		}
		set.Evaluators = append(set.Evaluators, def)
	}
	return set
}

// rolloutOf converts a rollout of a document to the form that statistics take.
func rolloutOf(one *schemas.Rollout) summary.Rollout {
	out := summary.Rollout{EvaluationID: one.EvaluationID, Agent: one.Agent, Epoch: one.Epoch,
		State:      eval.State(one.Status),
		Evaluation: &eval.Evaluation{ID: one.EvaluationID, Cluster: one.Cluster, Criteria: one.Criteria}}
	if one.Usage != nil {
		out.Usage = one.Usage.Models
	}
	if one.Environment != "" {
		out.Evaluation.Task = &eval.Task{}
	}
	if one.Outdated { // as in the statistics of its document
		out.State = eval.StateEvaluating
		return out
	}
	if f := one.Error; f != nil {
		owner := fault.Owner(one.FaultOwner)
		if owner == "" { // an earlier version does not record it
			owner = fault.Category(f.Category).Owner()
		}
		out.AgentsFault = owner == fault.OwnerAgent
	}
	for _, e := range one.EvaluationRunResults {
		scale := cmp.Or(e.Result.Scale, 1)
		out.Results = append(out.Results,
			eval.Result{EvaluatorID: e.EvaluatorID, EvaluatorName: e.EvaluatorName, Score: e.Result.Score, Scale: scale,
				Error: e.Result.Error, NotRun: e.Result.NotRun, Line: e.IsLineResult})
	}
	return out
}

// about returns the conditions of a run besides its evaluations and evaluators.
func about(h schemas.Head) map[string]string {
	out := map[string]string{"git commit": h.GitCommit, "evalrun": h.EvalrunVersion}
	if h.Dataset != nil {
		out["data set"] = fmt.Sprintf("%s (%s)", h.Dataset.File, h.Dataset.Digest)
	}
	for i, a := range h.Agents {
		name := "agent"
		if len(h.Agents) > 1 {
			name = fmt.Sprintf("agent %d", i+1)
		}
		text := a.Name + " (" + a.Type
		if len(a.Command) > 0 {
			text += ": " + strings.Join(a.Command, " ")
		}
		if a.Model != "" {
			text += ", model " + a.Model
		}
		out[name] = text + ")"
	}
	return out
}

// digestOf is the digest of an evaluation's inputs, expected output and criteria. It does not
// depend on the indentation and escapes of the document.
func digestOf(one *schemas.Rollout) string {
	hash := sha256.New()
	add := func(part json.RawMessage) {
		value := jsontext.Value(bytes.Clone(part))
		// If formatting fails, the value stays as it is.
		_ = value.Format(jsontext.ReorderRawObjects(true), jsontext.AllowDuplicateNames(true),
			jsontext.AllowInvalidUTF8(true))
		_, _ = hash.Write(value)
		_, _ = hash.Write([]byte{0})
	}
	add(one.Inputs)
	add(one.ExpectedOutput)
	for _, id := range slices.Sorted(maps.Keys(one.Criteria)) {
		_, _ = io.WriteString(hash, id+"\x00")
		add(one.Criteria[id])
	}
	return hex.EncodeToString(hash.Sum(nil))
}
