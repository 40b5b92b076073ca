package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxStreams is how many browsers are told of changes of runs at once. The pages of others can be
	// read all the same.
	maxStreams = 256
	// livePause is how long changes are gathered at least, livePing how often a stream says that it is
	// there.
	livePause = 250 * time.Millisecond
	livePing  = 15 * time.Second
)

// patch is what has changed of a run: texts by the ids of their elements, marks by theirs, and rollouts.
// No markup travels.
type patch struct {
	Text map[string]string `json:"text"`
	Mark map[string]string `json:"mark"`
	// Set has the rollouts that have changed, by their places: place, status and score.
	Set [][3]any `json:"set"`
	// Final says that nothing will change any more.
	Final bool `json:"final"`
}

// patchOf is the difference between two overviews of a run; of none to the first it is everything.
func patchOf(before, now *overview) patch {
	v := verdictOf(now)
	p := patch{Final: now.head.Final, Set: [][3]any{}, Mark: map[string]string{"run-status": classOf(now.head.Status), "verdict": v.Class},
		Text: map[string]string{"t-rev": strconv.FormatInt(now.head.Revision, 10), "t-status": string(now.head.Status), "t-verdict": v.Word, "t-why": strings.Join(v.Sentences, " ")}}
	for _, s := range statuses {
		p.Text["n-"+s] = strconv.Itoa(now.counts[s])
	}
	for i := range now.rows {
		if r := &now.rows[i]; before == nil || before.rows[i].Status != r.Status {
			p.Set = append(p.Set, [3]any{i, r.Status, formatScore(r.Score)})
		}
	}
	return p
}

// live streams what changes of a run. The first event has everything, so that a browser that comes back
// after any time, or to another process, has missed nothing.
func (p *Pages) live(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	if _, err := p.overviewOf(r.Context(), run); err != nil {
		return err // before the stream has begun, so that the browser is told
	}
	s, err := p.newStream(w)
	if err != nil {
		return err
	}
	defer s.close()
	m, leave := p.feeds.join(run.ID)
	defer leave()
	told, err := p.overviews.now(r.Context(), run.ID) // which has everything that the feed has told
	if err != nil {
		return nil //nolint:nilerr // the browser comes again, and is told then
	}
	all := patchOf(nil, told)
	p.addQuestions(r.Context(), all.Text)
	if s.send(told.head.Revision, "patch", all) != nil || all.Final {
		return nil
	}
	for s.wait(r, m.followed, 0) {
		m = m.then
		if m.data != nil && (m.last || m.revision > told.head.Revision) && s.sendText(m.revision, "patch", m.data) != nil || m.last {
			return nil
		}
	}
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
}

func (p *Pages) newStream(w http.ResponseWriter) (*stream, error) {
	select {
	case p.streams <- struct{}{}:
	default:
		return nil, &pageError{http.StatusServiceUnavailable, fmt.Sprintf("%d browsers are told of changes, which is the most; load the page again to see what is new", maxStreams)}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{p, w, http.NewResponseController(w), time.NewTicker(livePing)}
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

// write sends a piece, for which the browser has a minute.
func (s *stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(time.Minute)) // a writer without deadlines is a test's
	if _, err := fmt.Fprint(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
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
