package modelagent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// BenchmarkStep is the time of one step of a loop: a request, its answer, and a command, each of them
// durable before the next. ms-over/step is what is left of it without the model and the tool, which are
// measured beside it: the same requests without a loop, and the same commands in the same kind of shell.
func BenchmarkStep(b *testing.B) {
	const steps = 50
	var bodies [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut off is no JSON for the next one
		bodies = append(bodies, body)
		if n := len(bodies); n%(steps+1) != 0 {
			_, _ = io.WriteString(w, calls("tool_calls", "bash", `{"command":"true"}`).body)
			return
		}
		_, _ = io.WriteString(w, good.body)
	}))
	b.Cleanup(server.Close)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	box := &agent.Sandbox{Config: sandbox.Config{Isolation: sandbox.IsolationProcess}, Home: dir, Cwd: dir, Executable: self}
	a := newAgent(agent.Entry{Name: "m", Model: &agent.Model{API: string(model.APIChat), URL: server.URL, Name: "m1"},
		Settings: &Settings{Tools: []string{bashTool}}}, agent.Options{}, nil)
	var over time.Duration
	for n := range b.N {
		bodies = nil
		seg := agent.Segment{RolloutID: "r", Marker: b.Name(), Number: 1, Input: json.RawMessage(`{}`), Prompt: "Work.", Sandbox: box, Dir: filepath.Join(dir, fmt.Sprint("1.", n+1))}
		if err := os.Mkdir(seg.Dir, 0o700); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if out, err := a.Run(b.Context(), seg); err != nil || out.Fault != nil || out.Info.ToolCalls != steps {
			b.Fatalf("%v, %+v", err, out)
		}
		whole := time.Since(began)

		began = time.Now()
		s := &segment{a: a, seg: seg}
		sh, f, err := s.startShell(b.Context())
		if err != nil || f != nil {
			b.Fatal(err, f)
		}
		log := program.OpenLog(filepath.Join(seg.Dir, "bench.log"), nil)
		for range steps {
			if _, err := sh.run("true", time.Minute, 1000, nil, log, time.Now); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(sh.close(), log.Close()); err != nil {
			b.Fatal(err)
		}
		asked := bodies
		bodies = nil
		for _, body := range asked {
			resp, err := http.Post(server.URL, "application/json", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		over += whole - time.Since(began)
	}
	b.ReportMetric(float64(over.Microseconds())/1000/float64(b.N*steps), "ms-over/step")
}
