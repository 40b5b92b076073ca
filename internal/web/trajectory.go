package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/report"
)

// maxTrajectory is how much of the trajectory of a segment a page reads, in bytes.
const maxTrajectory = 8 << 20

// step is something that happened in a rollout: a segment began or ended, somebody said something, a
// tool was called, or an answer arrived.
type step struct {
	At time.Time
	// Kind is one of stepKinds, Who says what it is in a word or two.
	Kind, Who string
	Status    string
	// Text is what was said. Folded says that a reader has to open it.
	Text   []textPart
	Folded bool
	// Input and Output are those of a tool.
	Input, Output []textPart
	// URL leads to more of it.
	URL string
}

var stepKinds = []choice{{"", "everything"}, {"said", "what was said"}, {"tool", "tool calls"}, {"segment", "segments"}, {"wait", "waits and answers"}, {"other", "the rest"}}

// addTrajectory adds the part of the trajectory that the query asks for. The files of the rollout are
// known by then.
func (page *rolloutPage) addTrajectory(q url.Values) {
	all, more := page.said()
	if !slices.ContainsFunc(all, func(s step) bool { return s.Kind == "tool" }) {
		for _, c := range toolCalls(page.Detail) {
			all = append(all, step{At: c.From, Kind: "tool", Who: c.Name, Status: c.Status, Input: valueParts(c.Input), Output: valueParts(c.Output)})
		}
	}
	all = append(all, page.happened()...)
	page.StepKind, page.StepKinds, page.StepsCut = q.Get("kind"), stepKinds, more
	if page.StepKind != "" {
		all = slices.DeleteFunc(all, func(s step) bool { return s.Kind != page.StepKind })
	}
	slices.SortStableFunc(all, func(a, b step) int { return a.At.Compare(b.At) })
	at, _ := strconv.Atoi(q.Get("step")) // what is no number is the first page
	page.StepsPart = partOfList(len(all), maxSteps, at, func(n int) string {
		q.Set("step", strconv.Itoa(n))
		return "?" + q.Encode() + "#steps"
	})
	page.Steps = all[page.StepsPart.From-1 : page.StepsPart.To]
}

// trajectories are the files of the agent's trajectory: of each segment that of its last attempt, since
// an attempt that was repeated does not count. The file of the whole rollout has the same once more, and
// is read only where the segments have none any more. What an agent has left under that name elsewhere is
// not its trajectory.
func (page *rolloutPage) trajectories() (out []string) {
	whole := false
	last := map[string]int{} // the place among out by segment
	for _, f := range page.Files {
		if f.Path == agent.FileTrajectory {
			whole = true
		}
		rest, ok := strings.CutPrefix(f.Path, "segments/")
		if !ok || path.Base(f.Path) != agent.FileTrajectory {
			continue
		}
		attempt, _, _ := strings.Cut(rest, "/")
		segment, _, _ := strings.Cut(attempt, ".")
		at, known := last[segment]
		switch {
		case !known:
			last[segment], out = len(out), append(out, f.Path)
		case numberOfAttempt(f.Path) >= numberOfAttempt(out[at]):
			out[at] = f.Path
		}
	}
	if len(out) == 0 && whole {
		out = []string{agent.FileTrajectory}
	}
	return out
}

// numberOfAttempt is the attempt to which a file of a segment belongs: 2 of segments/1.2/NAME.
func numberOfAttempt(name string) int {
	_, rest, _ := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, "/")
	n, _ := strconv.Atoi(number) // evalrun has named the folder
	return n
}

// said is what the agent's trajectory says, and whether there is more of it than was read.
func (page *rolloutPage) said() (out []step, more bool) {
	for _, name := range page.trajectories() {
		data, _, size, err := readFile(page.Folder, name, 0, maxTrajectory)
		if err != nil {
			continue // it was removed a moment ago
		}
		more = more || size > maxTrajectory
		for line := range bytes.Lines(data) {
			var e agent.Event
			if json.Unmarshal(page.Redact.JSON(line), &e) != nil {
				continue // a torn line
			}
			if s, ok := stepOf(e); ok {
				out = append(out, s)
			}
		}
	}
	return out, more
}

// stepOf is an event of a trajectory as a step, if it is one.
func stepOf(e agent.Event) (step, bool) {
	text := func(text string) []textPart {
		if text == "" {
			return nil
		}
		begin, more := cut(text, maxValue)
		return []textPart{{"", begin, more}}
	}
	s := step{At: e.Time, Kind: "other", Who: e.Type, Text: valueParts(e.Data), Folded: true}
	switch e.Type {
	case agent.EventPrompt:
		s.Kind, s.Who, s.Text = "said", "prompt", text(e.Text)
		s.Folded = len(e.Text) > 600
	case agent.EventMessage:
		s.Kind, s.Who, s.Text, s.Folded = "said", "agent", text(e.Text), false
	case agent.EventThought:
		s.Kind, s.Who, s.Text = "said", "thought", text(e.Text)
	case agent.EventToolCall:
		if e.Call == nil {
			return s, false
		}
		c := e.Call
		s = step{At: c.StartedAt, Kind: "tool", Who: cmp.Or(c.Name, c.Title, "tool"), Status: c.Status, Input: valueParts(c.Input), Output: text(c.Text())}
		if c.Server != "" {
			s.Who = c.Server + ": " + s.Who
		}
		if c.DurationMs != nil {
			s.Status += ", " + formatMs(*c.DurationMs)
		}
	case agent.EventPermission, agent.EventElicitation, agent.EventPlan, agent.EventLimit, agent.EventStop:
		if e.Text != "" {
			s.Text = append(text(e.Text), s.Text...)
		}
	default: // a session, a use of tokens, or what is told in another way
		return s, false
	}
	return s, true
}

// happened is what the store knows: segments, waits and answers.
func (page *rolloutPage) happened() (out []step) {
	for _, a := range page.Attempts {
		name := fmt.Sprintf("segment %d", a.Segment)
		if a.Attempt > 1 {
			name += fmt.Sprintf(", attempt %d", a.Attempt)
		}
		end := step{At: a.EndedAt, Kind: "segment", Who: name, Status: a.Outcome}
		if a.Error != nil {
			end.Text, end.Folded = []textPart{{Text: a.Error.Message}}, len(a.Error.Message) > 600
		}
		out = append(out, step{At: a.StartedAt, Kind: "segment", Who: name, Status: "began"}, end)
	}
	for _, w := range page.Detail.Waits {
		out = append(out, waitSteps(w)...)
	}
	return out
}

func waitSteps(w report.Wait) []step {
	name := w.Type + " " + nameOfWait(w.Type, w.InterruptID, w.Asked)
	out := []step{{At: w.CreatedAt, Kind: "wait", Who: name, Status: "asked", Text: valueParts(w.Asked), Folded: true, URL: "#t" + w.TriggerID}}
	if !w.DeliveredAt.IsZero() {
		out = append(out, step{At: w.DeliveredAt, Kind: "wait", Who: name, Status: w.Status + " by " + deliverer(w.DeliveredBy, w.Person), Text: valueParts(w.Answered), Folded: true, URL: "#t" + w.TriggerID})
	}
	return out
}
