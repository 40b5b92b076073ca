package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// livePause is the least time for which changes are gathered.
	livePause = 250 * time.Millisecond
	// maxGap is the most revisions that a browser may be behind and still get the changes alone.
	maxGap = 5000
)

// patch is a change of a run: texts by the ids of their elements, marks by theirs, and rollouts.
// It has no markup.
type patch struct {
	Text map[string]string `json:"text"`
	Mark map[string]string `json:"mark"`
	// Set has the rollouts that have changed: place, status and score. With Whole it has
	// all rollouts.
	Set   [][3]any `json:"set"`
	Whole bool     `json:"whole,omitempty"`
	// Pairs has the results of these rollouts' evaluations for their agents: the places of evaluation
	// and agent, score and spread.
	Pairs [][4]int `json:"pairs,omitempty"`
	// Final is set if no rollout will change any more, unless the run is scored again. Rescored
	// counts how often that was done.
	Final bool `json:"final"`
	// Good is set if all rollouts have passed and no evaluator failed.
	Good     bool `json:"good,omitempty"`
	Rescored int  `json:"rescored"`
	// Gone is set if the run was removed.
	Gone bool `json:"gone,omitempty"`
}

// patchOf returns the changes of a run since a revision. It returns everything if these are
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

// patchTexts makes a patch without rollouts.
func patchTexts(now *overview) patch {
	v := verdictOf(now)
	p := patch{
		Final: now.head.Final, Good: now.good(), Rescored: rescored(now.head), Set: [][3]any{},
		Mark: map[string]string{"run-status": classOf(now.head.Status), "verdict": v.Class},
		Text: map[string]string{
			"t-rev": strconv.FormatInt(now.head.Revision, 10), "t-status": string(now.head.Status),
			"t-verdict": v.Word, "t-why": strings.Join(v.Sentences, " "),
		},
	}
	for _, s := range statuses {
		p.Text["n-"+s] = strconv.Itoa(now.counts[s])
	}
	return p
}

// sinceOf returns the revision that a browser knows: that of the last event that it received, or of
// its page; 0 if it knows none.
func sinceOf(r *http.Request) int64 {
	for _, text := range []string{r.Header.Get("Last-Event-ID"), r.URL.Query().Get("since")} {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// moment is a run at one revision, shared by all streams that follow it.
type moment struct {
	*overview
	// since is the revision of the moment before, and data the changes after it, as JSON.
	since int64
	data  []byte
}

// livePages stream the changes of pages that are open.
type livePages struct {
	*site
	// moments is the feed of runs, which all streams of a run share.
	moments *service.Feed[moment]
}

func newLivePages(s *site) *livePages {
	p := &livePages{site: s}
	p.moments = service.NewFeed(s.o.Service, livePause, p.moment)
	return p
}

// moment reads the changes of a run.
func (p *livePages) moment(ctx context.Context, runID string, before moment) (moment, error) {
	now, err := p.overviews.now(ctx, runID)
	if err != nil || before.overview != nil && before.head.Revision == now.head.Revision {
		return before, err
	}
	m := moment{overview: now, since: -1}
	if before.overview != nil {
		m.since = before.head.Revision
	}
	m.data = p.encode(ctx, patchOf(m.since, now))
	return m, nil
}

// encode encodes a patch with the number of rollouts that wait for a person, which every page has
// in its head.
func (p *livePages) encode(ctx context.Context, one patch) []byte {
	p.addQuestions(ctx, one.Text)
	data, _ := json.Marshal(one) // strings, numbers and booleans can be encoded
	return data
}

// addQuestions adds the number of rollouts that wait for a person.
func (p *livePages) addQuestions(ctx context.Context, text map[string]string) {
	if n, err := p.o.openQuestions(ctx); err == nil { // on an error the page keeps its number
		text["n-asked"] = strconv.Itoa(n)
	}
}

// run streams the changes of a run, or answers with the changes if the browser asks for them alone.
func (p *livePages) run(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	if r.URL.Query().Has("once") {
		return p.changes(w, r, run.ID)
	}
	return p.followRun(r, run, p.streams.answerWith(w))
}

// followRun streams the changes of a run. The first event has the changes since the revision that
// the browser knows, or everything if this process does not know them: so a browser that comes back
// after any time, or to another process, has missed nothing. An event "reload" says that the
// browser was away for so long that it must load the rest of its page again. A slow reader gets all
// changes meanwhile in one event. The stream goes on when the run has ended, because it may be
// scored again.
func (p *livePages) followRun(r *http.Request, run store.Run, open opener) error {
	if _, err := p.overviewOf(r.Context(), run); err != nil {
		return err // this comes before the stream begins, so that the browser gets the error
	}
	s, err := open(&p.streams.runs, errManyStreams)
	if err != nil {
		return err
	}
	defer s.Close()
	follower := p.moments.Follow(run.ID, moment{})
	defer follower.Close()
	now, err := p.overviews.now(r.Context(), run.ID)
	if err != nil {
		return nil //nolint:nilerr // the browser comes again, and is told then
	}
	told, event := sinceOf(r), "patch"
	if told > 0 && now.head.Revision-told > maxGap {
		event = "reload"
	}
	if tell(s, now.head.Revision, event, p.encode(r.Context(), patchOf(told, now))) != nil {
		return nil
	}
	for told = now.head.Revision; ; {
		m, changed, err := follower.Now(r.Context())
		switch {
		case errors.Is(err, service.ErrNotFound):
			gone := patch{
				Text: map[string]string{"newer": "This run was removed from the store."},
				Set:  [][3]any{}, Final: true, Gone: true,
			}
			data, _ := json.Marshal(gone) // strings and booleans can be encoded
			// It has no revision: browsers pass over those that they know. The browser may be gone.
			_ = tell(s, 0, "patch", data)
			return nil
		case err != nil:
			return nil //nolint:nilerr // as above
		case m.head.Revision <= told: // the moment is that of the first event, or an earlier one
		case m.since == told:
			err = tell(s, m.head.Revision, "patch", m.data)
		default:
			err = tell(s, m.head.Revision, "patch", p.encode(r.Context(), patchOf(told, m.overview)))
		}
		if told = max(told, m.head.Revision); err != nil || !s.Wait(r.Context(), changed, livePause) {
			return nil //nolint:nilerr // the browser is gone
		}
	}
}

// changes answers with the changes of a run since a revision.
func (p *livePages) changes(w http.ResponseWriter, r *http.Request, runID string) error {
	now, err := p.overviews.now(r.Context(), runID)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone misses the answer.
	_, _ = w.Write(append(p.encode(r.Context(), patchOf(sinceOf(r), now)), '\n'))
	return nil
}

// runs tells the list of runs that something has changed.
func (p *livePages) runs(w http.ResponseWriter, r *http.Request) error {
	return p.followRuns(r, p.streams.answerWith(w))
}

func (p *livePages) followRuns(r *http.Request, open opener) error {
	s, err := open(&p.streams.runs, errManyStreams)
	if err != nil {
		return err
	}
	defer s.Close()
	for n := int64(0); ; n++ {
		changed := p.o.Service.Changed("")
		if n == 0 {
			err = s.Ping()
		} else {
			newer := patch{Text: map[string]string{"newer": "Something has changed."}, Set: [][3]any{}}
			err = tell(s, n, "patch", p.encode(r.Context(), newer))
		}
		if err != nil || !s.Wait(r.Context(), changed, 4*livePause) {
			return nil //nolint:nilerr // the browser is gone
		}
	}
}
