package crash

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestServerThatIsAway cuts a worker off from its database for longer than a lease. It says so, and
// works again when the database answers, in the same process.
func TestServerThatIsAway(t *testing.T) {
	server := testenv.StartPostgres(t)
	s := emptyScenario(t, "failpoint") // which knows EVALRUN_LEASE
	s.store = server.URL
	s.make()
	w := newWire(t, server.URL)
	s.environ = []string{"EVALRUN_STORE=" + w.url, "EVALRUN_LEASE=1s"}
	worker := s.start("worker", "--tag", "there")
	said := func(text string) {
		t.Helper()
		if !testenv.Eventually(func() bool { return strings.Contains(worker.out.String(), text) }) {
			t.Fatalf("the worker has not said %q:\n%s", text, worker.out.String())
		}
	}
	said("watching")
	w.cut()
	said("this process goes on when")
	w.mend()

	set := `{"version": "1.0", "id": "away", "name": "Away", "agent": {"type": "function", "command": ["sh", "-c", "echo '{\"a\": 1}'"]},
		"evaluators": [{"id": "equal", "version": "1.0", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Equal"}}],
		"evaluations": [{"id": "one", "name": "One", "inputs": {}, "workerTags": ["there"],
			"evaluationCriterias": {"equal": {"expectedOutput": {"a": 1}}}}], "thresholds": {"score": 1}}`
	if err := os.WriteFile(filepath.Join(s.dir, "set.json"), []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("EVALRUN_STORE=" + server.URL) // only the worker has the tag
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("run: %v\n%s\nworker:\n%s", err, out, worker.out.String())
	}
	if err := worker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.cmd.Wait(); err != nil {
		t.Errorf("worker: %v\n%s", err, worker.out.String())
	}
}

// wire passes on what is sent to a server, while it is whole.
type wire struct {
	t           *testing.T
	server, url string

	mu       sync.Mutex
	listener net.Listener
	ends     []net.Conn
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, server: u.Host}
	u.Host = w.listen("127.0.0.1:0")
	w.url = u.String()
	t.Cleanup(w.cut)
	return w
}

func (w *wire) listen(at string) string {
	w.t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.listener = l
	w.mu.Unlock()
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", w.server)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.ends = append(w.ends, client, server)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		}
	}()
	return l.Addr().String()
}

// cut ends all connections, and lets no new ones be made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.listener.Close()
	for _, end := range w.ends {
		_ = end.Close()
	}
	w.ends = nil
}

// mend lets connections be made again.
func (w *wire) mend() {
	u, _ := url.Parse(w.url)
	w.listen(u.Host)
}
