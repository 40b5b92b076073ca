package wait

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
)

// SourceCase is waittest.Case, which this package cannot import.
type SourceCase struct {
	Source Source
	Job    Job
	Starts func() int
	End    func()
}

// SourceCases make a case of each source, by its name.
var SourceCases = map[string]func(t *testing.T) SourceCase{
	SourceExternal: func(*testing.T) SourceCase {
		return SourceCase{Source: external{}, Job: Job{TriggerID: "t1", Spec: Spec{Type: TypeJob}}}
	},
	SourceTimer: func(*testing.T) SourceCase {
		now, at := noon, noon.Add(time.Hour)
		return SourceCase{
			Source: timer{func() time.Time { return now }}, Job: Job{TriggerID: "t1", Spec: Spec{Type: TypeTimer, ResumeAt: &at}},
			End: func() { now = at },
		}
	},
	SourceExec: func(t *testing.T) SourceCase {
		r := newRig(t, `read x <"$GATE"; echo 42`)
		return SourceCase{Source: r.source(), Job: r.p, End: func() { r.open(); r.datagram(r.wake) }}
	},
	SourceHTTP: func(t *testing.T) SourceCase {
		var mu sync.Mutex
		keys, state := map[string]bool{}, "Running"
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodPost {
				keys[r.Header.Get("Idempotency-Key")] = true
			}
			_, _ = fmt.Fprintf(w, `{"id":"job-1","state":%q}`, state)
		})
		config := `{"P":{"source":"http","startKind":"idempotent","start":{"url":"$URL/jobs"},"itemKey":".id",` +
			`"status":{"url":"$URL/jobs/{itemKey}","done":".state==\"Successful\""},"cancel":{"url":"$URL/jobs/{itemKey}"}}}`
		job := pending(t)
		job.ItemKey = ""
		return SourceCase{
			Source: source(t, s, config, nil), Job: job,
			Starts: func() int { mu.Lock(); defer mu.Unlock(); return len(keys) },
			End:    func() { mu.Lock(); defer mu.Unlock(); state = "Successful" },
		}
	},
	SourceUiPath: func(t *testing.T) SourceCase {
		o := newOrchestrator(t)
		return SourceCase{
			Source: o.uipathSource, Job: waits(t, `{"name":"invoice","process_folder_path":"Shared","input_arguments":{}}`),
			Starts: func() int {
				starts, err := service.ReadStarts(o.dir)
				if err != nil {
					t.Error(err)
				}
				return len(starts)
			},
			End: func() { o.now = o.now.Add(time.Hour) },
		}
	},
}
