package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// TestMain is a worker if its environment says so.
func TestMain(m *testing.M) {
	if how := os.Getenv("TEST_WORKER"); how != "" {
		work(how)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a worker that does what its jobs say.
func work(how string) {
	nonce := os.Getenv(EnvNonce)
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	mark := func(kind, id string) { fmt.Fprintf(os.Stderr, "\n\x1e%s %s %s\n", nonce, kind, id) }
	switch how {
	case "refuses":
		fmt.Fprintln(os.Stderr, "started")
		say(`{"evalrun":1,"nonce":%q,"error":{"code":"start","type":"E","message":"it has no packages"}}`, nonce)
		os.Exit(3)
	case "dies":
		os.Exit(7)
	case "never greets":
		for range 2000 {
			say(strings.Repeat("noise ", 20))
		}
		select {}
	case "talks first":
		say("loading")
		say(`{"evalrun":1,"nonce":"another"}`)
	}
	marks := how != "without marks"
	say(`{"evalrun":1,"nonce":%q,"marks":%v,"rssKb":1000}`, nonce, marks)
	in := bufio.NewReader(os.Stdin)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var job struct{ ID, Do string }
		_ = json.Unmarshal(text, &job)
		if marks {
			mark("begin", job.ID)
		}
		fmt.Fprintf(os.Stderr, "does %s", job.Do)
		switch job.Do {
		case "exit":
			os.Exit(4)
		case "hang":
			select {}
		case "close":
			_ = os.Stdout.Close()
			continue
		case "close stderr":
			_ = os.Stderr.Close()
		case "start":
			starts(os.Getenv(sandbox.WorkerVar))
		}
		if marks {
			mark("end", job.ID)
		}
		answer := fmt.Sprintf(`{"id":%q,"output":{"pid":%d,"n":%d}}`, job.ID, os.Getpid(), n)
		switch job.Do {
		case "other":
			answer = `{"id":"999","output":1}`
		case "none":
			answer = `{"output":1}`
		case "nan":
			answer = fmt.Sprintf(`{"id":%q,"output":NaN}`, job.ID)
		case "neither":
			answer = fmt.Sprintf(`{"id":%q}`, job.ID)
		case "no json":
			answer = "Traceback"
		case "huge":
			answer = `{"id":"` + strings.Repeat("x", 1<<20)
		case "long":
			answer = fmt.Sprintf(`{"id":%q,"output":%q}`, job.ID, strings.Repeat("x", 1001))
		case "twice":
			answer += "\n" + answer
		case "dirty":
			answer = answer[:len(answer)-1] + `,"stats":{"dirty":["threads:t"]}}`
		case "grown":
			answer = answer[:len(answer)-1] + `,"stats":{"rssKb":1050000}}`
		case "closed":
			answer = answer[:len(answer)-1] + `,"stats":{"dirty":["loop-closed"]}}`
		case "error":
			answer = fmt.Sprintf(`{"id":%q,"error":{"code":"exception","type":"ValueError","message":"bad thing"}}`, job.ID)
		case "leaves":
			answer += "\n"
		}
		say("%s", answer)
		if job.Do == "leaves" {
			os.Exit(0)
		}
	}
}

// starts starts a program as a worker should: it bears the marker of a job. It leaves the worker's
// group, and lives on.
func starts(worker string) {
	cmd := exec.Command("sleep", "100000")
	cmd.Env = []string{sandbox.MarkerVar + "=a job", sandbox.WorkerVar + "=" + worker}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, " %d", cmd.Process.Pid)
}

// world is a pool of such workers. It counts those that are started.
type world struct {
	t    *testing.T
	pool *Pool
	how  string

	mu      sync.Mutex
	started int
}

func newWorld(t *testing.T, how string, fresh bool) *world {
	w := &world{t: t, pool: New(fresh), how: how}
	t.Cleanup(func() {
		if err := w.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) start(context.Context) (sandbox.Command, *fault.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	return sandbox.Command{Path: os.Args[0], Args: os.Args[:1], Dir: w.t.TempDir(), Env: append(os.Environ(), "TEST_WORKER="+w.how)}, nil
}

// did is what became of a job.
type did struct {
	Answer
	stderr string
	pid, n int
}

func (w *world) do(what string) did { return w.doWith(w.t.Context(), what) }

func (w *world) doWith(ctx context.Context, what string) (d did) {
	w.t.Helper()
	var stderr bytes.Buffer
	answer, err := w.pool.Do(ctx, Job{Op: "segment", Body: map[string]string{"do": what}, Stderr: &stderr, Limit: 1000, Start: w.start})
	if err != nil {
		w.t.Fatal(err)
	}
	d.Answer, d.stderr = answer, stderr.String()
	if answer.Output != nil {
		var said struct{ PID, N int }
		if err := json.Unmarshal(answer.Output, &said); err != nil {
			w.t.Fatalf("%s: %v", answer.Output, err)
		}
		d.pid, d.n = said.PID, said.N
	}
	return d
}
