package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/report"
)

// maxTrajectory is the most bytes of a segment's trajectory that a page reads.
const maxTrajectory = 32 << 20

var stepKinds = []choice{
	{"", "everything"}, {"said", "what was said"}, {"tool", "tool calls"}, {"segment", "segments"},
	{"wait", "waits and answers"}, {"other", "the rest"},
}

// addTrajectory adds the part of the trajectory that the query asks for. It needs the files of the
// rollout.
func (page *rolloutPage) addTrajectory(q url.Values) {
	all, more := said(page.Folder, page.paths())
	if !slices.ContainsFunc(all, func(s step) bool { return s.Kind == "tool" }) {
		for _, c := range toolCalls(page.Detail) {
			all = append(all, step{
				At: c.From, Kind: "tool", Who: c.Name, Status: c.Status,
				call: &record.Call{Input: c.Input, Output: c.Output},
			})
		}
	}
	page.align(all)
	all = append(page.happened(), all...)
	slices.SortStableFunc(all, func(a, b step) int { return a.At.Compare(b.At) })
	for i := range all {
		all[i].Number = i + 1
	}
	page.Changed = filesChanged(all, func(i int) string {
		return fmt.Sprintf("?step=%d#s%d", i/maxSteps+1, i+1)
	})
	page.StepKind, page.StepKinds, page.StepsCut = q.Get("kind"), stepKinds, more
	if page.StepFind = strings.TrimSpace(q.Get("find")); page.StepFind != "" {
		find := strings.ToLower(page.StepFind)
		all = slices.DeleteFunc(all, func(s step) bool { return !s.has(find) })
	}
	if page.StepKind != "" {
		all = slices.DeleteFunc(all, func(s step) bool { return s.Kind != page.StepKind })
	}
	at, _ := strconv.Atoi(q.Get("step")) // without a number it is the first page
	page.StepsPart = partOfList(len(all), maxSteps, at, func(n int) string {
		q.Set("step", strconv.Itoa(n))
		return "?" + q.Encode() + "#steps"
	})
	page.Steps = all[page.StepsPart.From-1 : page.StepsPart.To]
	left := maxImages
	for i := range page.Steps {
		page.Steps[i].show(&left)
	}
}

// align moves steps that an agent reported in whole seconds into the segment that began within that
// second.
func (page *rolloutPage) align(all []step) {
	for i, s := range all {
		if s.At.Nanosecond() != 0 {
			continue
		}
		for _, a := range page.Attempts {
			if late := a.StartedAt.Sub(s.At); 0 < late && late < time.Second {
				all[i].At = a.StartedAt
			}
		}
	}
}

// has reports whether a step contains a text, which is in lower case.
func (s *step) has(text string) bool {
	in := func(said string) bool { return strings.Contains(strings.ToLower(said), text) }
	if in(s.Who) || in(s.Status) || in(s.said) {
		return true
	}
	for _, p := range s.Text {
		if in(p.Text) {
			return true
		}
	}
	return s.call != nil && (in(string(s.call.Input)) || in(s.call.Text()) || in(string(s.result)))
}

// trajectories returns the files of the agent's trajectory: for each segment the file of its last
// attempt, since an attempt that was repeated does not count. The file of the whole rollout has the
// same content, and is read only if the segments have none any more. A file of that name that an
// agent left elsewhere is not its trajectory.
func trajectories(files iter.Seq[string]) (out []string) {
	whole := false
	last := map[string]int{} // the places in out, by segment
	for name := range files {
		if name == record.FileTrajectory {
			whole = true
		}
		rest, ok := strings.CutPrefix(name, "segments/")
		if !ok || path.Base(name) != record.FileTrajectory {
			continue
		}
		attempt, _, _ := strings.Cut(rest, "/")
		segment, _, _ := strings.Cut(attempt, ".")
		at, known := last[segment]
		switch {
		case !known:
			last[segment], out = len(out), append(out, name)
		case numberOfAttempt(name) >= numberOfAttempt(out[at]):
			out[at] = name
		}
	}
	if len(out) == 0 && whole {
		out = []string{record.FileTrajectory}
	}
	return out
}

// numberOfAttempt returns the attempt of a segment's file: 2 for segments/1.2/NAME.
func numberOfAttempt(name string) int {
	_, rest, _ := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, "/")
	n, _ := strconv.Atoi(number) // evalrun named the folder
	return n
}

// said reads the agent's trajectory from these files of a rollout. more is set if a part was not
// read.
func said(folder report.Folder, files iter.Seq[string]) (out []step, more bool) {
	var seen []record.Event
	for _, name := range trajectories(files) {
		data, _, size, err := readFile(folder, name, 0, maxTrajectory)
		if err != nil {
			continue // the file was removed a moment ago
		}
		more = more || size > maxTrajectory
		for line := range bytes.Lines(data) {
			var e record.Event
			if json.Unmarshal(folder.Redact.JSON(line), &e) != nil {
				continue // the line is torn
			}
			if e.Type == record.EventMCPCall {
				seen = append(seen, e)
			} else if s, ok := stepOf(e); ok {
				out = append(out, s)
			}
		}
	}
	return addSeen(out, seen), more
}

