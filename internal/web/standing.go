package web

import (
	"fmt"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/eval/summary"
	judged "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// runStatuses are the words for the standing of a run: those of verdicts, and one for a run that
// has ended and whose verdict is not known.
var runStatuses = append(slices.Clone(judged.Words), "ended")

// standing is the standing of a run: its status, or its verdict once it has ended.
type standing struct {
	Status, Class string
	// Missing says which gates of a run that has ended are not met, and what its scores leave out.
	Missing []string
}

// statusOf returns the status of a run, in a word.
func statusOf(r runner.Run) string {
	if r.Interrupted {
		return "interrupted"
	}
	return string(r.Status)
}

// maxStandings is the most runs whose standings are cached.
const maxStandings = 2000

// standings caches how runs have ended, each at one revision: the statistics of their results
// documents may be large.
type standings struct {
	store *runner.Store
	mu    sync.Mutex
	runs  map[string]ended
}

type ended struct {
	revision int64
	standing
}

// chooses reports whether the standing of a run is a word. A link that is older than the words of
// verdicts may ask for the successful runs.
func (q *standings) chooses(r runner.Run, word string) bool {
	if word == string(schemas.Successful) || !r.Final {
		return word == statusOf(r)
	}
	return word == q.of(r).Status
}

// of returns the standing of a run. A run without a verdict of its revision is not green.
func (q *standings) of(r runner.Run) standing {
	word := statusOf(r)
	q.mu.Lock()
	known, ok := q.runs[r.ID]
	q.mu.Unlock()
	if ok && known.revision == r.Revision && (r.Final || known.Status == word) {
		return known.standing
	}
	head, ok := q.store.CurrentHead(r)
	if !r.Final { // its standing is its status, with a note if it fails already
		out := standing{Status: word, Class: word}
		if ok && judged.Of(&head, runner.Accept{}, "").Word == judged.FailsAlready {
			out.Missing = []string{judged.FailsAlready}
		}
		q.remember(r, out)
		return out
	}
	if !ok {
		if r.Status == schemas.Successful {
			return standing{Status: "ended", Class: "unscored"}
		}
		return standing{Status: word, Class: word}
	}
	out := standing{Missing: missingOf(head)}
	j := judged.Of(&head, runner.Accept{}, "")
	out.Status, out.Class = j.Word, classOfVerdict(j)
	if j.Verdict == runner.Finished {
		out.Missing = append(out.Missing, j.Figures)
	}
	q.remember(r, out)
	return out
}

// remember caches the standing of a run at its revision.
func (q *standings) remember(r runner.Run, out standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) >= maxStandings {
		clear(q.runs)
	}
	q.runs[r.ID] = ended{r.Revision, out}
}

// missingOf says which gates of a run are not met or undecided, and what its scores leave out.
func missingOf(head schemas.Head) (out []string) {
	n := gateVerdicts(head.Statistics)
	of := counted(len(head.Statistics.Gates), "gate")
	if n[summary.GateFail] > 0 {
		out = append(out, fmt.Sprintf("%d of %s not met", n[summary.GateFail], of))
	}
	if n[summary.GateUndecided] > 0 {
		out = append(out, fmt.Sprintf("%d of %s undecided", n[summary.GateUndecided], of))
	}
	return append(out, report.Missing(&head)...)
}
