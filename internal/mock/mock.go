// Package mock plays tools of MCP servers: it says which calls match, and what they get in place of
// an answer of their server. It knows the format of mocks, of UiPath's for functions, too, and of results of
// tools. It calls nothing.
package mock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// Mock plays the calls of tools that it matches.
type Mock struct {
	// Place says where it stands: "mocks[0]".
	Place string `json:"place"`
	Match Match  `json:"match"`
	// Answers are what the calls of a rollout get. With Sequence each gets the next one, otherwise
	// there is one for all.
	Answers  []Answer `json:"answers,omitempty"`
	Sequence bool     `json:"sequence,omitempty"`
	// Real says that the calls are made, and that there are no Answers.
	Real bool `json:"real,omitempty"`
	// Refuse says that the calls are not made and get no answer: they fail, and are counted as calls
	// that no mock matches.
	Refuse bool `json:"refuse,omitempty"`
}

// Match chooses calls. The texts are patterns, in which * stands for any text, and what is missing
// matches everything.
type Match struct {
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Arguments are a part of those of the call; see [wait.PartOf].
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Exact says that Arguments are all of those of the call, and that their texts are no patterns.
	Exact bool `json:"exact,omitempty"`
	// Evaluation is the id or the name of the evaluation.
	Evaluation string `json:"evaluation,omitempty"`
}

// Answer is what a call gets: a result of MCP, or an error of JSON-RPC. It comes After so long.
type Answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	After  wait.Duration   `json:"after,omitzero"`
	// Model writes the result; nil if it is there.
	Model *Model `json:"model,omitempty"`
	// number counts the calls that the mock has played before, if there is a Model.
	number int
}

// Model is a model that writes results.
type Model struct {
	Name        string `json:"name"`
	Instruction string `json:"instruction"`
}

// Call is a call whose result a model writes.
type Call struct {
	Model
	// Place is that of the mock, and Number counts its calls before this one in the rollout.
	Place  string
	Number int
	// Tool, Description and Schema are the tool as its server has it.
	Tool, Description string
	Schema, Arguments json.RawMessage
}

// Mocks are all mocks of a run: those of single evaluations by their ids, which come first, those
// of a file, and those of the eval set.
type Mocks struct {
	Evaluations map[string][]Mock `json:"evaluations,omitempty"`
	File        []Mock            `json:"file,omitempty"`
	Set         []Mock            `json:"set,omitempty"`
	// Functions are those of the agents' own that are played in their processes, by the ids of the
	// evaluations.
	Functions map[string]*Functions `json:"functions,omitempty"`
}

// Of returns the mocks of an evaluation in their order, without those that are for others.
func (m *Mocks) Of(evaluationID, name string) (out []Mock) {
	if m == nil {
		return nil
	}
	for _, one := range slices.Concat(m.Evaluations[evaluationID], m.File, m.Set) {
		if wait.Fits(one.Match.Evaluation, evaluationID) || wait.Fits(one.Match.Evaluation, name) {
			out = append(out, one)
		}
	}
	return out
}

// All are all mocks.
func (m *Mocks) All() (out []Mock) {
	if m == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(m.Evaluations)) {
		out = append(out, m.Evaluations[id]...)
	}
	return slices.Concat(out, m.File, m.Set)
}