// addSeen adds the calls that the MCP gateway saw: the whole result of a call that the agent
// reported, since some agents leave out images, and the calls that it did not report.
func addSeen(all []step, seen []record.Event) []step {
	told := map[string][]int{}
	for i, s := range all {
		if s.call != nil {
			key := s.call.Server + "\n" + s.call.Name + "\n" + jsonobj.Canonical(s.call.Input)
			told[key] = append(told[key], i)
		}
	}
	for _, e := range seen {
		var r struct {
			Server, Tool      string
			Arguments, Result json.RawMessage
			Error             json.RawMessage
			StartedAt         time.Time
			DurationMs        int64
			Refused           bool
		}
		if json.Unmarshal(e.Data, &r) != nil {
			continue // an event of another form has no call
		}
		key := r.Server + "\n" + r.Tool + "\n" + jsonobj.Canonical(r.Arguments)
		if at := told[key]; len(at) > 0 {
			all[at[0]].result, told[key] = r.Result, at[1:]
			continue
		}
		c := record.Call{
			Name: r.Tool, Server: r.Server, Status: "completed", Input: r.Arguments, Output: r.Result,
			Content: contentOf(r.Result), StartedAt: r.StartedAt, DurationMs: &r.DurationMs,
		}
		switch {
		case r.Refused:
			c.Status = "refused"
		case r.Error != nil:
			c.Status, c.Output = "failed", r.Error
		}
		all = append(all, callStep(c))
	}
	return all
}

// stepOf converts an event of a trajectory to a step, if it is one.
func stepOf(e record.Event) (step, bool) {
	text := func(text string) []textPart {
		if text == "" {
			return nil
		}
		begin, more := cut(text, maxValue)
		return []textPart{{"", begin, more}}
	}
	s := step{At: e.Time, Kind: "other", Who: e.Type, said: e.Text, Text: valueParts(e.Data), Folded: true}
	switch e.Type {
	case record.EventPrompt:
		s.Kind, s.Who, s.Text = "said", "prompt", text(e.Text)
		s.Folded = len(e.Text) > 600
	case record.EventMessage:
		s.Kind, s.Who, s.Text, s.Folded = "said", "agent", text(e.Text), false
	case record.EventThought:
		s.Kind, s.Who, s.Text = "said", "thought", text(e.Text)
		s.Folded = len(e.Text) > 300
	case record.EventToolCall:
		if e.Call == nil {
			return s, false
		}
		return callStep(*e.Call), true
	case record.EventPermission, record.EventElicitation, record.EventPlan, record.EventLimit, record.EventStop:
		if e.Text != "" {
			s.Text = append(text(e.Text), s.Text...)
		}
	default: // other events are a session, a use of tokens, or reported in another way
		return s, false
	}
	return s, true
}

// contentOf converts the content of an MCP result to that of a call.
func contentOf(result json.RawMessage) json.RawMessage {
	var r struct {
		Content []json.RawMessage `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil {
		return nil // a result of another form has none
	}
	type block struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
	}
	var blocks []block
	for _, one := range r.Content {
		blocks = append(blocks, block{"content", one})
	}
	out, _ := json.Marshal(blocks) // the blocks came from JSON
	return out
}

func callStep(c record.Call) step {
	s := step{At: c.StartedAt, Kind: "tool", Who: cmp.Or(c.Name, c.Title, "tool"),
		Status: c.Status, Edits: editsIn(c.Content), call: &c}
	if c.Server != "" {
		s.Who = c.Server + ": " + s.Who
	}
	if c.DurationMs != nil && *c.DurationMs > 0 {
		s.Status += ", " + formatMs(*c.DurationMs)
	}
	return s
}

// inLine is the most characters of arguments and of a result in the line of a call.
const inLine = 160

// show prepares the parts of a call that a page shows. left is the number of bytes that its images
// may have.
func (s *step) show(left *int) {
	if s.call == nil {
		return
	}
	images := pictures{left: left}
	s.call.Content, s.call.Output = images.take(s.call.Content), images.take(s.call.Output)
	images.take(s.result) // a result that the agent reported has the same images
	s.Images = images.all
	s.Input = valueParts(s.call.Input)
	text := s.call.Text()
	if raw := json.RawMessage(text); json.Valid(raw) {
		s.Output = valueParts(raw)
	} else if text != "" {
		begin, more := cut(text, maxValue)
		s.Output = []textPart{{"", begin, more}}
	}
	s.Arguments, s.Result = oneLine(s.call.Input), lineOf(text)
}

// oneLine writes the beginning of a value in one line.
func oneLine(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) > 64*maxValue || json.Compact(&out, raw) != nil || isNothing(out.String()) {
		return ""
	}
	return short(readable(out.String()), inLine)
}

func isNothing(text string) bool { return text == "null" || text == "{}" || text == "[]" }

// lineOf returns the first line of a text that says something, without colours.
func lineOf(text string) string {
	begin, _ := cut(text, maxValue)
	for line := range strings.Lines(sgr.ReplaceAllString(begin, "")) {
		if line = strings.TrimSpace(line); line != "" && !isNothing(line) {
			return short(line, inLine)
		}
	}
	return ""
}

// happened returns the steps that the store knows: segments, waits and answers.
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
	name := kindOf(w.Type) + " " + nameOfWait(w.Type, w.InterruptID, w.Asked)
	out := []step{{
		At: w.CreatedAt, Kind: "wait", Who: name, Status: "asked",
		Text: valueParts(w.Asked), Folded: true, URL: "#t" + w.TriggerID,
	}}
	if !w.DeliveredAt.IsZero() {
		out = append(out, step{
			At: w.DeliveredAt, Kind: "wait", Who: name, Status: w.Status + " by " + deliverer(w.DeliveredBy, w.Person),
			Text: valueParts(w.Answered), Folded: true, URL: "#t" + w.TriggerID,
		})
	}
	return out
}
