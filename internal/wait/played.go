package wait

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// Played is what arrives for a trigger without anybody: the answer of a person who is played, or
// the result of a job that is. It is stored in the trigger's spec, so that any process can deliver
// it.
type Played struct {
	// Place says where it stands: "answers[0]", "jobs.P.sequence[1]".
	Place string `json:"place"`
	// Also are the places of later answers of the same list that match the question, too. Over are
	// those of other lists, which an answer to an evaluation is meant to replace.
	Also []string `json:"also,omitempty"`
	Over []string `json:"over,omitempty"`
	// Number counts from 1 the jobs of a process that a rollout has started.
	Number int `json:"number,omitempty"`
	FixedResult
}

// FixedResult is a result that is known before anything begins. It arrives After so long.
type FixedResult struct {
	Result json.RawMessage `json:"result,omitempty"`
	// Fail is the message of a failure in place of Result; empty if there is a result.
	Fail  string   `json:"fail,omitempty"`
	After Duration `json:"after,omitzero"`
}

// FixedConfig is a job that is played: every job of the process has the same result, or each the
// next one of Sequence.
type FixedConfig struct {
	FixedResult
	Sequence []FixedResult `json:"sequence,omitempty"`
}

// AddVariables implements Settings: what is played has none.
func (*FixedConfig) AddVariables(map[string]bool) {}

// PlayedAnswer is what people answer to the questions that it matches.
type PlayedAnswer struct {
	// Place says where it stands: "answers[0]".
	Place string `json:"place"`
	Match Match  `json:"match"`
	// Approve says that the result is an approval.
	Approve bool `json:"approve,omitempty"`
	FixedResult
}