// Places are the places of the mocks that could have been played to the evaluations that were run.
// Those that match every call are meant for the rest, and are left out.
func (m *Mocks) Places(evaluations func(id string) bool) (out []string) {
	if m == nil {
		return nil
	}
	add := func(list []Mock) {
		for _, one := range list {
			if !one.Real && !one.Refuse && (one.Match.Server+one.Match.Tool+one.Match.Evaluation != "" || one.Match.Arguments != nil) {
				out = append(out, one.Place)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Evaluations)) {
		if evaluations(id) {
			add(m.Evaluations[id])
		}
	}
	add(m.File)
	add(m.Set)
	for _, id := range slices.Sorted(maps.Keys(m.Functions)) {
		if evaluations(id) {
			for _, name := range m.Functions[id].Names {
				out = append(out, m.Functions[id].Place+" "+name)
			}
		}
	}
	return out
}

// Models are the models that write results, each once.
func (m *Mocks) Models() (out []string) {
	for _, one := range m.All() {
		for _, a := range one.Answers {
			if a.Model != nil && !slices.Contains(out, a.Model.Name) {
				out = append(out, a.Model.Name)
			}
		}
	}
	return out
}

// OfFunctions returns the functions that are played in an evaluation; nil if none are.
func (m *Mocks) OfFunctions(evaluationID string) *Functions {
	if m == nil {
		return nil
	}
	return m.Functions[evaluationID]
}

// Tools reports whether tools of MCP servers are played.
func (m *Mocks) Tools() bool { return m != nil && len(m.Set)+len(m.File)+len(m.Evaluations) > 0 }

// Played counts what was played.
type Played struct {
	// Calls counts the calls by the places of their mocks. It is 0 for a mock whose calls earlier ones
	// have taken.
	Calls map[string]int `json:"calls,omitempty"`
	// Unmatched counts the calls of tools that are mocked, but not with these arguments, by server
	// and tool.
	Unmatched map[string]int `json:"unmatched,omitempty"`
}

// Player plays the tools of one rollout. It is safe for concurrent use, and a nil Player plays
// nothing.
type Player struct {
	mocks []Mock
	// Write has a model write the result of a call.
	Write func(ctx context.Context, c Call) (json.RawMessage, error)

	mu sync.Mutex
	// failed is why a model has written nothing.
	failed error
	// used counts the calls of the rollout by place, and played those of this segment.
	used   map[string]int
	played Played
}

// NewPlayer makes a player that goes on after the calls that were played before. It is nil if there
// are no mocks.
func NewPlayer(mocks []Mock, before map[string]int) *Player {
	if len(mocks) == 0 {
		return nil
	}
	p := &Player{mocks: mocks, used: maps.Clone(before)}
	if p.used == nil {
		p.used = map[string]int{}
	}
	p.played = Played{Calls: map[string]int{}, Unmatched: map[string]int{}}
	return p
}

// Mocks reports whether some calls of a tool may be played.
func (p *Player) Mocks(server, tool string) bool {
	return p != nil && slices.ContainsFunc(p.mocks, func(m Mock) bool { return !m.Real && m.Match.names(server, tool) })
}

func (m Match) names(server, tool string) bool {
	return wait.Fits(m.Server, server) && wait.Fits(m.Tool, tool)
}

// takes reports whether the arguments of a call are those that it matches.
func (m Match) takes(arguments json.RawMessage) bool {
	switch {
	case m.Arguments == nil:
		return true
	case m.Exact:
		return sameAs(m.Arguments, arguments)
	}
	return wait.PartOf(m.Arguments, arguments)
}

// maxUnmatched is how many tools are told apart of which calls match no mock: their names come from
// a model.
const maxUnmatched = 20

// Unmatched is the place that stands for a call of a tool that is mocked, but not with its arguments.
const Unmatched = "none"

// Call returns what a call gets, and the place of its mock. ok is false if the call is to be made.
// A tool that is mocked is never called by mistake: with arguments that no mock matches its call
// fails, and the place is [Unmatched].
func (p *Player) Call(server, tool string, arguments json.RawMessage) (a Answer, place string, ok bool) {
	if p == nil {
		return Answer{}, "", false
	}
	if jsonobj.IsNull(arguments) {
		arguments = json.RawMessage("{}")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	mocked, real := false, false
	for i := range p.mocks {
		m := &p.mocks[i]
		if !m.Match.names(server, tool) {
			continue
		}
		mocked = mocked || !m.Real
		switch {
		case m.Refuse || !m.Match.takes(arguments):
		case place != "" || real:
			p.played.Calls[m.Place] += 0 // it would have matched
		case m.Real:
			real = true
		default:
			a, place = p.next(m, tool), m.Place
		}
	}
	if place != "" || real || !mocked {
		return a, place, place != ""
	}
	p.unmatched(server, tool)
	return Answer{Result: mcp.TextResult(tool+" is mocked, and no mock matches these arguments; it was not called", true)}, Unmatched, true
}

// unmatched counts a call that matches no mock of its tool. The caller holds mu.
func (p *Player) unmatched(server, tool string) {
	if key := server + " " + tool; p.played.Unmatched[key] > 0 || len(p.played.Unmatched) < maxUnmatched {
		p.played.Unmatched[key]++
	}
}

// Repeat counts a call of this segment that an attempt which was broken off has played, and whose
// answer the agent keeps. place is that of [Player.Call].
func (p *Player) Repeat(server, tool, place string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if place == Unmatched {
		p.unmatched(server, tool)
		return
	}
	p.used[place]++
	p.played.Calls[place]++
}

// next returns the answer to the next call that a mock matches. The caller holds mu.
func (p *Player) next(m *Mock, tool string) Answer {
	n := p.used[m.Place]
	p.used[m.Place]++
	p.played.Calls[m.Place]++
	if !m.Sequence || n < len(m.Answers) {
		a := m.Answers[0]
		if m.Sequence {
			a = m.Answers[n]
		}
		a.number = n
		return a
	}
	return Answer{Result: mcp.TextResult(fmt.Sprintf("call %d of %s: the sequence that is played has %d", n+1, tool, len(m.Answers)), true)}
}

// Written returns the result of a call that a model writes. A model that writes none is an error of the
// server to the agent, and [Player.Failed].
func (p *Player) Written(ctx context.Context, a Answer, c Call) (json.RawMessage, error) {
	c.Model, c.Number = *a.Model, a.number
	result, err := p.Write(ctx, c)
	if err != nil && ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = fmt.Errorf("%s: the model that writes the results of %s has written none: %w", c.Place, c.Tool, err)
		return nil, mcp.Errorf(mcp.CodeInternal, "%v", p.failed)
	}
	return result, err
}

// Failed returns why a model has written nothing, nil if none has failed.
func (p *Player) Failed() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Played returns what this player has played.
func (p *Player) Played() *Played {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.played.Calls)+len(p.played.Unmatched) == 0 {
		return nil
	}
	return &Played{Calls: maps.Clone(p.played.Calls), Unmatched: maps.Clone(p.played.Unmatched)}
}

