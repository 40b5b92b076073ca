package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/wait"
)

// benchRole is the environment variable by which the test's program is one of the processes of the
// benchmark.
const benchRole = "EVALRUN_BENCH_ROLE"

// helper is the test's program in a role.
func helper(b testing.TB, role string, era mcp.Era, server string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchProcess$")
	cmd.Env = append(os.Environ(), benchRole+"="+role, "EVALRUN_BENCH_ERA="+string(era), "EVALRUN_BENCH_SERVER="+server, "EVALRUN_BENCH_DIR="+b.TempDir())
	cmd.Stderr = os.Stderr
	return cmd
}

// startHTTP starts a process that serves over HTTP, and returns its URL.
func startHTTP(b *testing.B, role string, era mcp.Era, server string) string {
	cmd := helper(b, role+"-http", era, server)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	start(b, cmd)
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatalf("%s: %v", role, err)
	}
	return strings.TrimSpace(url)
}

// startLines starts a process that serves on its stdin and stdout.
func startLines(b *testing.B, role string, era mcp.Era) io.ReadWriter {
	rw, err := startPiped(helper(b, role+"-stdio", era, ""))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rw.Close() })
	return rw
}

// startPiped starts a process with pipes to its stdin and stdout, which are used as those of
// package sandbox are; closing them ends it.
func startPiped(cmd *exec.Cmd) (*pipe, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &pipe{out, in, func() error {
		_ = in.Close()
		return cmd.Wait()
	}}, cmd.Start()
}

// TestBenchProcess is a process of the benchmark; it is no test.
func TestBenchProcess(t *testing.T) {
	role, era, server := os.Getenv(benchRole), mcp.Era(os.Getenv("EVALRUN_BENCH_ERA")), os.Getenv("EVALRUN_BENCH_SERVER")
	if role == "" {
		return
	}
	// A blocking read of stdin may stop the garbage collector for a minute.
	if err := syscall.SetNonblock(0, true); err != nil {
		t.Fatal(err)
	}
	stdin := os.NewFile(0, "stdin")
	bare := bareServer{era}
	served := gateway.Server{Name: "raw", Protocol: era, Target: mcp.Target{URL: server}}
	serve := func(h http.Handler) {
		s := httptest.NewServer(h)
		fmt.Println(s.URL)
		select {} // until it is killed
	}
	switch role {
	case "server-http":
		serve(bare)
	case "server-stdio":
		bare.serveLines(stdin, os.Stdout)
	case "forwarder-http":
		serve(forwardHTTP(server))
	case "forwarder-stdio":
		to, err := startPiped(helper(t, "server-stdio", era, ""))
		if err != nil {
			t.Fatal(err)
		}
		go forwardLines(to, os.Stdout)
		forwardLines(stdin, to)
		_ = to.Close()
	case "gateway-http", "intent-http":
		o := gateway.AccessOptions{Servers: []gateway.Server{served}}
		if role == "intent-http" {
			o.Policy = (&suspend.Hooks{Ledger: newDiskLedger(t, os.Getenv("EVALRUN_BENCH_DIR"))}).Policy
		}
		g, err := gateway.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		a, err := g.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(a.URLWithToken("raw"))
		select {} // until it is killed
	case "gateway-stdio":
		if err := syscall.SetNonblock(1, true); err != nil {
			t.Fatal(err)
		}
		served.Target = mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
			return startPiped(helper(t, "server-stdio", era, ""))
		}}
		a := open(t, served)
		_ = a.ServeStdio(t.Context(), "raw", stdin, os.NewFile(1, "stdout"))
		_ = a.Close()
	}
	os.Exit(0)
}

// forwardHTTP is a bare forwarder.
func forwardHTTP(url string) http.Handler {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header = r.Header.Clone()
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(answer)
	})
}

// bareServer answers every call with its arguments. It looks at nothing but what it needs.
type bareServer struct{ era mcp.Era }

func (s bareServer) answer(text []byte) string {
	_, id, _ := bytes.Cut(text, []byte(`"id":`))
	end := bytes.IndexByte(id, ',')
	if end < 0 {
		return ""
	}
	id = id[:end]
	const before = `"arguments":`
	if begin := bytes.Index(text, []byte(before)); begin >= 0 {
		arguments := text[begin+len(before):]
		size := bytes.IndexByte(arguments, '}') + 1 // there is none in them
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":%s}}`, id, arguments[:size])
	}
	body := (&rawServer{era: s.era, offers: `,"_meta":{"uipath.com/job":{"version":1}}`}).handshake(parseRaw(text))
	if body == "" {
		body = `"result":{"tools":[]}`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, body)
}

func (s bareServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	answer := s.answer(body)
	switch {
	case err != nil:
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case answer == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}
}

func (s bareServer) serveLines(r io.Reader, w io.Writer) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if answer := s.answer(line); answer != "" {
			_, _ = io.WriteString(w, answer+"\n")
		}
	}
}

// forwardLines is one direction of a bare forwarder.
func forwardLines(from io.Reader, to io.Writer) {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if _, err := to.Write(line); err != nil {
			return
		}
	}
}

// diskLedger keeps the calls of a rollout in a store.
type diskLedger struct {
	store *sqlite.Store
	token store.Token
}

func newDiskLedger(b testing.TB, dir string) suspend.Ledger {
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	p := store.Plan{RunID: store.NewRunID(), Name: "bench", EvaluationSetID: "set", EvaluationSetName: "Set", Data: json.RawMessage(`{}`)}
	p.Evaluations = []store.Evaluation{{ID: "e", Data: json.RawMessage(`{}`)}}
	p.Rollouts = []store.PlannedRollout{{ID: store.RolloutID(p.RunID, "e", "agent", 1), EvaluationName: "e", Agent: "agent", Epoch: 1}}
	if _, err := s.CreateRun(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	claims, err := s.Claim(b.Context(), p.RunID, 1)
	if err != nil || len(claims) != 1 {
		b.Fatalf("%d claims, %v", len(claims), err)
	}
	return diskLedger{s, claims[0].Token}
}

func (l diskLedger) Begin(ctx context.Context, key suspend.CallKey) (suspend.Entry, error) {
	c, err := l.store.BeginCall(ctx, l.token, store.CallKey(key))
	if err != nil {
		return suspend.Entry{}, err
	}
	w, err := wait.DecodeWork(c.Work)
	return suspend.Entry{ID: c.ID, New: c.New, Work: w}, err
}

func (l diskLedger) Started(ctx context.Context, w *wait.Work) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return l.store.CallStarted(ctx, l.token, w.CallID, raw)
}

func (l diskLedger) Work(ctx context.Context, id string) (*wait.Work, error) {
	raw, err := l.store.CallWork(ctx, l.token.RolloutID, id)
	if err != nil {
		return nil, err
	}
	return wait.DecodeWork(raw)
}

func (l diskLedger) Ended(ctx context.Context, id string) error {
	return l.store.EndCall(ctx, l.token, id)
}