// Match chooses questions. Every text is a pattern, in which * stands for any text, and what is
// missing matches everything.
type Match struct {
	Title       string `json:"title,omitempty"`
	Type        string `json:"type,omitempty"`
	InterruptID string `json:"interrupt,omitempty"`
	// Evaluation is the id or the name of the evaluation.
	Evaluation string `json:"evaluation,omitempty"`
	// Payload is a part of what is asked: of its objects it has the members that must be there. Its
	// texts are patterns.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// PlayedAnswers are all answers of a run: those of single evaluations by their ids, which come
// first, those of a file, and those of the eval set.
type PlayedAnswers struct {
	Evaluations map[string][]PlayedAnswer `json:"evaluations,omitempty"`
	File        []PlayedAnswer            `json:"file,omitempty"`
	Set         []PlayedAnswer            `json:"set,omitempty"`
}

// AskedQuestion is a question for which an answer is looked for.
type AskedQuestion struct {
	EvaluationID, EvaluationName, InterruptID string
	Spec                                      Spec
}

// For gives the answer that is played to a question: the first one that matches. It is nil if none
// does, and for what has a time at which it ends by itself.
func (a *PlayedAnswers) For(q AskedQuestion) *Played {
	if a == nil || q.Spec.Type == TypeTimer {
		return nil
	}
	var out *Played
	for _, list := range [][]PlayedAnswer{a.Evaluations[q.EvaluationID], a.File, a.Set} {
		first := out == nil // whether this list may have the answer
		for _, one := range list {
			switch {
			case !one.Match.matches(q):
			case out == nil:
				out = &Played{Place: one.Place, FixedResult: one.FixedResult}
				if note := ApprovalNote(q.Spec.Payload); one.Approve && note != "" {
					out.Result, out.Fail = nil, note
				}
			case first && !one.Match.all():
				out.Also = append(out.Also, one.Place)
			default:
				out.Over = append(out.Over, one.Place)
			}
		}
	}
	return out
}

// all reports whether it matches every question: such an answer is meant for the rest.
func (m Match) all() bool {
	return m.Title+m.Type+m.InterruptID+m.Evaluation == "" && m.Payload == nil
}

func (m Match) matches(q AskedQuestion) bool {
	return Fits(m.Title, questionOf(q.Spec.Payload)) && (m.Type == "" || m.Type == string(q.Spec.Type) || m.Type == q.Spec.Name) &&
		Fits(m.InterruptID, q.InterruptID) &&
		(Fits(m.Evaluation, q.EvaluationID) || Fits(m.Evaluation, q.EvaluationName)) &&
		(m.Payload == nil || PartOf(m.Payload, q.Spec.Payload))
}

// questionOf is the text that a person is asked: a title or the like, or the whole text.
func questionOf(payload json.RawMessage) string {
	if jsonvalue.KindOf(payload) == '"' {
		return jsonvalue.String(payload)
	}
	o, _ := jsonvalue.ParseObject(payload)
	for _, name := range []string{"title", "action_title", "question", "prompt", "message", "app_name"} {
		if text := o.Text(name); text != "" {
			return text
		}
	}
	return ""
}

// Fits reports whether a text is as a pattern says; an empty pattern fits every text.
func Fits(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return text == pattern
	}
	rest, ok := strings.CutPrefix(text, first)
	if !ok || !strings.HasSuffix(rest, last) {
		return false
	}
	rest = rest[:len(rest)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// PartOf reports whether a value has everything that another one names.
func PartOf(want, got json.RawMessage) bool {
	switch kind := jsonvalue.KindOf(want); {
	case kind != jsonvalue.KindOf(got) && (kind == '{' || kind == '"'):
		return false
	case kind == '"':
		text := jsonvalue.String(want)
		return text == "" && jsonvalue.String(got) == "" || text != "" && Fits(text, jsonvalue.String(got))
	case kind == '{':
		members, _ := jsonvalue.ParseObject(want)
		of, _ := jsonvalue.ParseObject(got)
		return !slices.ContainsFunc(members, func(m jsonvalue.Member) bool {
			value, found := of.Get(m.Key)
			return !found || !PartOf(m.Value, value)
		})
	}
	a, b := jsonobj.Canonical(want), jsonobj.Canonical(got)
	if a != b && jsonvalue.KindOf(want) == '0' && jsonvalue.KindOf(got) == '0' {
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		return errX == nil && errY == nil && x == y && strings.ContainsAny(a+b, ".eE") // of whole numbers each digit counts
	}
	return a == b
}

// Played reports whether jobs of any process are played.
func (j Jobs) Played() bool {
	for _, c := range j {
		if _, ok := c.Settings.(*FixedConfig); ok {
			return true
		}
	}
	return false
}

// Job gives what is played for a job of a process: number counts from 1 the ones that its rollout
// has started. It is nil if the process is not played.
func (j Jobs) Job(process string, number int) *Played {
	key, c := process, j.ForProcess(process)
	fixed, ok := c.Settings.(*FixedConfig)
	if !ok {
		return nil
	}
	if _, own := j[process]; !own {
		key = "*"
	}
	out := &Played{Place: "jobs." + key, Number: number, FixedResult: fixed.FixedResult}
	if len(fixed.Sequence) > 0 {
		out.Place += fmt.Sprintf(".sequence[%d]", number-1)
		if number > len(fixed.Sequence) {
			out.Fail = fmt.Sprintf("job %d of %s: the sequence that is played has %d", number, process, len(fixed.Sequence))
			return out
		}
		out.FixedResult = fixed.Sequence[number-1]
	}
	return out
}

// Places are the places of all answers that could have been played to an evaluation; those of other
// evaluations are left out.
func (a *PlayedAnswers) Places(evaluationIDs func(id string) bool) (out []string) {
	add := func(list []PlayedAnswer) {
		for _, one := range list {
			if !one.Match.all() {
				out = append(out, one.Place)
			}
		}
	}
	if a == nil {
		return nil
	}
	for id, list := range a.Evaluations {
		if evaluationIDs(id) {
			add(list)
		}
	}
	slices.Sort(out)
	add(a.File)
	add(a.Set)
	return out
}