// Missing says which mock is of a tool that a server does not have, given all its tools; empty if
// none is. A mock that names no single server and tool may be for another server.
func (p *Player) Missing(server string, tools []string) string {
	if p == nil {
		return ""
	}
	for _, m := range p.mocks {
		if m.Match.Server == server && single(m.Match.Tool) && !slices.Contains(tools, m.Match.Tool) {
			return fmt.Sprintf("%s: MCP server %q has no tool %q%s", m.Place, server, m.Match.Tool, input.Suggest(m.Match.Tool, tools))
		}
	}
	return ""
}

// single reports whether a pattern names one thing.
func single(pattern string) bool { return pattern != "" && !strings.Contains(pattern, "*") }

// redacted matches the marks of secrets that were taken out of a recording.
var redacted = regexp.MustCompile(`\[redacted:[^\]]*\]`)

// sameAs reports whether the arguments of a call are those of a recording. A mark of a secret stands for
// any text.
func sameAs(recorded, got json.RawMessage) bool {
	want := jsonobj.Canonical(recorded)
	places := redacted.FindAllStringIndex(want, -1)
	if places == nil {
		return want == jsonobj.Canonical(got)
	}
	var pattern strings.Builder
	pattern.WriteString("^")
	at := 0
	for _, place := range places {
		pattern.WriteString(regexp.QuoteMeta(want[at:place[0]]) + `(?:[^"\\]|\\.)*`)
		at = place[1]
	}
	pattern.WriteString(regexp.QuoteMeta(want[at:]) + "$")
	matches, err := regexp.MatchString(pattern.String(), jsonobj.Canonical(got))
	return err == nil && matches
}
