package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/service"
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
	var told *overview
	for {
		changed := p.o.Service.Store().Changed(run.ID)
		began := time.Now()
		now, err := p.overviews.now(r.Context(), run.ID)
		if errors.Is(err, service.ErrNotFound) {
			_ = s.send(0, "patch", patch{Text: map[string]string{"newer": "This run was removed from the store."}, Set: [][3]any{}, Final: true}) // nobody may listen any more
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // the browser comes again, and is told then
		}
		took := time.Since(began)
		if told == nil || told.head.Revision != now.head.Revision {
			p := patchOf(told, now)
			s.addQuestions(r, p.Text)
			if s.send(now.head.Revision, "patch", p) != nil || now.head.Final {
				return nil
			}
			told = now
		}
		if !s.wait(r, changed, max(livePause, 10*took)) {
			return nil
		}
	}
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
		s.addQuestions(r, text)
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
	return s.write(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, event, text))
}

// addQuestions adds how many rollouts wait for a person, which the head of every page says.
func (s *stream) addQuestions(r *http.Request, text map[string]string) {
	if n, err := s.p.o.openQuestions(r); err == nil { // without it the page keeps what it says
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
