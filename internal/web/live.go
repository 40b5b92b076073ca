package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/schemas"
)

const (
	// maxStreams is how many browsers are told of changes of runs at once. The pages of others can be
	// read all the same.
	maxStreams = 256
	// livePause is how long changes are gathered at least, livePing how often a stream says that it is
	// there.
	livePause = 250 * time.Millisecond
	livePing  = 15 * time.Second
	// maxGap is by how many revisions a browser may be behind that is told the changes alone.
	maxGap = 5000
)

// patch is what has changed of a run: texts by the ids of their elements, marks by theirs, and rollouts.
// No markup travels.
type patch struct {
	Text map[string]string `json:"text"`
	Mark map[string]string `json:"mark"`
	// Set has the rollouts that have changed, by their places: place, status and score. With Whole these
	// are all rollouts.
	Set   [][3]any `json:"set"`
	Whole bool     `json:"whole,omitempty"`
	// Pairs has what these rollouts' evaluations have come to for their agents: the places of evaluation
	// and agent, score and spread.
	Pairs [][4]int `json:"pairs,omitempty"`
	// Final says that no rollout will change any more, unless the run is scored again; Rescored is how
	// often that was done.
	Final bool `json:"final"`
	// Good says that all rollouts have passed, and that no evaluator failed.
	Good     bool `json:"good,omitempty"`
	Rescored int  `json:"rescored"`
	// Gone says that the run was removed.
	Gone bool `json:"gone,omitempty"`
}

// patchOf is what has changed of a run since a revision. It is everything if the changes since then are
// not known.
func patchOf(since int64, now *overview) patch {
	p := patchTexts(now)
	p.Whole = since < now.base || since > now.head.Revision
	var rows []int
	for i := range now.rows {
		if r := &now.rows[i]; p.Whole || r.changed > since {
			p.Set, rows = append(p.Set, [3]any{i, r.Status, formatScore(r.Score)}), append(rows, i)
		}
	}
	p.Pairs = now.changedPairs(rows)
	return p
}

// patchTexts is a patch without rollouts.
func patchTexts(now *overview) patch {
	v := verdictOf(now)
	p := patch{Final: now.head.Final, Good: now.good(), Rescored: rescored(now.head), Set: [][3]any{}, Mark: map[string]string{"run-status": classOf(now.head.Status), "verdict": v.Class},
		Text: map[string]string{"t-rev": strconv.FormatInt(now.head.Revision, 10), "t-status": string(now.head.Status), "t-verdict": v.Word, "t-why": strings.Join(v.Sentences, " ")}}
	for _, s := range statuses {
		p.Text["n-"+s] = strconv.Itoa(now.counts[s])
	}
	return p
}

// rescored is how many times a run was scored again, to the end.
func rescored(h schemas.Head) (n int) {
	for _, one := range h.Rescorings {
		if one.EndedAt != nil {
			n++
		}
	}
	return n
}

