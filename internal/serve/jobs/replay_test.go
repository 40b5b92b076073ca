package jobs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/serve/jobs"
)

var update = flag.Bool("update", false, "write what the server answers into the transcripts")

// step is one request of a transcript: what the registry answered, and where it is different what
// is answered here, with the row of docs/compatibility.md that says so.
type step struct {
	actions        []string
	request        string
	recorded, ours string
	row            string
	// sent takes the place of the request, if that cannot be sent as it is.
	sent string
}

// A transcript is what a client has sent to a real registry and got back. Each paragraph is a
// request (>) with what was answered (<), what is answered here if that is different (!), and the
// heading of docs/compatibility.md that says why (#). = is sent in place of the request. @ does
// something before. Ids are {1}, {2}, … in the order in which they come.
func readTranscript(t *testing.T, path string) (steps []*step) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s *step
	for line := range strings.Lines(string(data)) {
		kind, text, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if s == nil && kind != "" && kind != "--" {
			s = &step{}
			steps = append(steps, s)
		}
		switch {
		case kind == "" || kind == "--":
			s = nil
		case kind == ">":
			s.request = text
		case kind == "<":
			s.recorded = text
		case kind == "!":
			s.ours = text
		case kind == "=":
			s.sent = text
		case kind == "#":
			s.row = text
		case strings.HasPrefix(kind, "@"):
			s.actions = append(s.actions, kind[1:]+" "+text)
		default:
			t.Fatalf("%s: %s", path, line)
		}
	}
	return steps
}

// clock are the members whose values are times.
var clock = []string{"submitted_at", "created_at", "last_heartbeat_at", "lease_expires_at", "timestamp"}

// normal is an answer without its ids and times.
func (p *player) normal(answer string) string {
	status, body, _ := strings.Cut(strings.ReplaceAll(answer, `:{soon}`, fmt.Sprint(":", p.deadline)), " ")
	var v any
	dec := json.NewDecoder(strings.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return answer // text
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if v[key] != nil && slices.Contains(clock, key) {
					v[key] = "time"
				} else {
					v[key] = walk(v[key])
				}
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case string:
			for name, id := range p.ids {
				v = strings.ReplaceAll(v, id, name)
			}
			if s, ok := cursorID(v); ok {
				return "cursor of " + p.nameOf(s)
			}
			return v
		}
		return v
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(walk(v)); err != nil {
		p.t.Fatal(err)
	}
	text := strings.TrimSpace(out.String())
	if p.deadline != 0 {
		text = strings.ReplaceAll(text, strconv.FormatInt(p.deadline, 10), "{soon}")
	}
	return status + " " + text
}

// player plays a transcript.
type player struct {
	t   *testing.T
	w   *world
	ids map[string]string
	// deadline stands for {soon}, and cursor, the last that came, for {cursor}.
	deadline int64
	cursor   string
}

func (p *player) nameOf(id string) string {
	for name, one := range p.ids {
		if one == id {
			return name
		}
	}
	return id
}

// play sends one request and returns the answer.
func (p *player) play(s *step) string {
	var after []func()
	for _, action := range s.actions {
		verb, rest, _ := strings.Cut(action, " ")
		switch verb {
		case "execute":
			p.w.execute()
		case "keep":
			p.w.keep()
		case "submit":
			of := strings.Fields(rest)
			var made struct{ ID string }
			p.w.send("POST", "/jobs", fmt.Sprintf(`{"capability":%q,"submitted_by":%q,"submitted_payload":{}}`, of[1], of[2])).decode(p.t, &made)
			p.ids[of[0]] = made.ID
		case "cancel":
			name, reason, _ := strings.Cut(rest, " ")
			p.w.send("POST", "/jobs/"+p.ids[name]+"/cancel", fmt.Sprintf(`{"reason":%q}`, reason))
		case "post":
			typ, payload, _ := strings.Cut(rest, " ")
			posted := make(chan struct{})
			go func() {
				defer close(posted)
				p.w.post(p.ids["{1}"], fmt.Sprintf(`{"type":%q,"payload":%s}`, typ, payload))
			}()
			after = append(after, func() { <-posted })
		}
	}
	request := s.request
	if s.sent != "" {
		request = s.sent
	}
	if strings.Contains(request, "{soon}") && p.deadline == 0 {
		p.deadline = time.Now().Unix() + 3 // long enough for a busy machine to submit before
	}
	request = strings.ReplaceAll(request, "{cursor}", p.cursor)
	request = strings.ReplaceAll(request, "{soon}", strconv.FormatInt(p.deadline, 10))
	for name, id := range p.ids {
		request = strings.ReplaceAll(request, name, id)
	}
	parts := strings.SplitN(request, " ", 3)
	body := ""
	if len(parts) == 3 {
		body = parts[2]
	}
	r := p.w.send(parts[0], parts[1], body)
	for _, f := range after {
		f()
	}
	var made struct{ ID string }
	if parts[0] == "POST" && parts[1] == "/jobs" && r.status == 201 {
		r.decode(p.t, &made)
		p.ids[fmt.Sprintf("{%d}", len(p.ids)+1)] = made.ID
	}
	var page struct {
		Next string `json:"next_cursor"`
	}
	if json.Unmarshal([]byte(r.body), &page) == nil && page.Next != "" {
		p.cursor = page.Next
	}
	return fmt.Sprintf("%d %s", r.status, r.body)
}

var capability = regexp.MustCompile(`(?:"capability":"|@submit \S+ )([\w.]+)`)

// The registry's transcripts of what clients do, played against this server.
func TestTranscripts(t *testing.T) {
	rows, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			p := &player{t: t, w: newWorld(t), ids: map[string]string{}}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range capability.FindAllStringSubmatch(string(data), -1) {
				p.w.addSet(m[1], "done")
			}
			text := string(data)
			for _, s := range readTranscript(t, path) {
				got, want := p.normal(p.play(s)), p.normal(s.recorded)
				if s.ours != "" {
					want = s.ours
					if got == p.normal(s.recorded) {
						t.Errorf("%s: the answer is the registry's, and not %s", s.request, s.ours)
					}
					if s.row == "" || !strings.Contains(string(rows), s.row) {
						t.Errorf("%s: no row %q of docs/compatibility.md says that the answer is another one", s.request, s.row)
					}
				}
				if got == want {
					continue
				}
				if !*update {
					t.Errorf("%s\n got %s\nwant %s", s.request, got, want)
				}
				text = strings.Replace(text, "< "+s.recorded+"\n! "+s.ours+"\n", "< "+s.recorded+"\n", 1)
				text = strings.Replace(text, "> "+s.request+"\n", "> "+s.request+"\n\x00", 1)
				text = strings.Replace(text, "\x00< "+s.recorded+"\n", "< "+s.recorded+"\n! "+got+"\n", 1)
				text = strings.ReplaceAll(text, "\x00", "")
			}
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// cursorID is the id in a cursor.
func cursorID(value string) (string, bool) {
	_, id, err := jobs.ReadCursor(value)
	return id, err == nil
}
