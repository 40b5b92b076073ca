package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// BenchmarkACP runs 200 evaluations of the ACP agent of the fixtures at -j 2 with the real program
// and, in the same run, a bare loop that starts the agent with the same parallelism and has the
// same conversation. added-ms/rollout is the difference, MB-peak the memory of evalrun itself.
func BenchmarkACP(b *testing.B) {
	programs := b.TempDir()
	program, peer := buildProgram(b), filepath.Join(programs, "acp-agent")
	if err := testenv.Build(programs, testenv.ACPAgent); err != nil {
		b.Fatal(err)
	}
	n := testenv.Size(200, 20)
	for _, isolation := range []string{sandbox.IsolationProcess, sandbox.IsolationBwrap} {
		b.Run(isolation, func(b *testing.B) {
			if err := sandbox.Supported(isolation); err != nil {
				b.Skip(err)
			}
			var bare, ours time.Duration
			var peak, least float64
			for b.Loop() {
				bare += bareConversations(b, peer, n)
				took, mb := acpRun(b, program, peer, isolation, n)
				ours, peak = ours+took, max(peak, mb)
				_, least = acpRun(b, program, peer, isolation, 1)
			}
			b.ReportMetric(float64((ours-bare).Microseconds())/1000/float64(b.N*n)*2, "added-ms/rollout") // two at once
			b.ReportMetric(float64(bare.Microseconds())/1000/float64(b.N*n)*2, "bare-ms/rollout")
			b.ReportMetric(peak, "MB-peak")
			b.ReportMetric(peak-least, "MB-over-one-rollout")
		})
	}
}

// acpRun runs evaluations with the program, and gives the time and the peak of its memory.
func acpRun(b *testing.B, program, peer, isolation string, n int) (took time.Duration, mb float64) {
	b.Helper()
	dir := b.TempDir()
	var evaluations []any
	for i := range n {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": fmt.Sprint("E", i), "inputs": map[string]string{"prompt": "[[SAY hello]]"},
			"evaluationCriterias": map[string]any{"says": map[string]string{"searchText": "hello"}}})
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "id": "bench", "name": "Bench", "evaluations": evaluations, "agent": map[string]any{"type": "acp", "command": []string{peer}},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]string{"name": "says", "targetOutputKey": "content"}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "set.json"), data, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "run", "-q", "-j", "2", "--isolation", isolation, "set.json")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	took = time.Since(began)
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		mb = float64(usage.Maxrss) / 1024 // KiB on Linux
	}
	return took, mb
}

// bareConversations has the conversations that evalrun has, with nothing around them.
func bareConversations(b *testing.B, peer string, n int) time.Duration {
	b.Helper()
	began := time.Now()
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range work {
				if err := converse(b.Context(), peer, b.TempDir()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func converse(ctx context.Context, peer, home string) error {
	cmd := exec.CommandContext(ctx, peer)
	cmd.Env = append(os.Environ(), "HOME="+home)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	// call sends a request and gives the sessionId of its answer.
	call := func(id int, method, params string) (session string, err error) {
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			return "", err
		}
		for lines.Scan() {
			var answer struct {
				ID     int `json:"id"`
				Result struct {
					SessionID string `json:"sessionId"`
				} `json:"result"`
			}
			if err := json.Unmarshal(lines.Bytes(), &answer); err != nil || answer.ID == id {
				return answer.Result.SessionID, err
			}
		}
		return "", fmt.Errorf("%s: no answer: %w", method, lines.Err())
	}
	if _, err := call(1, "initialize", `{"protocolVersion":1,"clientCapabilities":{}}`); err != nil {
		return err
	}
	session, err := call(2, "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	if err != nil {
		return err
	}
	if _, err := call(3, "session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"[[SAY hello]]"}]}`, session)); err != nil {
		return err
	}
	if err := in.Close(); err != nil {
		return err
	}
	return cmd.Wait()
}
