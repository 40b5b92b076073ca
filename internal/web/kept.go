package web

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// The overview of a large run is kept in the run's folder, so that its page need not be made of all
// rollouts again by a server that has just started. It is written with each results document. It is of
// one revision: of another one, or if it is damaged or of another form, it is made again.
const (
	keptFile = "pages.cache"
	keptForm = 4
	// maxKept is how large such a file may be, opened.
	maxKept = 1 << 30
)

// kept is an overview as columns, in the form in which it is kept.
type kept struct {
	Form     int
	Revision int64
	// Head is JSON: it has numbers that are 0 and others that are not there.
	Head        []byte
	Pass        float64
	Judgement   runner.Judgement
	Agents      []string
	Evaluators  []evaluator
	Evaluations []evaluation
	Waits       []waitGroup
	Ends        ends

	IDs, Reasons                           []string
	Evaluation, Agent, Epoch, Why          []int
	Statuses                               []string
	Status                                 []int
	AgentsFault, Outdated                  []bool
	Score                                  []float64   // no number where there is none, also below
	Scores                                 [][]float64 // less than any number where the evaluator failed
	Wall, Work, Wait, Scoring, Queue, Eval []int64
}

func keptPath(storeDir, runID string) string {
	return filepath.Join(workspace.RunDir(storeDir, runID), keptFile)
}

// keep keeps the overview of a run.
func keep(storeDir string, o *overview) error {
	head, err := json.Marshal(o.head)
	if err != nil {
		return err
	}
	k := &kept{Form: keptForm, Revision: o.head.Revision, Head: head, Pass: o.pass, Judgement: o.judgement, Agents: o.agents, Evaluators: o.evaluators, Evaluations: o.evaluations,
		Waits: o.waits, Ends: o.ends, Statuses: statuses, Scores: make([][]float64, len(o.evaluators))}
	status, why := map[string]int{}, map[string]int{}
	for i, s := range statuses {
		status[s] = i
	}
	for i := range o.rows {
		r := &o.rows[i]
		if _, ok := why[r.Reason]; !ok {
			why[r.Reason] = len(k.Reasons)
			k.Reasons = append(k.Reasons, r.Reason)
		}
		k.IDs, k.Why, k.Status = append(k.IDs, r.RolloutID), append(k.Why, why[r.Reason]), append(k.Status, status[r.Status])
		k.Evaluation, k.Agent, k.Epoch = append(k.Evaluation, r.evaluation), append(k.Agent, r.agent), append(k.Epoch, r.Epoch)
		k.Score = append(k.Score, orNaN(r.Score))
		k.AgentsFault, k.Outdated = append(k.AgentsFault, r.AgentsFault), append(k.Outdated, r.Outdated)
		for n, e := range o.evaluators {
			score, ok := r.Scores[e.ID]
			switch {
			case slices.Contains(r.Errors, e.ID):
				score = math.Inf(-1)
			case !ok:
				score = math.NaN()
			}
			k.Scores[n] = append(k.Scores[n], score)
		}
		c := r.Clocks
		k.Wall, k.Work, k.Wait, k.Scoring, k.Queue, k.Eval = append(k.Wall, c.WallMs), append(k.Work, c.WorkingMs), append(k.Wait, c.WaitingMs), append(k.Scoring, c.ScoringMs), append(k.Queue, c.QueuedMs), append(k.Eval, c.EvaluatingMs)
	}
	return durable.WriteFile(keptPath(storeDir, o.head.RunID), 0o600, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		return errors.Join(gob.NewEncoder(z).Encode(k), z.Close())
	})
}

func orNaN(score *float64) float64 {
	if score == nil {
		return math.NaN()
	}
	return *score
}

// errNotKept means that the overview has to be made again.
var errNotKept = errors.New("no overview is kept")

// readKept is the overview of a run that was kept last, redacted once more: this server may know
// secrets that the one that has kept it did not.
func readKept(storeDir, runID string, red *redact.Redactor) (o *overview, err error) {
	defer func() { // what is damaged may lead anywhere
		if p := recover(); p != nil {
			o, err = nil, fmt.Errorf("%w: %v", errNotKept, p)
		}
	}()
	f, err := os.Open(keptPath(storeDir, runID))
	if err != nil {
		return nil, errNotKept
	}
	defer func() { _ = f.Close() }() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errNotKept
	}
	data, err := io.ReadAll(io.LimitReader(z, maxKept)) // as a whole, so that its checksum is compared
	if err != nil {
		return nil, errNotKept
	}
	var k kept
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&k); err != nil || k.Form != keptForm {
		return nil, errNotKept
	}
	return k.overview(red)
}

// overview makes the overview again.
func (k *kept) overview(red *redact.Redactor) (*overview, error) {
	o := &overview{pass: k.Pass, judgement: k.Judgement, agents: k.Agents, evaluators: k.Evaluators, evaluations: k.Evaluations,
		waits: k.Waits, ends: k.Ends, counts: map[string]int{}}
	if err := json.Unmarshal(red.JSON(k.Head), &o.head); err != nil || o.head.Revision != k.Revision || o.head.Statistics == nil {
		return nil, errNotKept
	}
	o.judgement.Figures, o.judgement.Reason = red.String(o.judgement.Figures), red.String(o.judgement.Reason)
	clean(red, o.agents)
	clean(red, k.Reasons)
	for i := range o.evaluators {
		e := &o.evaluators[i]
		e.ID, e.Name = red.String(e.ID), red.String(e.Name)
	}
	for i := range o.waits {
		o.waits[i].Name = red.String(o.waits[i].Name)
	}
	for i := range o.evaluations {
		e := &o.evaluations[i]
		e.ID, e.Name = red.String(e.ID), red.String(e.Name)
		clean(red, e.Tags)
		o.addTags(e.Tags)
	}
	slices.Sort(o.tags)
	o.base = o.head.Revision
	o.rows = make([]row, len(k.IDs))
	for i := range o.rows {
		e := &o.evaluations[k.Evaluation[i]]
		r := row{evaluation: k.Evaluation[i], agent: k.Agent[i], Row: report.Row{RolloutID: k.IDs[i], EvaluationID: e.ID, EvaluationName: e.Name, Agent: o.agents[k.Agent[i]], Epoch: k.Epoch[i], Tags: e.Tags,
			Status: k.Statuses[k.Status[i]], Reason: k.Reasons[k.Why[i]], Scores: map[string]float64{}, AgentsFault: k.AgentsFault[i], Outdated: k.Outdated[i],
			Clocks: schemas.Clocks{WallMs: k.Wall[i], WorkingMs: k.Work[i], WaitingMs: k.Wait[i], ScoringMs: k.Scoring[i], QueuedMs: k.Queue[i], EvaluatingMs: k.Eval[i]}}}
		if score := k.Score[i]; !math.IsNaN(score) {
			r.Score = &score
		}
		for n, column := range k.Scores {
			switch id := o.evaluators[n].ID; {
			case math.IsInf(column[i], -1):
				r.Errors = append(r.Errors, id)
			case !math.IsNaN(column[i]):
				r.Scores[id] = column[i]
			}
		}
		e.rows = append(e.rows, i)
		o.add(r, i)
	}
	o.addCauses()
	return o, nil
}

// clean redacts texts where they are.
func clean(red *redact.Redactor, texts []string) {
	for i, text := range texts {
		texts[i] = red.String(text)
	}
}
