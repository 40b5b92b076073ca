package judged

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
)

// panel holds the answers of several judges, or several samples of one, about one rollout.
type panel struct {
	judge *llmJudge
	asked []asked
	// reference is the rollout whose output was compared, empty if there is none.
	reference string
}

// panelDetails are the details of a panel's result.
type panelDetails struct {
	Label          string   `json:"label,omitempty"`
	Justifications []string `json:"justifications"`
	// PositionConsistency is the share of the judges that prefer the same side in both places; nil
	// unless two answers are compared.
	PositionConsistency *float64 `json:"positionConsistency,omitempty"`
	// Reference is the id of the rollout whose output was compared.
	Reference string `json:"reference,omitempty"`
}

// outcome makes one score of the verdicts. If too few have voted, or no verdict has a majority,
// there is none: an error if judges have failed, and otherwise a reason.
func (p *panel) outcome() evaluator.Outcome {
	out := evaluator.Outcome{Judged: &eval.Judged{Fingerprint: p.fingerprint(), Reduce: p.judge.reduce}}
	details := panelDetails{Justifications: []string{}}
	var votes []asked
	for _, a := range p.asked {
		var notAsked *eval.NotAsked
		if errors.As(a.err, &notAsked) {
			return evaluator.Outcome{Failure: notAsked}
		}
		out.Judged.Verdicts = append(append(out.Judged.Verdicts, a.call), a.swapped...)
		if a.err == nil {
			details.Justifications = append(details.Justifications, a.justification)
		}
		if a.voted() {
			votes = append(votes, a)
		}
	}
	if len(votes) == 0 || float64(len(votes)) < p.judge.quorum*float64(len(p.asked)) {
		out.Failure = p.missing(p.noQuorum(len(votes)))
		return out
	}
	score, label, ok := p.reduce(votes)
	if !ok {
		out.Failure = p.missing("no verdict has the majority of all judges")
		return out
	}
	out.Score = score
	out.Judged.Spread, out.Judged.Agreement = p.spread(votes), agreement(votes, score, label)
	details.Label, details.PositionConsistency, details.Reference = label, p.positionConsistency(votes), p.reference
	out.Details = details
	return out
}

// noQuorum says why there are too few votes.
func (p *panel) noQuorum(votes int) string {
	unknown := 0
	for _, a := range p.asked {
		if a.err == nil && a.unknown {
			unknown++
		}
	}
	said := fmt.Sprintf("%d of %d judges say that this cannot be judged", unknown, len(p.asked))
	if unknown == len(p.asked) {
		return said
	}
	text := fmt.Sprintf("%d of %d judges have voted, fewer than the quorum of %g", votes, len(p.asked), p.judge.quorum)
	if unknown > 0 {
		text += "; " + said
	}
	return text
}

// missing says why there is no score: the error of a judge that failed, else the reason.
func (p *panel) missing(reason string) error {
	for _, a := range p.asked {
		var failed *eval.JudgeError
		if errors.As(a.err, &failed) {
			return &eval.JudgeError{Category: failed.Category, Message: reason + ": " + failed.Message}
		}
		if a.err != nil {
			return a.err
		}
	}
	if len(p.asked) == 1 {
		reason = p.asked[0].call.Error
	}
	return &eval.NotAsked{Reason: reason}
}

// reduce makes one verdict of the votes.
func (p *panel) reduce(votes []asked) (score float64, label string, ok bool) {
	switch p.judge.reduce {
	case reduceMean:
		var sum, weights float64
		for _, v := range votes {
			sum += v.weight * v.score
			weights += v.weight
		}
		return sum / weights, "", weights > 0
	case reduceMedian:
		scores := make([]float64, len(votes))
		for i, v := range votes {
			scores[i] = v.score
		}
		slices.Sort(scores)
		middle := len(scores) / 2
		if len(scores)%2 == 1 {
			return scores[middle], "", true
		}
		return (scores[middle-1] + scores[middle]) / 2, "", true
	}
	var all float64
	for _, a := range p.asked {
		all += a.weight // a judge without an answer withholds its vote
	}
	for _, candidate := range votes {
		var weight float64
		for _, v := range votes {
			if v.score == candidate.score && v.label == candidate.label {
				weight += v.weight
			}
		}
		if weight > all/2 {
			return candidate.score, candidate.label, true
		}
	}
	return 0, "", false
}

// spread is the standard deviation of the votes' scores.
func (p *panel) spread(votes []asked) *float64 {
	var sum, squares float64
	for _, v := range votes {
		sum += v.score
	}
	mean := sum / float64(len(votes))
	for _, v := range votes {
		squares += (v.score - mean) * (v.score - mean)
	}
	spread := math.Sqrt(squares / math.Max(1, float64(len(votes)-1)))
	return &spread
}

// positionConsistency is the share of the votes that did not depend on which side stood first.
func (p *panel) positionConsistency(votes []asked) *float64 {
	if !p.judge.pairs {
		return nil
	}
	consistent := 0
	for _, v := range votes {
		if v.consistent {
			consistent++
		}
	}
	share := float64(consistent) / float64(len(votes))
	return &share
}

// agreement is the share of the votes that equal the reduced verdict.
func agreement(votes []asked, score float64, label string) *float64 {
	same := 0
	for _, v := range votes {
		if math.Abs(v.score-score) < 1e-9 && v.label == label {
			same++
		}
	}
	share := float64(same) / float64(len(votes))
	return &share
}

// fingerprint is the same for panels of the same template, models and parameters.
func (p *panel) fingerprint() string {
	j := p.judge
	parts := []string{j.templateHash, string(j.tool.Schema), j.reduce, fmt.Sprint(j.quorum, j.samples)}
	for i := 0; i < len(p.asked); i += j.samples {
		m := j.judges[i/j.samples]
		parts = append(parts, evaluator.Fingerprint(eval.Question{Temperature: m.temperature, Seed: m.seed,
			MaxTokens: m.maxTokens}, p.asked[i].call.Model), fmt.Sprint(m.weight))
	}
	return evaluator.Hash(parts...)
}