// sinceOf is the revision that a browser knows: that of the last event that it has got, or of its page;
// 0 if it knows none.
func sinceOf(r *http.Request) int64 {
	for _, text := range []string{r.Header.Get("Last-Event-ID"), r.URL.Query().Get("since")} {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// live streams what changes of a run. The first event has what has changed since the revision that the
// browser knows, and everything if this process does not know what that is: so a browser that comes back
// after any time, or to another process, has missed nothing. An event "reload" says that it was away for
// so long that what its page has besides is to be loaded again. The stream goes on when the run has
// ended, because it may be scored again.
func (p *Pages) live(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	if _, err := p.overviewOf(r.Context(), run); err != nil {
		return err // before the stream has begun, so that the browser is told
	}
	if r.URL.Query().Has("once") {
		return p.changes(w, r, run.ID)
	}
	s, err := p.newStream(w)
	if err != nil {
		return err
	}
	defer s.close()
	l, leave := p.feeds.join(run.ID, s.drop)
	defer leave()
	told, err := p.overviews.now(r.Context(), run.ID) // which has everything that the feed has told
	if err != nil {
		return nil //nolint:nilerr // the browser comes again, and is told then
	}
	since, event := sinceOf(r), "patch"
	if since > 0 && told.head.Revision-since > maxGap {
		event = "reload"
	}
	first := patchOf(since, told)
	p.addQuestions(r.Context(), first.Text)
	if s.send(told.head.Revision, event, first) != nil {
		return nil
	}
	for s.wait(r, l.at.followed, 0) {
		m := p.feeds.next(l)
		if m.data != nil && (m.last || m.revision > told.head.Revision) && s.sendText(m.revision, "patch", m.data) != nil || m.last {
			return nil
		}
	}
	return nil
}

// changes answers with what has changed of a run since a revision.
func (p *Pages) changes(w http.ResponseWriter, r *http.Request, runID string) error {
	now, err := p.overviews.now(r.Context(), runID)
	if err != nil {
		return err
	}
	out := patchOf(sinceOf(r), now)
	p.addQuestions(r.Context(), out.Text)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a reader who is gone is told nothing
	return nil
}

// runsLive tells the list of runs that something has changed.
func (p *Pages) runsLive(w http.ResponseWriter, r *http.Request) error {
	s, err := p.newStream(w)
	if err != nil {
		return err
	}
	defer s.close()
	for n := int64(0); ; n++ {
		changed := p.o.Service.Store().Changed("")
		text := map[string]string{"newer": "Something has changed."}
		p.addQuestions(r.Context(), text)
		if n == 0 && s.ping() != nil || n > 0 && s.send(n, "patch", patch{Text: text, Set: [][3]any{}}) != nil {
			return nil
		}
		if !s.wait(r, changed, 4*livePause) {
			return nil
		}
	}
}

// stream is an answer of server-sent events.
type stream struct {
	p       *Pages
	w       http.ResponseWriter
	control *http.ResponseController
	pings   *time.Ticker

	mu      sync.Mutex
	dropped bool
}

func (p *Pages) newStream(w http.ResponseWriter) (*stream, error) {
	select {
	case p.streams <- struct{}{}:
	default:
		return nil, &pageError{http.StatusServiceUnavailable, fmt.Sprintf("%d browsers are told of changes, which is the most; load the page again to see what is new", maxStreams)}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{p: p, w: w, control: http.NewResponseController(w), pings: time.NewTicker(livePing)}
	_, _ = fmt.Fprint(w, "retry: 2000\n\n") // a browser that is gone is noticed by what follows
	return s, nil
}

func (s *stream) close() {
	s.pings.Stop()
	<-s.p.streams
}

func (s *stream) send(id int64, event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.sendText(id, event, text)
}

func (s *stream) sendText(id int64, event string, text []byte) error {
	return s.write(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, event, text))
}

// addQuestions adds how many rollouts wait for a person, which the head of every page says.
func (p *Pages) addQuestions(ctx context.Context, text map[string]string) {
	if n, err := p.o.openQuestions(ctx); err == nil { // without it the page keeps what it says
		text["n-asked"] = strconv.Itoa(n)
	}
}

func (s *stream) ping() error { return s.write(": ping\n\n") }

// errDropped means that a browser reads too slowly. It comes again by itself.
var errDropped = errors.New("the browser is too far behind")

// write sends a piece, for which the browser has a minute.
func (s *stream) write(text string) error {
	if !s.allow() {
		return errDropped
	}
	if _, err := fmt.Fprint(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *stream) allow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.control.SetWriteDeadline(time.Now().Add(time.Minute)) // a writer without deadlines is a test's
	return !s.dropped
}

// drop ends the stream, also while a piece of it is written.
func (s *stream) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	_ = s.control.SetWriteDeadline(time.Now()) // as above
}

// wait returns when something has changed and a pause is over, and whether to go on then.
func (s *stream) wait(r *http.Request, changed <-chan struct{}, pause time.Duration) bool {
	var paused <-chan time.Time
	for {
		select {
		case <-changed:
			changed, paused = nil, time.After(pause)
		case <-paused:
			return true
		case <-s.pings.C:
			if s.ping() != nil {
				return false
			}
		case <-s.p.o.Draining:
			return false
		case <-r.Context().Done():
			return false
		}
	}
}
